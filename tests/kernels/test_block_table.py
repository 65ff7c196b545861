# SPDX-License-Identifier: Apache-2.0
"""Block tables and slot mappings against upstream's kernels."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, compare, opcheck


@dataclass(frozen=True)
class Gather:
    """What decides a gather_block_tables case."""

    strides: tuple[int, ...]
    max_num_reqs: int
    num_reqs: int
    padding: int
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        rows = self.num_reqs + self.padding
        source, target = [], []
        for i, stride in enumerate(self.strides):
            ids = torch.randint(1000, (self.max_num_reqs, stride), generator=g)
            source.append(arena.tensor(f"source{i}", ids))
            target.append(arena.blank(f"target{i}", (rows + 1, stride)))
        shape = (self.max_num_reqs,)
        num_blocks = torch.stack(
            [torch.randint(s + 1, shape, generator=g) for s in self.strides]
        )
        num_blocks = arena.tensor("num_blocks", num_blocks)
        order = torch.randperm(self.max_num_reqs, generator=g)[: self.num_reqs]
        arguments = {
            "batch_idx_to_req_idx": arena.tensor("order", order),
            "src_block_table_ptrs": arena.addresses(source),
            "dst_block_table_ptrs": arena.addresses(target),
            "block_table_strides": torch.tensor(self.strides),
            "num_blocks_ptr": num_blocks,
            "num_blocks_stride": num_blocks.stride(0),
            "num_reqs": self.num_reqs,
            "BLOCK_SIZE": 1024,
        }
        grid = (len(self.strides), rows)
        return Case(
            "block_table", "_gather_block_tables_kernel", grid, arguments, arena
        )


@st.composite
def gathers(draw: st.DrawFn) -> Gather:
    """Draw a case."""
    max_num_reqs = draw(st.integers(1, 8))
    return Gather(
        strides=tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))),
        max_num_reqs=max_num_reqs,
        num_reqs=draw(st.integers(0, max_num_reqs)),
        padding=draw(st.integers(0, 3)),
        seed=draw(st.integers(0, 2**31)),
    )


@given(gathers())
@example(Gather((1030,), 2, 2, 1))
@example(Gather((5, 2049), 3, 0, 3))
@example(Gather((4,), 1, 0, 0))
@example(Gather((7, 3, 16), 8, 8, 0))
def test_gather_block_tables(case: Gather) -> None:
    """Rows are copied, padding rows zeroed, and stale ids stay."""
    compare(case.make)


@dataclass(frozen=True)
class Slots:
    """What decides a compute_slot_mappings case."""

    block_sizes: tuple[int, ...]
    query_lens: tuple[int, ...]
    spare_tokens: int
    computed: tuple[int, ...]
    cp_size: int = 1
    cp_rank: int = 0
    cp_interleave: int = 1
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        lens = torch.tensor(self.query_lens, dtype=torch.int64)
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), lens.cumsum(0)])
        pos = [
            torch.arange(n) + c
            for n, c in zip(self.query_lens, self.computed, strict=True)
        ]
        longest = max([0, *(int(p[-1]) for p in pos if len(p))])
        max_num_reqs = len(self.query_lens) + 1
        tables, strides = [], []
        for i, size in enumerate(self.block_sizes):
            strides.append(longest // (size * self.cp_size) + 1)
            ids = torch.randint(2000, (max_num_reqs, strides[-1]), generator=g)
            tables.append(arena.tensor(f"table{i}", ids))
        max_num_tokens = int(starts[-1]) + self.spare_tokens
        shape = (len(tables), max_num_tokens + 3)
        slots = arena.blank("slots", shape, torch.int64)
        order = torch.randperm(max_num_reqs, generator=g)[: len(self.query_lens)]
        positions = torch.cat([torch.empty(0, dtype=torch.int64), *pos])
        arguments = {
            "max_num_tokens": max_num_tokens,
            "idx_mapping": arena.tensor("order", order),
            "query_start_loc": arena.tensor("starts", starts),
            "pos": arena.tensor("pos", positions, torch.int64),
            "block_table_ptrs": arena.addresses(tables),
            "block_table_strides": torch.tensor(strides),
            "block_sizes": arena.tensor("sizes", self.block_sizes),
            "slot_mappings_ptr": slots,
            "slot_mappings_stride": slots.stride(0),
            "cp_rank": self.cp_rank,
            "CP_SIZE": self.cp_size,
            "CP_INTERLEAVE": self.cp_interleave,
            "PAD_ID": -1,
            "TRITON_BLOCK_SIZE": 1024,
        }
        grid = (len(tables), len(self.query_lens) + 1)
        return Case(
            "block_table", "_compute_slot_mappings_kernel", grid, arguments, arena
        )


@st.composite
def slot_mappings(draw: st.DrawFn) -> Slots:
    """Draw a case."""
    query_lens = draw(st.lists(st.integers(0, 20), max_size=6))
    cp_size = draw(st.sampled_from([1, 1, 2, 4]))
    interleave = draw(st.sampled_from([1, 2, 4]))
    size = st.sampled_from([4, 12, 16, 64])
    return Slots(
        block_sizes=tuple(draw(st.lists(size, min_size=1, max_size=3))),
        query_lens=tuple(query_lens),
        spare_tokens=draw(st.integers(0, 9)),
        computed=tuple(draw(st.integers(0, 300)) for _ in query_lens),
        cp_size=cp_size,
        cp_rank=draw(st.integers(0, cp_size - 1)),
        cp_interleave=interleave,
        seed=draw(st.integers(0, 2**31)),
    )


@given(slot_mappings())
@example(Slots((16,), (), 5, ()))
@example(Slots((16, 128), (1,), 0, (0,)))
@example(Slots((16,), (1030, 1), 1100, (7, 2000)))
@example(Slots((4,), (9, 1), 2, (0, 40), cp_size=2, cp_rank=1, cp_interleave=4))
def test_compute_slot_mappings(case: Slots) -> None:
    """Each token gets its slot, and the rest of the buffer the padding."""
    compare(case.make)


@pytest.mark.parametrize(
    "case", [Gather((4, 9), 3, 2, 2), Slots((16, 8), (3, 1), 4, (0, 9))]
)
def test_opcheck(case: Gather | Slots) -> None:
    """The op keeps PyTorch's rules."""
    opcheck(case.make())


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("CP_SIZE", 0, "CP_SIZE must be at least 1, but is 0"),
        ("max_num_tokens", 12, r"max_num_tokens must be in \[0, 12\), but is 12"),
        ("slot_mappings_stride", 5, "slot_mappings_ptr must be of row stride 5"),
        (
            "pos",
            torch.tensor([0, 1, 16, 9]),
            r"pos\[2\] must be in \[0, 16\), but is 16",
        ),
        (
            "query_start_loc",
            torch.tensor([0, 3, 2], dtype=torch.int32),
            r"query_start_loc\[2\] must be in \[3, 5\), but is 2",
        ),
    ],
)
def test_bad_slot_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = Slots((16,), (3, 1), 4, (0, 9)).make().replace(argument, value)
    with pytest.raises(ValueError, match=f"compute_slot_mappings: {message}"):
        case.run_ours()


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        (
            "batch_idx_to_req_idx",
            torch.zeros(2, dtype=torch.int64),
            "batch_idx_to_req_idx must be Int, but is Long",
        ),
        ("num_blocks_stride", 5, "of row stride 5 .* but is of row stride 3"),
        ("num_reqs", 7, "batch_idx_to_req_idx must be of at least 4 elements"),
        (
            "batch_idx_to_req_idx",
            torch.tensor([0, 3], dtype=torch.int32),
            r"batch_idx_to_req_idx\[1\] must be in \[0, 3\), but is 3",
        ),
    ],
)
def test_bad_gather_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = Gather((4,), 3, 2, 2).make().replace(argument, value)
    with pytest.raises(ValueError, match=f"gather_block_tables: .*{message}"):
        case.run_ours()
