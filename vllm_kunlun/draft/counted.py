# SPDX-License-Identifier: Apache-2.0
"""Drafts of which each request has its own number."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.worker.gpu.async_utils import async_copy_to_np
from vllm.v1.worker.gpu.spec_decode.utils import DraftTokensHandler

if TYPE_CHECKING:
    from vllm.v1.worker.gpu.input_batch import InputBatch


@dataclass(frozen=True)
class Lengths:
    """How many drafts the requests of a batch have, as the host hears of it.

    Attributes:
        req_ids: the batch's.
        lengths: [num_reqs], int32, valid once `copied` has happened.
        copied: an event.
    """

    req_ids: list[str]
    lengths: npt.NDArray[np.int32]
    copied: Any

    def by_request(self) -> dict[str, int]:
        """Return the lengths, after waiting for them."""
        self.copied.synchronize()
        return dict(zip(self.req_ids, self.lengths.tolist(), strict=True))


class CountedDrafts(DraftTokensHandler):
    """Hands the scheduler as many drafts of each request as it has."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        nobody = torch.cuda.Event(blocking=True)
        self.latest = Lengths([], np.empty(0, np.int32), nobody)

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
            copied = torch.cuda.Event(blocking=True)
            self.latest = Lengths(
                input_batch.req_ids, async_copy_to_np(lengths), copied
            )
            lengths.record_stream(self.copy_stream)
            copied.record()

    def get_draft_tokens(self) -> DraftTokenIds:
        """Return the drafts, -1 for each where nobody looks at the tokens."""
        drafts = super().get_draft_tokens()
        lengths = self.latest.by_request().values()
        for tokens, length in zip(drafts.draft_token_ids, lengths, strict=True):
            del tokens[length:]
        return drafts
