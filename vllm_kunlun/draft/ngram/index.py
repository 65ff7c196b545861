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


# How likely a draft is right after those before it, by how many tokens agree before it
# (1, 2, 3, 4, 5 to 7, 8 to 15, 16 and more); where the suffix occurred once, where both
# of its occurrences go on with this draft, and where they do not.
_ONCE = (0.25, 0.55, 0.7, 0.85, 0.92, 0.95, 0.97)
_ALIKE = (0.4, 0.6, 0.75, 0.75, 0.8, 0.93, 0.95)
_OTHERWISE = (0.15, 0.4, 0.55, 0.6, 0.65, 0.8, 0.95)
_PRIOR_WEIGHT = 20.0


@dataclass(frozen=True)
class Acceptance:
    """How often drafts were right; `adapt_draft_length` keeps it.

    Attributes:
        trials: [max_num_reqs, 5 + num_steps], int32, a draft of each request's that is
            being compared with what comes.
        own: [max_num_reqs, 3, 2], float32, each request's fading counts of comparisons
            and of those that were right, by what the match's other occurrence says.
        pool: [classes, 3, 2], float32, all requests', by how many tokens agree, too.
        chance: [max_num_reqs, num_steps], float32, that a draft is accepted.
    """

    trials: torch.Tensor
    own: torch.Tensor
    pool: torch.Tensor
    chance: torch.Tensor

    @staticmethod
    def make(max_num_reqs: int, num_steps: int, device: torch.device) -> "Acceptance":
        """Make counts that know nothing of a request, and priors of all."""
        right = torch.tensor((_ONCE, _ALIKE, _OTHERWISE), device=device).T
        pool = _PRIOR_WEIGHT * torch.stack([torch.ones_like(right), right], dim=-1)
        return Acceptance(
            torch.zeros(max_num_reqs, 5 + num_steps, dtype=torch.int32, device=device),
            torch.zeros(max_num_reqs, *pool.shape[1:], device=device),
            pool,
            torch.zeros(max_num_reqs, num_steps, device=device),
        )
