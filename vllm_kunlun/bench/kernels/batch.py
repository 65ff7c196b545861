# SPDX-License-Identifier: Apache-2.0
"""The requests of a step, as the runner holds them."""

import torch

MAX_REQUESTS = 512
MAX_TOKENS = 8192
MAX_LENGTH = 4096
STEPS = 3
"""Drafts per request."""
VOCABULARY = 131072
"""Where logits or counts are there, but not passed over."""


class Batch:
    """Requests in persistent buffers, in a shuffled order.

    Each has `lengths` tokens in the step: 1 to STEPS + 1 if nothing else is said,
    which is decoding with drafts.
    """

    def __init__(self, requests: int, lengths: torch.Tensor | None = None) -> None:
        self.generator = torch.Generator().manual_seed(requests)
        if lengths is None:
            lengths = torch.arange(requests) % (STEPS + 1) + 1
        self.requests = requests
        self.max_requests = max(requests, MAX_REQUESTS)
        self.max_tokens = max(int(lengths.sum()), MAX_TOKENS)
        self.lengths = lengths
        order = torch.randperm(self.max_requests, generator=self.generator)
        self.rows = order[:requests].int()
        """idx_mapping."""
        self.starts = torch.zeros(requests + 1, dtype=torch.int32)
        """query_start_loc, or cu_num_logits."""
        self.starts[1:] = lengths.cumsum(0)
        self.tokens = int(self.starts[-1])
        # Room is left for what a step adds.
        self.computed = self.ints(self.max_requests, high=MAX_LENGTH - 1024)

    def ints(
        self, *shape: int, high: int = VOCABULARY, dtype: torch.dtype = torch.int32
    ) -> torch.Tensor:
        """Return random integers."""
        return torch.randint(high, shape, generator=self.generator, dtype=dtype)

    def longs(self, *shape: int, high: int = VOCABULARY) -> torch.Tensor:
        """Return random integers of 64 bits."""
        return self.ints(*shape, high=high, dtype=torch.int64)

    def floats(self, *shape: int) -> torch.Tensor:
        """Return random numbers in [0.5, 1)."""
        return torch.rand(shape, generator=self.generator) / 2 + 0.5

    @property
    def seq_lens(self) -> torch.Tensor:
        """Of the batch, this step included."""
        return (self.computed[self.rows] + self.lengths).int()


def prefill_chunks(requests: int) -> Batch:
    """Return a batch that prefills: chunks of unequal length that fill a step."""
    chunk = max(min(512, MAX_TOKENS // requests), 4)
    return Batch(requests, chunk - torch.arange(requests) % 3)


def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """Return zeros; pages that nobody writes to cost nothing."""
    return torch.zeros(shape, dtype=dtype)


def logits(rows: int, vocabulary: int) -> torch.Tensor:
    """Return rows of normally distributed logits: parts of one pool, so made fast."""
    shifts = 1024
    generator = torch.Generator().manual_seed(vocabulary)
    pool = torch.randn(vocabulary + shifts, generator=generator) * 3
    out = torch.empty(rows, vocabulary)
    for row in range(rows):
        first = row * 37 % shifts
        out[row] = pool[first : first + vocabulary]
    return out


def spread(starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return, for each element of ragged rows, its row and its place in the row.

    The usual step of torch code for work of unequal length per request.
    """
    rows = torch.repeat_interleave(starts.diff())
    return rows, torch.arange(rows.numel()) - starts[rows]


def unpack(words: torch.Tensor) -> torch.Tensor:
    """Return the bits of rows of words, lowest first, as booleans."""
    bits = words.unsqueeze(-1) >> torch.arange(32, dtype=torch.int32)
    return (bits & 1).bool().flatten(1)
