# SPDX-License-Identifier: Apache-2.0
"""The memory of drafting from tokens, all of it at fixed addresses."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class MatchIndex:
    """Where each request's n-grams occurred; `ngram_draft` fills it.

    Attributes:
        entries: [max_num_reqs, num_lens, size, 2], int32: first and last occurrence.
        indexed_len: [max_num_reqs], int32, how many positions have been entered.
    """

    entries: torch.Tensor
    indexed_len: torch.Tensor

    @staticmethod
    def make(
        max_num_reqs: int, max_model_len: int, num_lens: int, device: torch.device
    ) -> "MatchIndex":
        """Make an empty index whose tables are full to two thirds at most."""
        shape = (max_num_reqs, num_lens, max_model_len * 3 // 2 + 1, 2)
        return MatchIndex(
            torch.empty(shape, dtype=torch.int32, device=device),
            torch.zeros(max_num_reqs, dtype=torch.int32, device=device),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the whole index."""
        return int(self.entries.nbytes + self.indexed_len.nbytes)


# By class of the match's length (1, 2, 3, 4, 5 to 7, 8 to 15, 16 tokens and more): how
# likely the first draft is right, and each draft after one that was.
_FIRST = (0.2, 0.4, 0.55, 0.65, 0.75, 0.85, 0.92)
_NEXT = (0.6, 0.7, 0.8, 0.85, 0.88, 0.92, 0.95)
_PRIOR_WEIGHT = 20.0


@dataclass(frozen=True)
class Acceptance:
    """How often drafts were right; `adapt_draft_length` keeps it.

    Attributes:
        trials: [max_num_reqs, 4 + num_steps], int32, a draft of each request's that is
            being compared with what comes.
        tried: [max_num_reqs + 1, classes, num_steps], float32, fading counts of
            comparisons by class of match and place; the last row is all requests'.
        accepted: the same, of those that were right.
        chance: [max_num_reqs, num_steps], float32, that a draft is accepted.
    """

    trials: torch.Tensor
    tried: torch.Tensor
    accepted: torch.Tensor
    chance: torch.Tensor

    @staticmethod
    def make(max_num_reqs: int, num_steps: int, device: torch.device) -> "Acceptance":
        """Make counts that know nothing of a request, and priors of all."""
        shape = (max_num_reqs + 1, len(_FIRST), num_steps)
        tried = torch.zeros(shape, device=device)
        accepted = torch.zeros(shape, device=device)
        tried[-1] = _PRIOR_WEIGHT
        accepted[-1] = _PRIOR_WEIGHT * torch.tensor(_NEXT, device=device)[:, None]
        accepted[-1, :, 0] = _PRIOR_WEIGHT * torch.tensor(_FIRST, device=device)
        return Acceptance(
            torch.zeros(max_num_reqs, 4 + num_steps, dtype=torch.int32, device=device),
            tried,
            accepted,
            torch.zeros(max_num_reqs, num_steps, device=device),
        )
