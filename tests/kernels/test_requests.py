# SPDX-License-Identifier: Apache-2.0
"""Per-request bookkeeping against upstream's kernels."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, compare, opcheck

SEEDS = st.integers(0, 2**31)


@dataclass(frozen=True)
class Expand:
    """What decides an expand_idx_mapping case."""

    rows: tuple[int, ...]
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        ends = [0, *torch.tensor(self.rows, dtype=torch.int64).cumsum(0).tolist()]
        requests = torch.randperm(len(self.rows) + 3, generator=g)[: len(self.rows)]
        arguments = {
            "idx_mapping_ptr": arena.tensor("requests", requests),
            "expanded_idx_mapping_ptr": arena.blank("expanded", (ends[-1] + 2,)),
            "expanded_local_pos_ptr": arena.blank("local_pos", (ends[-1] + 2,)),
            "cu_num_logits_ptr": arena.tensor("ends", ends),
            "BLOCK_SIZE": 16,
        }
        return Case(
            "input_batch",
            "_expand_idx_mapping_kernel",
            (len(self.rows),),
            arguments,
            arena,
        )


@given(st.builds(Expand, st.lists(st.integers(0, 9), max_size=8).map(tuple), SEEDS))
@example(Expand(()))
@example(Expand((1,)))
@example(Expand((16, 0, 16)))
def test_expand_idx_mapping(case: Expand) -> None:
    """Each row of logits knows its request and its place there."""
    compare(case.make)


def test_opcheck_expand_idx_mapping() -> None:
    """The op keeps PyTorch's rules."""
    opcheck(Expand((2, 3)).make())


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        (
            "expanded_idx_mapping_ptr",
            torch.zeros(9, dtype=torch.int64),
            "expanded_idx_mapping_ptr must be Int, but is Long",
        ),
        (
            "expanded_local_pos_ptr",
            torch.zeros(6, dtype=torch.int32),
            "expanded_local_pos_ptr must be of at least 7 elements, but is of 6",
        ),
        (
            "cu_num_logits_ptr",
            torch.tensor([0, 2], dtype=torch.int32),
            "cu_num_logits_ptr must be of at least 3 elements, but is of 2",
        ),
        (
            "cu_num_logits_ptr",
            torch.tensor([0, 2, 8], dtype=torch.int32),
            r"cu_num_logits_ptr\[2\] must be in \[2, 8\), but is 8",
        ),
    ],
)
def test_bad_argument_expand_idx_mapping(
    argument: str, value: object, message: str
) -> None:
    """A bad argument is refused by op, name and value."""
    case = Expand((2, 3)).make().replace(argument, value)
    with pytest.raises(ValueError, match=f"expand_idx_mapping: {message}"):
        case.run_ours()
