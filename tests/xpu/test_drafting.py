# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F401 (tests that are imported are tests of this file)
"""Model-free drafting on the simulated XPU: the drafts and lengths of the host's."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_ngram import OPS, PARAMETERS, as_int, test_drafts, test_length_limit

from vllm_kunlun import backend

MACHINES = ["sim:1x1", "sim:1x64:1", "sim:12x64:2"]


@pytest.fixture(scope="module", params=MACHINES, autouse=True)
def machine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run every op of a test on the XPU."""
    backend.use(request.param)
    before = backend.simulated_launches()
    yield request.param
    assert backend.simulated_launches() > before + 40
    backend.use("host")


class Batch:
    """A step of many requests whose state is drawn at random."""

    def __init__(self, num_reqs: int, steps: int, length: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        rows = num_reqs + 3

        def draw(low: int, high: int, *shape: int) -> torch.Tensor:
            return torch.randint(low, high, shape, generator=g, dtype=torch.int32)

        self.tokens = draw(0, 3, rows, length)
        # What repeats at a distance, too.
        half = length // 2
        self.tokens[::2, half : 2 * half] = self.tokens[::2, :half]
        total = draw(1, length + 1, rows)
        query = draw(1, 4, num_reqs)
        order = torch.randperm(rows, generator=g)[:num_reqs].int()
        computed = total[order.long()] - 1
        # A quarter begins; a quarter has sampled nothing.
        prefill = torch.where(draw(0, 4, rows) == 0, total, total - 8).clamp(min=0)
        self.step = (
            order,
            as_int([0, *query.cumsum(0).tolist()]),
            computed,
            prefill.int(),
            draw(0, 4, num_reqs),
            self.tokens,
            total,
        )
        self.max_model_len = length
        self.draft_tokens = torch.full((rows, steps), -7)
        self.num_drafts = torch.full((rows,), 99, dtype=torch.int32)
        self.found = torch.full((rows, 2), 99, dtype=torch.int32)
        self.trials = draw(0, 3, rows, 5 + steps)
        # A trial began some tokens ago and was compared in part.
        self.trials[:, 0] = (total - draw(0, steps + 2, rows)).clamp(min=0)
        self.trials[:, 1] = draw(0, steps + 1, rows)
        self.trials[:, 2] = draw(1, 65, rows)
        self.trials[:, 3] = draw(-1, steps + 1, rows)
        self.trials[:, 4] = draw(0, 3, rows).clamp(max=self.trials[:, 1])
        self.own = torch.rand((rows, 3, 2), generator=g) * 5
        self.pool = torch.rand((7, 3, 2), generator=g) * 5
        for counts in (self.own, self.pool):
            counts[..., 1] *= counts[..., 0] / 5
        self.chance = torch.full((num_reqs, steps), -7.0)

    def run(self, low: int, high: int, verify_cost: float, free_rows: int) -> None:
        """Launch both ops as the speculator does."""
        parameters = PARAMETERS | {"verify_cost": verify_cost}
        OPS.ngram_draft(
            self.draft_tokens, self.num_drafts, self.found, None, None,
            *self.step, low, high, self.max_model_len,
        )  # fmt: skip
        self.drafted = self.num_drafts.clone()
        OPS.adapt_draft_length(
            self.num_drafts, self.trials, self.own, self.pool, self.chance,
            self.draft_tokens, self.found, *self.step, *parameters.values(),
            free_rows,
        )  # fmt: skip


@settings(max_examples=5)
@given(
    num_reqs=st.integers(0, 150),
    steps=st.integers(1, 12),
    length=st.integers(2, 300),
    low=st.integers(1, 3),
    more=st.integers(0, 20),
    cost=st.sampled_from([0.0, 0.001, 0.03, 0.2]),
    free_rows=st.integers(0, 200),
    seed=st.integers(0, 2**31),
)
@example(
    num_reqs=150, steps=7, length=300, low=2, more=2, cost=0.001, free_rows=0, seed=0
)
@example(
    num_reqs=1, steps=12, length=40_000, low=1, more=63, cost=0.03, free_rows=8, seed=1
)
@example(
    num_reqs=150,
    steps=7,
    length=300,
    low=2,
    more=2,
    cost=0.2,
    free_rows=150,
    seed=0,
)
@example(num_reqs=65, steps=1, length=2, low=1, more=0, cost=0.2, free_rows=70, seed=2)
def test_large_batches_and_long_requests(
    machine: str,
    num_reqs: int,
    steps: int,
    length: int,
    low: int,
    more: int,
    cost: float,
    free_rows: int,
    seed: int,
) -> None:
    """More requests than cores, more tokens than a round of all cores looks at."""
    expected, found = (Batch(num_reqs, steps, length, seed) for _ in range(2))
    backend.use("host")
    expected.run(low, low + more, cost, free_rows)
    backend.use(machine)
    found.run(low, low + more, cost, free_rows)
    for name, value in vars(expected).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, vars(found)[name]), name
