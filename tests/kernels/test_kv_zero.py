# SPDX-License-Identifier: Apache-2.0
"""Zeroing of KV-cache blocks against upstream's kernel."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, compare, opcheck


@dataclass(frozen=True)
class Zero:
    """What decides a zero_kv_blocks case."""

    page_size: int
    blocks: int
    chosen: int
    segments: tuple[int, ...] = (1,)
    """Segments of each buffer: 2 where keys and values have one each."""
    spare_programs: int = 0
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        segments = []
        for i, parts in enumerate(self.segments):
            shape = (parts, self.blocks, self.page_size)
            values = torch.randint(1, 1000, shape, generator=g)
            segments += list(arena.tensor(f"cache{i}", values))
        ids = torch.randperm(self.blocks, generator=g)[: self.chosen]
        # As upstream's caller does: the largest power of 2 that divides the page.
        block_size = min(self.page_size & -self.page_size, 1024)
        programs = len(ids) * len(segments) * (self.page_size // block_size)
        arguments = {
            "seg_addrs_ptr": arena.addresses(segments),
            "block_ids_ptr": arena.tensor("ids", ids, torch.int64),
            "n_blocks": len(ids),
            "N_SEGS": len(segments),
            "PAGE_SIZE_EL": self.page_size,
            "BLOCK_SIZE": block_size,
        }
        grid = (programs + self.spare_programs,)
        return Case(
            "vllm.v1.worker.utils", "_zero_kv_blocks_kernel", grid, arguments, arena
        )


@st.composite
def zeros(draw: st.DrawFn) -> Zero:
    """Draw a case."""
    blocks = draw(st.integers(1, 4))
    return Zero(
        page_size=draw(st.sampled_from([1, 3, 8, 12, 96])),
        blocks=blocks,
        chosen=draw(st.integers(0, blocks)),
        segments=tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=2))),
        spare_programs=draw(st.integers(0, 3)),
        seed=draw(st.integers(0, 2**31)),
    )


TWO = Zero(12, blocks=5, chosen=2, segments=(2, 1))


@given(zeros())
@example(TWO)
@example(Zero(3072, blocks=3, chosen=2, segments=(2,)))
@example(Zero(1024, blocks=2, chosen=2, segments=(1, 1), spare_programs=2))
@example(Zero(8, blocks=3, chosen=0))
@example(Zero(8, blocks=3, chosen=0, spare_programs=1))
def test_zero_kv_blocks(case: Zero) -> None:
    """The chosen blocks are 0 in every segment, and the others stay."""
    compare(case.make)


def test_opcheck() -> None:
    """The op keeps PyTorch's rules."""
    opcheck(TWO.make())


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("N_SEGS", 4, "seg_addrs_ptr must be of at least 4 elements, but is of 3"),
        ("n_blocks", 3, "block_ids_ptr must be of at least 3 elements, but is of 2"),
        ("n_blocks", -1, "n_blocks must be at least 0, but is -1"),
        ("PAGE_SIZE_EL", 13, "PAGE_SIZE_EL must be a multiple of BLOCK_SIZE 4, but is"),
        (
            "seg_addrs_ptr",
            torch.zeros(3, dtype=torch.int64),
            "seg_addrs_ptr must be UInt64, but is Long",
        ),
        (
            "block_ids_ptr",
            torch.tensor([0, -2]),
            r"block_ids_ptr\[1\] must be at least 0, but is -2",
        ),
    ],
)
def test_bad_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = TWO.make().replace(argument, value)
    with pytest.raises(ValueError, match=f"zero_kv_blocks: {message}"):
        case.run_ours()
