# SPDX-License-Identifier: Apache-2.0
"""Drafts of which each request has its own number."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.worker.gpu.async_utils import async_copy_to_np
from vllm.v1.worker.gpu.spec_decode.utils import DraftTokensHandler

if TYPE_CHECKING:
    from vllm.v1.worker.gpu.input_batch import InputBatch


class CountedDrafts(DraftTokensHandler):
    """Hands the scheduler as many drafts of each request as it has."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._lengths = np.empty(0, np.int32)
        self._copied = torch.cuda.Event(blocking=True)

    def take(
        self,
        input_batch: "InputBatch",
        draft_tokens: torch.Tensor,
        lengths: torch.Tensor,
    ) -> None:
        """Take over a batch's drafts.

        Args:
            input_batch: the batch.
            draft_tokens: [num_reqs, num_steps], int64; of other rows where nobody
                looks at the tokens.
            lengths: [num_reqs], int32: how many of its drafts each request has.
        """
        super().set_draft_tokens(input_batch, draft_tokens)
        self.copy_stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.copy_stream):
            self._lengths = async_copy_to_np(lengths)
            lengths.record_stream(self.copy_stream)
            self._copied.record()

    def get_draft_tokens(self) -> DraftTokenIds:
        """Return the drafts, -1 for each where nobody looks at the tokens."""
        drafts = super().get_draft_tokens()
        self._copied.synchronize()
        for tokens, length in zip(
            drafts.draft_token_ids, self._lengths.tolist(), strict=True
        ):
            del tokens[length:]
        return drafts
