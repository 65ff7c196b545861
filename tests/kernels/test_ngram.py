# SPDX-License-Identifier: Apache-2.0
"""Drafts from a request's own tokens, against plain Python and upstream's numba."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from ngram_rule import (
    alike,
    best_lengths,
    cell_of,
    continuation,
    suffix_ends,
    suffix_match,
)
from oracle import Arena

from vllm_kunlun import ops

ops.load()
OPS = torch.ops.vllm_kunlun
PARAMETERS: dict[str, float] = {
    "decay": 0.875,
    "pool_decay": 0.97,
    "pool_weight": 2.0,
    "verify_cost": 0.03,
}
FREE_ROWS = 4


def as_int(values: Sequence[int]) -> torch.Tensor:
    """Return `values` as the ops take them."""
    return torch.tensor(values, dtype=torch.int32)


@dataclass
class Slot:
    """A state row as plain Python knows it."""

    tokens: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    found: tuple[int, int] = (0, -1)
    trial: list[int] = field(default_factory=list)
    start: int = 0
    compared: int = 0
    trial_found: tuple[int, int] = (0, -1)


class Machine:
    """The request state of a runner, both ops on it, and plain Python beside it."""

    def __init__(
        self, *, slots: int = 3, steps: int = 3, low: int = 1, high: int = 3,
        max_model_len: int = 24, indexed: bool = True, free_rows: int = FREE_ROWS,
    ) -> None:  # fmt: skip
        self.free_rows = free_rows
        self.low, self.high, self.steps = low, high, steps
        self.max_model_len, self.indexed = max_model_len, indexed
        lens = high - low + 1
        a = self.arena = Arena()
        self.draft_tokens = a.tensor("drafts", torch.zeros(slots, steps), torch.int64)
        self.num_drafts = a.tensor("num_drafts", torch.full((slots,), 99))
        self.found = a.tensor("found", torch.full((slots, 2), 99))
        # Whatever was there before: a request's begin clears it.
        size = max_model_len + 1
        self.index = a.tensor("index", torch.full((slots, lens, size, 2), 7))
        self.indexed_len = a.tensor("indexed_len", torch.full((slots,), 5))
        self.tokens = a.tensor("tokens", torch.full((slots, max_model_len), -9))
        self.total_len = a.tensor("total_len", torch.zeros(slots))
        self.prefill_len = a.tensor("prefill_len", torch.zeros(slots))
        self.trials = a.tensor("trials", torch.full((slots, 5 + steps), 3))
        counts = torch.tensor([5.0, 2.0])
        own, pool = counts.expand(slots, 3, 2), counts.expand(7, 3, 2)
        self.own = a.tensor("own", own, torch.float32)
        self.pool = a.tensor("pool", pool, torch.float32)
        self.chance = a.tensor("chance", torch.zeros(slots, steps), torch.float32)
        self.np_own, self.np_pool = own.numpy().copy(), pool.numpy().copy()
        self.slots = [Slot() for _ in range(slots)]

    def step(self, outcome: dict[int, tuple[bool, list[int], int]]) -> None:
        """Run a step and compare.

        Args:
            outcome: by slot, whether a request begins there, its new tokens (of the
                prompt and one more where it begins), and how many tokens the step
                computed beyond those it needed (rejected drafts).
        """
        sampled, query, seq = [], [], []
        for slot, (begins, new, rejected) in outcome.items():
            state = self.slots[slot]
            if begins:
                self.slots[slot] = state = Slot()
                self.prefill_len[slot] = len(new) - 1 if new else self.max_model_len
            state.tokens += new
            self.tokens[slot, : len(state.tokens)] = torch.tensor(state.tokens)
            self.total_len[slot] = len(state.tokens)
            sampled.append((1 if begins else len(new)) if new else 0)
            computed = len(state.tokens) - 1 + rejected
            query.append(computed if begins else len(new) + rejected)
            seq.append(computed)
        self.launch(list(outcome), sampled, query, seq)
        self.expect(list(outcome), sampled, [outcome[s][0] for s in outcome])

    def launch(
        self, slots: list[int], sampled: list[int], query: list[int], seq: list[int]
    ) -> None:
        """Launch both ops as the speculator does."""
        starts = as_int([0, *np.cumsum(query).tolist()])
        step = (
            as_int(slots), starts, as_int(seq), self.prefill_len, as_int(sampled),
            self.tokens, self.total_len,
        )  # fmt: skip
        OPS.ngram_draft(
            self.draft_tokens, self.num_drafts, self.found,
            self.index if self.indexed else None,
            self.indexed_len if self.indexed else None,
            *step, self.low, self.high, self.max_model_len,
        )  # fmt: skip
        self.drafted = self.num_drafts[slots].tolist()
        OPS.adapt_draft_length(
            self.num_drafts, self.trials, self.own, self.pool, self.chance,
            self.draft_tokens, self.found, *step, *PARAMETERS.values(),
            self.free_rows,
        )  # fmt: skip

    def expect(self, slots: list[int], sampled: list[int], begins: list[bool]) -> None:
        """Do in plain Python what the ops have done, and compare."""
        chances: dict[int, list[float]] = {}
        for slot, n, begun, drafted in zip(
            slots, sampled, begins, self.drafted, strict=True
        ):
            state = self.slots[slot]
            if n == 0:
                assert drafted == 0 == self.num_drafts[slot]
                assert self.found[slot].tolist() == [0, -1]
                continue
            room = max(0, self.max_model_len - len(state.tokens) - 1)
            match, end, other = suffix_match(state.tokens, self.low, self.high)
            count = min(room, self.steps) if match else 0
            state.drafts = continuation(state.tokens, end, count)
            others = continuation(state.tokens, other, count)
            agreed = alike(state.drafts, others) if end != other else -1
            state.found = (match, agreed) if count else (0, -1)
            assert tuple(self.found[slot].tolist()) == state.found
            assert drafted == count
            assert self.draft_tokens[slot, :count].tolist() == state.drafts
            self.learn(slot, begun)
            chances[slot] = self.chances(slot)
        lengths = best_lengths(chances, PARAMETERS["verify_cost"], self.free_rows)
        assert {slot: self.num_drafts[slot] for slot in lengths} == lengths
        np.testing.assert_array_equal(self.own.numpy(), self.np_own)
        np.testing.assert_array_equal(self.pool.numpy(), self.np_pool)

    def learn(self, slot: int, begun: bool) -> None:
        """Compare the trial with what came."""
        state = self.slots[slot]
        if begun:
            self.np_own[slot] = 0
        came = state.tokens[state.start :]
        while state.compared < min(len(state.trial), len(came)):
            right = came[state.compared] == state.trial[state.compared]
            cell = cell_of(state.trial_found, state.compared)
            new = np.array([1, right], np.float32)
            for counts, decay in (
                (self.np_own[slot, cell[1]], "decay"),
                (self.np_pool[cell], "pool_decay"),
            ):
                counts[:] = np.float32(PARAMETERS[decay]) * counts + new
            state.compared = state.compared + 1 if right else len(state.trial)
        if state.compared >= len(state.trial) and state.drafts:
            state.trial, state.compared = list(state.drafts), 0
            state.start, state.trial_found = len(state.tokens), state.found

    def chances(self, slot: int) -> list[float]:
        """Return the chance that each draft is accepted."""
        state = self.slots[slot]
        result, product = [], np.float32(1)
        weight = np.float32(PARAMETERS["pool_weight"])
        for k in range(len(state.drafts)):
            cell = cell_of(state.found, k)
            tried, right = self.np_pool[cell]
            own_tried, own_right = self.np_own[slot, cell[1]]
            hits = own_right + weight * (right / tried)
            product = product * (hits / (own_tried + weight))
            result.append(float(product))
        return result


TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=6)
OUTCOMES = st.dictionaries(
    st.integers(0, 2),
    st.tuples(st.booleans(), st.one_of(TOKENS, st.just([])), st.integers(0, 3)),
    min_size=1,
)
Plan = list[dict[int, tuple[bool, list[int], int]]]


def possible(machine: Machine, plan: Plan) -> Plan:
    """Cut `plan` to what a scheduler may ask for."""
    result: Plan = []
    lengths = dict.fromkeys(range(3), 0)
    for outcome in plan:
        kept = {}
        for slot, (begins, new, rejected) in outcome.items():
            fresh = begins or lengths[slot] == 0
            tokens = ([0, *new] if new else []) if fresh else new[: machine.steps + 1]
            if not fresh and (not tokens or machine.slots is None):
                continue
            before = 0 if fresh else lengths[slot]
            if before + len(tokens) > machine.max_model_len:
                continue
            lengths[slot] = before + len(tokens)
            kept[slot] = (fresh, tokens, 0 if fresh else rejected)
        if kept:
            result.append(kept)
    return result


@given(
    plan=st.lists(OUTCOMES, max_size=8),
    low=st.integers(1, 2),
    more=st.integers(0, 2),
    steps=st.integers(1, 4),
    indexed=st.booleans(),
    free_rows=st.integers(0, 12),
)
@example([{0: (True, [1, 2, 0, 1, 2], 0)}, {0: (False, [0, 1], 1)}], 1, 2, 3, True, 0)
@example([{0: (True, [0] * 6, 0)}, {0: (False, [0, 0, 0], 0)}] * 2, 2, 0, 4, True, 8)
@example([{1: (True, [], 0)}, {1: (True, [1], 0)}], 1, 0, 1, False, 4)
def test_drafts(
    plan: Plan, low: int, more: int, steps: int, indexed: bool, free_rows: int
) -> None:
    """Whatever comes, drafts, evidence and lengths are those of plain Python."""
    machine = Machine(
        low=low, high=low + more, steps=steps, indexed=indexed, free_rows=free_rows
    )
    guards = {n: b.clone() for n, b in machine.arena.buffers.items()}
    for outcome in possible(machine, plan):
        machine.step(outcome)
    for name, buffer in machine.arena.buffers.items():
        assert torch.equal(buffer[:64], guards[name][:64]), name
        assert torch.equal(buffer[-64:], guards[name][-64:]), name


@given(
    tokens=st.lists(st.integers(0, 3), min_size=2, max_size=40),
    low=st.integers(1, 3),
    more=st.integers(0, 3),
    k=st.integers(1, 5),
)
def test_upstream(tokens: list[int], low: int, more: int, k: int) -> None:
    """Upstream's proposer drafts the same where the first occurrence is taken.

    It always is by upstream, by ours unless the last one agrees on more tokens;
    upstream stops at the last token, ours goes on with the drafts.
    """
    from vllm.v1.spec_decode import ngram_proposer

    high = low + more
    theirs = ngram_proposer._find_longest_matched_ngram_and_propose_tokens(
        np.array(tokens, np.int32), low, high, 64, k
    ).tolist()
    machine = Machine(slots=1, steps=k, low=low, high=high, max_model_len=64)
    machine.step({0: (True, tokens, 0)})
    ours = machine.draft_tokens[0, : machine.drafted[0]].tolist()
    _, ends = suffix_ends(tokens, low, high)
    assert bool(ours) == bool(theirs) == bool(ends)
    if ends:
        assert theirs == tokens[ends[0] : ends[0] + k]
        _, end, _ = suffix_match(tokens, low, high)
        assert ours == continuation(tokens, end, k)
        if end == ends[0]:
            assert ours[: len(theirs)] == theirs


def test_which_occurrence() -> None:
    """The first one, unless the last one follows more of the same tokens."""
    for text, expected in (
        ([1, 2, 3, 9, 1, 2, 4, 8, 1, 2], [3, 9, 1]),  # both agree on 1, 2 alone
        ([7, 1, 2, 3, 5, 1, 2, 4, 6, 5, 1, 2], [4, 6, 5]),  # the last one on 5, 1, 2
        ([5, 1, 2, 3, 7, 1, 2, 4, 6, 5, 1, 2], [3, 7, 1]),  # the first one
    ):
        for indexed in (True, False):
            machine = Machine(slots=1, low=2, high=2, indexed=indexed)
            machine.step({0: (True, text, 0)})
            assert machine.draft_tokens[0].tolist() == expected


def test_free_rows_are_filled() -> None:
    """However unlikely a draft is, in a row that costs nothing it is verified."""
    for free_rows, expected in ((0, 0), (1, 0), (3, 2), (9, 3)):
        machine = Machine(slots=1, free_rows=free_rows)
        machine.pool[..., 1] = machine.pool[..., 0] * 0.01
        machine.np_pool[:] = machine.pool.numpy()
        machine.step({0: (True, [1, 2, 3, 1, 2], 0)})
        assert machine.num_drafts.tolist() == [expected]


def test_length_limit() -> None:
    """The last draft leaves room for one token after it."""
    for total, expected in ((20, 3), (21, 2), (22, 1), (23, 0), (24, 0)):
        machine = Machine(slots=1)
        machine.step({0: (True, [1] * total, 0)})
        assert machine.drafted == [expected]


def test_long_history_costs_no_more() -> None:
    """A new token is entered and looked up in constant time."""
    cost = {}
    for length in (1_000, 64_000):
        machine = Machine(slots=1, steps=7, low=2, high=4, max_model_len=70_000)
        generator = torch.Generator().manual_seed(0)
        text = torch.randint(500, (length + 300,), generator=generator)
        machine.tokens[0, : length + 300] = text
        machine.prefill_len[0] = length
        machine.total_len[0] = length + 1
        machine.launch([0], [1], [length], [length])
        times = []
        for total in range(length + 2, length + 300):
            machine.total_len[0] = total
            started = time.perf_counter()
            machine.launch([0], [1], [1], [total - 1])
            times.append(time.perf_counter() - started)
        cost[length] = float(np.median(times))
    assert cost[64_000] < 5 * cost[1_000]


def arguments() -> dict[str, Any]:
    """Return valid arguments of `ngram_draft`."""
    machine = Machine()
    machine.total_len.fill_(2)
    return {
        "draft_tokens": machine.draft_tokens,
        "num_drafts": machine.num_drafts,
        "found": machine.found,
        "index": machine.index,
        "indexed_len": machine.indexed_len,
        "idx_mapping": as_int([2, 0]),
        "query_start_loc": as_int([0, 2, 4]),
        "seq_lens": as_int([2, 2]),
        "prefill_len": torch.full((3,), 2, dtype=torch.int32),
        "num_sampled": as_int([1, 1]),
        "all_token_ids": machine.tokens,
        "total_len": machine.total_len,
        "min_len": 1,
        "max_len": 3,
        "max_model_len": 24,
    }


def length_arguments() -> dict[str, Any]:
    """Return valid arguments of `adapt_draft_length`."""
    machine = Machine()
    step = arguments()
    machine.num_drafts.zero_()
    names = ("idx_mapping", "query_start_loc", "seq_lens", "prefill_len", "num_sampled")
    return {
        "num_drafts": machine.num_drafts,
        "trials": machine.trials,
        "own": machine.own,
        "pool": machine.pool,
        "chance": machine.chance,
        "draft_tokens": machine.draft_tokens,
        "found": machine.found,
        **{name: step[name] for name in names},
        "all_token_ids": machine.tokens,
        "total_len": step["total_len"],
        **PARAMETERS,
        "free_rows": FREE_ROWS,
    }


def test_opcheck() -> None:
    """The ops keep PyTorch's rules."""
    tests = ("test_schema", "test_faketensor")
    for op, given_arguments in (
        (OPS.ngram_draft, arguments()),
        (OPS.adapt_draft_length, length_arguments()),
    ):
        torch.library.opcheck(op, tuple(given_arguments.values()), test_utils=tests)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("min_len", 0, r"min_len must be in \[1, 65\), but is 0"),
        ("max_len", 65, r"max_len must be in \[1, 65\), but is 65"),
        ("max_model_len", 25, "all_token_ids must be of at least 25 columns"),
        (
            "index",
            torch.zeros(3, 3, 24, 2, dtype=torch.int32),
            r"index.size\(2\) must be at least 25, but is 24",
        ),
        (
            "index",
            torch.zeros(3, 3, 50, dtype=torch.int32),
            "index must be of 4 dimensions, but is of 3",
        ),
        ("indexed_len", None, "indexed_len must be given with index, but is None"),
        (
            "idx_mapping",
            torch.tensor([0, 3], dtype=torch.int32),
            r"idx_mapping\[1\] must be in \[0, 3\), but is 3",
        ),
        (
            "total_len",
            torch.full((3,), 25, dtype=torch.int32),
            r"total_len\[2\] must be in \[1, 25\), but is 25",
        ),
        ("num_drafts", torch.zeros(3), "num_drafts must be Int, but is Float"),
    ],
)
def test_bad_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    with pytest.raises(ValueError, match=f"ngram_draft: {message}"):
        OPS.ngram_draft(**{**arguments(), argument: value})


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        (
            "trials",
            torch.zeros(23, dtype=torch.int32),
            "trials must be of at least 24 elements, but is of 23",
        ),
        (
            "num_drafts",
            torch.tensor([0, 0, 4], dtype=torch.int32),
            r"num_drafts\[2\] must be in \[0, 4\), but is 4",
        ),
    ],
)
def test_bad_length_argument(argument: str, value: object, message: str) -> None:
    """So it is by the other op."""
    with pytest.raises(ValueError, match=f"adapt_draft_length: {message}"):
        OPS.adapt_draft_length(**{**length_arguments(), argument: value})
