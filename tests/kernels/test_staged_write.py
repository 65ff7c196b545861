# SPDX-License-Identifier: Apache-2.0
"""Staged writes against upstream's kernel."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, compare, opcheck


@dataclass(frozen=True)
class Write:
    """One staged write: where it goes, and how long it is."""

    group: int
    row: int
    start: int
    length: int


@dataclass(frozen=True)
class Staged:
    """What decides an apply_write case."""

    rows: int
    widths: tuple[int, ...]
    writes: tuple[Write, ...]
    fused: bool = False
    dtype: torch.dtype = torch.int32

    def make(self) -> Case:
        """Build the launch."""
        arena = Arena()
        outputs = [
            arena.blank(f"output{i}", (self.rows, width), self.dtype)
            for i, width in enumerate(self.widths)
        ]
        lengths = torch.tensor([w.length for w in self.writes], dtype=torch.int32)
        contents = torch.arange(int(lengths.sum())) + 0.25
        group_ids = [w.group for w in self.writes]
        arguments = {
            "output_ptr": arena.addresses(outputs) if self.fused else outputs[0],
            "output_stride": (
                torch.tensor(self.widths) if self.fused else outputs[0].stride(0)
            ),
            "write_indices_ptr": arena.tensor("rows", [w.row for w in self.writes]),
            "write_starts_ptr": arena.tensor("starts", [w.start for w in self.writes]),
            "write_contents_ptr": arena.tensor("contents", contents, self.dtype),
            "write_cu_lens_ptr": arena.tensor("cu_lens", lengths.cumsum(0)),
            "write_group_ids_ptr": (
                arena.tensor("group_ids", group_ids) if self.fused else None
            ),
            "BLOCK_SIZE": 1024,
            "MULTI_GROUP": self.fused,
        }
        grid = (len(self.writes),)
        return Case("buffer_utils", "_apply_write_kernel", grid, arguments, arena)


@st.composite
def staged(draw: st.DrawFn) -> Staged:
    """Draw a case; several writes may hit one place, or be empty."""
    rows = draw(st.integers(1, 6))
    widths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=3))
    fused = draw(st.booleans())
    writes = []
    for _ in range(draw(st.integers(0, 8))):
        group = draw(st.integers(0, len(widths) - 1)) if fused else 0
        start = draw(st.integers(0, widths[group] - 1))
        length = draw(st.integers(0, widths[group] - start))
        writes.append(Write(group, draw(st.integers(0, rows - 1)), start, length))
    dtypes = [torch.int32] if fused else [torch.int32, torch.int64, torch.float32]
    dtype = draw(st.sampled_from(dtypes))
    return Staged(rows, tuple(widths), tuple(writes), fused, dtype)


WIDE = Staged(2, (3000,), (Write(0, 1, 5, 2049), Write(0, 0, 0, 3000)))
OVERLAP = Staged(2, (9,), (Write(0, 1, 0, 9), Write(0, 1, 4, 3), Write(0, 1, 5, 4)))
BEYOND_THE_ROW = Staged(3, (4,), (Write(0, 0, 2, 8),))
ONE_COLUMN = Staged(5, (1,), (Write(0, 4, 0, 1),), dtype=torch.float32)
GROUPS = Staged(
    3, (8, 2000), (Write(1, 2, 7, 1500), Write(0, 0, 0, 8), Write(1, 2, 0, 9)), True
)


@given(staged())
@example(WIDE)
@example(OVERLAP)
@example(BEYOND_THE_ROW)
@example(ONE_COLUMN)
@example(GROUPS)
@example(replace(GROUPS, writes=()))
def test_apply_write(case: Staged) -> None:
    """Contents land in their rows, and the last staged write wins."""
    compare(case.make)


def test_one_dimension() -> None:
    """State of one value per request is a vector, whose rows are its elements."""
    case = replace(ONE_COLUMN, writes=(Write(0, 4, 0, 1), Write(0, 1, 0, 1)))

    def make() -> Case:
        made = case.make()
        made.arguments["output_ptr"].squeeze_(1)
        return made

    compare(make)


@pytest.mark.parametrize("case", [WIDE, GROUPS], ids=["single", "fused"])
def test_opcheck(case: Staged) -> None:
    """The op keeps PyTorch's rules."""
    opcheck(case.make())


@pytest.mark.parametrize(
    ("case", "argument", "value", "message"),
    [
        (WIDE, "output_stride", 7, "output_ptr must be of row stride 7"),
        (
            WIDE,
            "write_contents_ptr",
            torch.zeros(5049),
            "write_contents_ptr must be Int, but is Float",
        ),
        (
            WIDE,
            "write_cu_lens_ptr",
            torch.tensor([9, 5050], dtype=torch.int32),
            r"write_cu_lens_ptr\[1\] must be in \[9, 5050\), but is 5050",
        ),
        (
            WIDE,
            "write_indices_ptr",
            torch.tensor([0, -1], dtype=torch.int32),
            r"write_indices_ptr\[1\] must be in \[0, 2\), but is -1",
        ),
        (
            GROUPS,
            "write_group_ids_ptr",
            torch.tensor([1, 2, 0], dtype=torch.int32),
            r"write_group_ids_ptr\[1\] must be in \[0, 2\), but is 2",
        ),
    ],
)
def test_bad_argument(case: Staged, argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    with pytest.raises(ValueError, match=f"apply_write: {message}"):
        case.make().replace(argument, value).run_ours()
