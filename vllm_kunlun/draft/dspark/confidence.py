# SPDX-License-Identifier: Apache-2.0
"""Drafts are cut where the confidence head expects them to be rejected.

The head of a DSpark checkpoint (https://arxiv.org/abs/2607.05147) predicts for each
draft the chance that it is accepted, provided that the ones before it are. The product
up to a draft is the chance that the prefix survives, which never rises: what is at or
above `draft_confidence_threshold` is a prefix, and that is verified.
"""

from typing import TYPE_CHECKING

import torch

from vllm_kunlun.draft.counted import CountedDrafts

if TYPE_CHECKING:
    from vllm.v1.worker.gpu.input_batch import InputBatch


def likely_prefix(chances: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return how many drafts of each request are likely enough to survive.

    Args:
        chances: [num_reqs, num_steps], f32: of each draft to be accepted, provided that
            the ones before it are.
        threshold: the least chance of a prefix, in (0, 1).

    Returns:
        [num_reqs], int32, from 0 to num_steps.
    """
    survival = chances.cumprod(dim=1)
    return (survival >= threshold).sum(dim=1, dtype=torch.int32)


class CutDrafts(CountedDrafts):
    """Hands the scheduler as many drafts of each request as are worth verifying."""

    def __init__(self, device: torch.device, num_drafts: torch.Tensor) -> None:
        """Start without drafts.

        Args:
            device: of the runner.
            num_drafts: [max_num_reqs], int32, in the order of the batch: how many of
                its drafts each request keeps.
        """
        super().__init__(device)
        self._num_drafts = num_drafts

    def set_draft_tokens(
        self, input_batch: "InputBatch", draft_tokens: torch.Tensor
    ) -> None:
        """Take over a batch's drafts.

        Args:
            input_batch: the batch.
            draft_tokens: [num_reqs, num_steps], int64.
        """
        lengths = self._num_drafts[: input_batch.num_reqs]
        self.take(input_batch, draft_tokens, lengths)
