# SPDX-License-Identifier: Apache-2.0
"""Block tables brought up to date in one launch, against the single kernels."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena

from vllm_kunlun import ops

ops.load()
kunlun = torch.ops.vllm_kunlun

ROWS = 8
"""Requests that the state has room for, where nothing else is said."""
I64 = torch.int64


@dataclass(frozen=True)
class Request:
    """A request of a step."""

    row: int
    """Of the state."""
    new_blocks: int
    num_tokens: int
    fresh: bool = False
    """Whether it is new in its row."""


@dataclass(frozen=True)
class Step:
    """What one launch is for."""

    requests: tuple[Request, ...]
    padding: int = 0
    others: tuple[Request, ...] = ()
    """Not in the batch, but with new blocks."""


@dataclass(frozen=True)
class Tables:
    """Block tables of some groups, and the steps that they go through."""

    steps: tuple[Step, ...]
    widths: tuple[int, ...] = (12,)
    """Of the groups' tables, in blocks."""
    block_sizes: tuple[int, ...] = (4,)
    cp_size: int = 1
    cp_rank: int = 0
    cp_interleave: int = 1
    max_num_tokens: int = 64
    rows: int = ROWS
    seed: int = 0


class Memory:
    """The tensors of block tables, before a first step."""

    def __init__(self, case: Tables) -> None:
        self.case = case
        self.arena = arena = Arena()
        shapes = [(case.rows, width) for width in case.widths]
        self.tables = [arena.blank(f"table {g}", s) for g, s in enumerate(shapes)]
        self.batch = [arena.blank(f"batch {g}", s) for g, s in enumerate(shapes)]
        # Nobody knows what is in a row of no request.
        for table in self.tables:
            table.fill_(77)
        groups = len(shapes)
        slots_shape = (groups, case.max_num_tokens)
        self.slots = arena.blank("slots", slots_shape, I64)
        self.num_blocks = torch.zeros(groups, case.rows, dtype=torch.int32)
        self.strides = torch.tensor(case.widths)
        self.sizes = torch.tensor(case.block_sizes, dtype=torch.int32)
        # The fused launch has these for itself.
        self.kept_req = torch.full((groups, case.rows), -1, dtype=torch.int32)
        self.kept_blocks = torch.zeros(groups, case.rows, dtype=torch.int32)
        self.random = torch.Generator().manual_seed(case.seed)

    def stage(self, step: Step) -> tuple[torch.Tensor | None, int]:
        """Draw the step's new blocks; return the staged writes and their number."""
        writes: list[tuple[int, int, int]] = []
        blocks: list[int] = []
        ends: list[int] = []
        for request in step.requests + step.others:
            for group, width in enumerate(self.case.widths):
                counts = self.num_blocks[group]
                start = 0 if request.fresh else int(counts[request.row])
                new = min(request.new_blocks, width - start)
                counts[request.row] = start + new
                if new == 0:
                    continue
                ids = torch.randint(1, 30_000, (new,), generator=self.random)
                blocks += ids.tolist()
                writes.append((group, request.row, start))
                ends.append(len(blocks))
        if not writes:
            return None, 0
        lists = [list(part) for part in zip(*writes, strict=True)]
        numbers = [n for part in [*lists, ends, blocks] for n in part]
        return torch.tensor(numbers, dtype=torch.int32), len(writes)

    def batch_of(self, step: Step) -> dict[str, torch.Tensor]:
        """Draw where the step's tokens stand."""
        held = [
            min(
                int(self.num_blocks[g, r.row]) * size * self.case.cp_size
                for g, size in enumerate(self.case.block_sizes)
            )
            for r in step.requests
        ]
        lengths = [
            r.num_tokens if room > 0 else 0
            for r, room in zip(step.requests, held, strict=True)
        ]
        positions = [
            torch.randint(room, (n,), generator=self.random).sort().values
            for n, room in zip(lengths, held, strict=True)
            if n > 0
        ]
        return {
            "idx_mapping": torch.tensor(
                [r.row for r in step.requests], dtype=torch.int32
            ),
            "query_start_loc": torch.tensor([0, *lengths]).cumsum(0).to(torch.int32),
            "positions": torch.cat([torch.empty(0, dtype=I64), *positions]),
        }


def run_fused(memory: Memory, step: Step, **replaced: Any) -> None:
    """Launch the fused op."""
    staged, num_writes = memory.stage(step)
    arena, case = memory.arena, memory.case
    call: dict[str, Any] = {
        "block_table_ptrs": arena.addresses(memory.tables),
        "input_block_table_ptrs": arena.addresses(memory.batch),
        "block_table_strides": memory.strides,
        "block_sizes": memory.sizes,
        "num_blocks": memory.num_blocks,
        "kept_req": memory.kept_req,
        "kept_blocks": memory.kept_blocks,
        "slot_mappings": memory.slots,
        **memory.batch_of(step),
        "staged": staged,
        "num_writes": num_writes,
        "num_reqs": len(step.requests),
        "num_reqs_padded": len(step.requests) + step.padding,
        "cp_size": case.cp_size,
        "cp_rank": case.cp_rank,
        "cp_interleave": case.cp_interleave,
        "pad_id": -1,
    }
    kunlun.prepare_block_tables(**{**call, **replaced})


def run_singly(memory: Memory, step: Step) -> None:
    """Launch the single kernels, and keep the account of what the rows show."""
    staged, n = memory.stage(step)
    arena, case = memory.arena, memory.case
    batch = memory.batch_of(step)
    tables = arena.addresses(memory.tables)
    groups, num_reqs = len(case.widths), len(step.requests)
    num_rows = num_reqs + step.padding
    if staged is not None:
        write_groups, rows, starts, ends = staged[: 4 * n].view(4, n)
        kunlun.apply_write.MULTI_GROUP(
            tables, memory.strides, rows, starts, staged[4 * n :], ends, write_groups, n
        )
        for group, row, start in zip(write_groups, rows, starts, strict=True):
            if start == 0:
                kept = memory.kept_req[group]
                kept[kept == row] = -1
    kunlun.gather_block_tables(
        batch["idx_mapping"],
        tables,
        arena.addresses(memory.batch),
        memory.strides,
        memory.num_blocks,
        case.rows,
        num_reqs,
        groups,
        num_rows,
    )
    kunlun.compute_slot_mappings(
        case.max_num_tokens,
        batch["idx_mapping"],
        batch["query_start_loc"],
        batch["positions"],
        tables,
        memory.strides,
        memory.sizes,
        memory.slots,
        case.max_num_tokens,
        case.cp_rank,
        case.cp_size,
        case.cp_interleave,
        -1,
        groups,
        num_reqs + 1,
    )
    memory.kept_req[:, :num_reqs] = batch["idx_mapping"]
    memory.kept_req[:, num_reqs:num_rows] = -1
    shown = memory.num_blocks[:, batch["idx_mapping"].long()]
    memory.kept_blocks[:, :num_reqs] = shown


def assert_same(case: Tables) -> None:
    """Go through the steps in both ways; compare all memory after each."""
    one, three = Memory(case), Memory(case)
    for step in case.steps:
        run_fused(one, step)
        run_singly(three, step)
        for name, expected in three.arena.buffers.items():
            assert torch.equal(expected, one.arena.buffers[name]), name
        assert torch.equal(one.kept_req, three.kept_req)
        assert torch.equal(one.kept_blocks, three.kept_blocks)


@st.composite
def cases(draw: st.DrawFn) -> Tables:
    """Draw requests that come, grow, move within the batch and leave."""
    request = st.builds(
        Request,
        row=st.integers(0, ROWS - 1),
        new_blocks=st.integers(0, 4),
        num_tokens=st.integers(0, 5),
        fresh=st.booleans(),
    )
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        requests = draw(st.lists(request, max_size=ROWS, unique_by=lambda r: r.row))
        in_batch = draw(st.integers(0, len(requests)))
        steps.append(
            Step(
                tuple(requests[:in_batch]),
                draw(st.integers(0, ROWS - in_batch)),
                tuple(requests[in_batch:]),
            )
        )
    groups = draw(st.integers(1, 3))
    cp_size = draw(st.sampled_from([1, 1, 2]))

    def each(strategy: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(strategy) for _ in range(groups))

    return Tables(
        tuple(steps),
        widths=each(st.integers(4, 12)),
        block_sizes=each(st.sampled_from([1, 4, 16])),
        cp_size=cp_size,
        cp_rank=draw(st.integers(0, cp_size - 1)),
        cp_interleave=draw(st.sampled_from([1, 2])),
        seed=draw(st.integers(0, 1000)),
    )


# A request that goes and comes back, while another has taken its row of the state.
BACK = (
    Step((Request(2, 3, 4, fresh=True), Request(5, 2, 1, fresh=True))),
    Step((Request(5, 1, 2),)),
    Step((Request(5, 0, 1),), others=(Request(2, 4, 0, fresh=True),)),
    Step((Request(2, 1, 3), Request(5, 1, 1)), padding=2),
)
# Another request in a row of the state that rows of the batch show, or showed.
ANEW = (
    Step((Request(2, 3, 1, fresh=True), Request(5, 4, 1, fresh=True))),
    Step((Request(2, 2, 1, fresh=True),), others=(Request(5, 3, 0, fresh=True),)),
    Step((Request(2, 0, 1), Request(5, 0, 1))),
)
# Rows longer than what is copied at a time, with the last write on top.
LONG = (
    Step((Request(1, 900, 300, fresh=True), Request(4, 20, 1, fresh=True))),
    Step((Request(4, 600, 500), Request(1, 0, 600))),
)
# More requests and more writes than are looked at at a time.
MANY = (
    Step(tuple(Request(row, 1, 1, fresh=True) for row in range(0, 150))),
    Step(tuple(Request(row, 1, 1) for row in range(139, -1, -1)), padding=3),
)


@given(cases())
@example(Tables((Step(()),)))
@example(Tables((Step((), padding=ROWS),), widths=(300, 4), block_sizes=(4, 16)))
@example(Tables(BACK, widths=(12, 9), block_sizes=(4, 16)))
@example(Tables(ANEW))
@example(Tables(MANY, max_num_tokens=160, rows=150))
@example(
    Tables(LONG, widths=(1000, 700), block_sizes=(16, 1), max_num_tokens=1200, seed=3)
)
def test_prepare_block_tables(case: Tables) -> None:
    """One launch leaves what three leave, whatever the rows showed before."""
    assert_same(case)


def test_only_new_blocks_are_copied() -> None:
    """A row that shows its request already keeps the blocks that it has."""
    memory = Memory(Tables((), widths=(12,)))
    run_fused(memory, Step((Request(3, 2, 1, fresh=True),)))
    shown = memory.tables[0][3, :2].clone()
    memory.tables[0][3, :2] = 9
    run_fused(memory, Step((Request(3, 1, 1),)))
    assert torch.equal(memory.batch[0][0, :2], shown)
    assert memory.batch[0][0, 2] == memory.tables[0][3, 2]


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("num_reqs_padded", 9, "kept_req must be of at least 9 columns"),
        ("staged", torch.zeros(3, dtype=torch.int32), "staged must be of at least 4"),
        ("staged", torch.zeros(8), "staged must be Int, but is Float"),
        (
            "staged",
            torch.tensor([0, 3, 11, 2, 5, 5], dtype=torch.int32),
            r"write_starts_ptr\[0\] must be in \[0, 11\), but is 11",
        ),
        ("cp_size", 0, "CP_SIZE must be at least 1, but is 0"),
    ],
)
def test_bad_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    memory = Memory(Tables(()))
    step = Step((Request(3, 2, 1, fresh=True),))
    replaced = {"num_writes": 1, argument: value}
    with pytest.raises(ValueError, match=f"prepare_block_tables: .*{message}"):
        run_fused(memory, step, **replaced)
