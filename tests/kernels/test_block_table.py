# SPDX-License-Identifier: Apache-2.0
"""Block tables and slot mappings against upstream's kernels."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, compare


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
def test_bad_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    good = Gather((4,), 3, 2, 2).make()
    case = Case(
        good.module,
        good.kernel,
        good.grid,
        {**good.arguments, argument: value},
        good.arena,
    )
    with pytest.raises(ValueError, match=f"gather_block_tables: .*{message}"):
        case.run_ours()
