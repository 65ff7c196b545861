# SPDX-License-Identifier: Apache-2.0
"""A step's fused control plane against upstream's, over made-up batches."""

from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import vllm.v1.worker.cpu.shm  # noqa: F401  (gives buffers in a CPU's memory)
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.worker.gpu.block_table import BlockTables
from vllm.v1.worker.gpu.states import RequestState

from vllm_kunlun import ops
from vllm_kunlun.step.packed import PackedArrays
from vllm_kunlun.step.plan import FusedPlanner, NumpyPlanner, Plan
from vllm_kunlun.step.tables import BatchedBlockTables

CPU = torch.device("cpu")
MAX_REQS = 9
BLOCKS = 24

pytestmark = pytest.mark.usefixtures("library")


@pytest.fixture(scope="module")
def library() -> None:
    """The compiled ops."""
    ops.load()


@dataclass(frozen=True)
class Scheduled:
    """What the scheduler asks of one request."""

    prefill_len: int
    computed: int
    num_tokens: int
    num_drafts: int
    is_new: bool


scheduled = st.builds(
    Scheduled,
    prefill_len=st.integers(1, 30),
    computed=st.integers(0, 30),
    num_tokens=st.integers(1, 9),
    num_drafts=st.integers(0, 8),
    is_new=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(
    requests=st.lists(scheduled, min_size=1, max_size=MAX_REQS),
    padding=st.integers(0, 3),
    num_new=st.integers(0, 1),
    rows=st.permutations(range(MAX_REQS)),
    first=st.integers(1, 9),
)
def test_plans_are_the_same(
    requests: list[Scheduled], padding: int, num_new: int, rows: list[int], first: int
) -> None:
    """One call of ours lays a batch out as upstream's Python does.

    It also does what upstream does before, to the counts of computed tokens.
    """
    states = RequestState(MAX_REQS, 64, 64, 8, 100, CPU)
    for i, request in enumerate(requests):
        states.req_id_to_index[f"r{i}"] = rows[i]
        states.prefill_len.np[rows[i]] = request.prefill_len
        states.num_computed_tokens_np[rows[i]] = request.computed
        states.num_computed_prefill_tokens[rows[i]] = min(
            request.computed, request.prefill_len
        )
    running = [(i, r) for i, r in enumerate(requests) if not r.is_new]
    output = SimpleNamespace(
        num_scheduled_tokens={f"r{i}": r.num_tokens for i, r in enumerate(requests)},
        scheduled_spec_decode_tokens={
            f"r{i}": [-1] * r.num_drafts
            for i, r in enumerate(requests)
            if r.num_drafts > 0
        },
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[f"r{i}" for i, r in running],
            num_computed_tokens=[r.computed for _, r in running],
        ),
    )
    padded = min(len(requests) + padding, MAX_REQS)
    counts = (states.num_computed_tokens_np, states.num_computed_prefill_tokens)
    up_to_date = [count.copy() for count in counts]
    plans = []
    for planner in (NumpyPlanner, FusedPlanner):
        plan = planner(states, PackedArrays(MAX_REQS, CPU))
        plans.append(plan(output, padded, num_new, first))
        for count, expected in zip(counts, up_to_date, strict=True):
            np.testing.assert_array_equal(count, expected)
        # What the second one is to bring up to date.
        states.num_computed_tokens_np[[rows[i] for i, _ in running]] = 77
        states.num_computed_prefill_tokens[rows[: len(requests)]] = 99
    for f in fields(Plan):
        expected, found = (getattr(plan, f.name) for plan in plans)
        np.testing.assert_array_equal(found, expected, err_msg=f.name)


@dataclass(frozen=True)
class Step:
    """A step's batch as (request row, new blocks, new tokens), and its padding."""

    requests: list[tuple[int, int, int]]
    padding: int
    fresh: set[int] = field(default_factory=set)


steps = st.builds(
    Step,
    requests=st.lists(
        st.tuples(st.integers(0, MAX_REQS - 1), st.integers(0, 3), st.integers(1, 4)),
        min_size=1,
        max_size=MAX_REQS,
        unique_by=lambda request: request[0],
    ),
    padding=st.integers(0, 3),
    fresh=st.sets(st.integers(0, MAX_REQS - 1)),
)


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(steps, min_size=1, max_size=6),
    kernel_blocks=st.lists(st.sampled_from([1, 2]), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
)
def test_block_tables_are_the_same(
    steps: list[Step], kernel_blocks: list[int], seed: int
) -> None:
    """Requests come, grow, move within the batch and leave; both ways agree."""
    sizes: dict[str, Any] = {
        "block_sizes": [4 * k for k in kernel_blocks],
        "kernel_block_sizes": [4] * len(kernel_blocks),
        "max_num_reqs": MAX_REQS,
        "max_num_batched_tokens": 64,
        "max_num_blocks_per_group": [BLOCKS] * len(kernel_blocks),
        "device": CPU,
    }
    theirs, ours = BlockTables(**sizes), BatchedBlockTables(**sizes)
    packed = PackedArrays(MAX_REQS, CPU)
    random = np.random.default_rng(seed)
    num_blocks = np.zeros((MAX_REQS,), int)
    for step in steps:
        for row, new, _ in step.requests:
            overwrite = row in step.fresh or num_blocks[row] == 0
            held = 0 if overwrite else num_blocks[row]
            new = min(max(new, 1 if held == 0 else 0), BLOCKS - held)
            if overwrite or new > 0:
                ids = tuple(random.integers(1, 99, new).tolist() for _ in kernel_blocks)
                theirs.append_block_ids(row, ids, overwrite)
                ours.append_block_ids(row, ids, overwrite)
                num_blocks[row] = held + new
        rows = torch.tensor([row for row, _, _ in step.requests], dtype=torch.int32)
        lengths = [0, *(tokens for _, _, tokens in step.requests)]
        query_start_loc = torch.tensor(lengths).cumsum(0).to(torch.int32)
        positions = torch.cat(
            [
                torch.from_numpy(random.integers(0, 4 * num_blocks[row], tokens))
                for row, _, tokens in step.requests
            ]
        )
        padded = min(len(step.requests) + step.padding, MAX_REQS)
        theirs.apply_staged_writes()
        expected = theirs.gather_block_tables(rows, padded)
        slots = theirs.compute_slot_mappings(rows, query_start_loc, positions, 64)
        packed.next_host()
        ours.apply_staged_writes()
        ours.staged = packed.send(ours.take_staged())
        batch: Any = SimpleNamespace(
            idx_mapping=rows,
            query_start_loc=query_start_loc,
            positions=positions,
            num_reqs=len(rows),
            num_reqs_after_padding=padded,
            num_tokens_after_padding=64,
        )
        found, our_slots = ours.prepare(batch)
        for group, (table, our_table) in enumerate(zip(expected, found, strict=True)):
            for i, row in enumerate(rows.tolist()):
                n = theirs.num_blocks.np[group, row]
                assert torch.equal(our_table[i, :n], table[i, :n])
            assert torch.equal(our_table[len(rows) :], table[len(rows) :])
        assert torch.equal(our_slots, slots)
