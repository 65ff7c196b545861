# SPDX-License-Identifier: Apache-2.0
"""Per-request bookkeeping against upstream's kernels."""

from collections.abc import Callable
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


@dataclass(frozen=True)
class Computed:
    """What decides a post_update_num_computed_tokens case."""

    rows: tuple[int, ...]
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        states = len(self.rows) + 2
        starts = [3, *(torch.tensor(self.rows, dtype=torch.int64).cumsum(0) + 3)]
        requests = torch.randperm(states, generator=g)[: len(self.rows)]
        computed = torch.randint(1000, (states,), generator=g)
        arguments = {
            "idx_mapping_ptr": arena.tensor("requests", requests),
            "num_computed_tokens_ptr": arena.tensor("computed", computed),
            "query_start_loc_ptr": arena.tensor("starts", [int(s) for s in starts]),
        }
        kernel = "_post_update_num_computed_tokens_kernel"
        return Case("input_batch", kernel, (len(self.rows),), arguments, arena)


@given(st.builds(Computed, st.lists(st.integers(0, 99), max_size=8).map(tuple), SEEDS))
@example(Computed(()))
@example(Computed((1,)))
def test_post_update_num_computed_tokens(case: Computed) -> None:
    """Each request has computed its query."""
    compare(case.make)


@dataclass(frozen=True)
class Local:
    """What decides a dcp_local_seq_lens case."""

    seq_lens: tuple[int, ...]
    padding: int = 2
    size: int = 2
    rank: int = 0
    interleave: int = 1

    def make(self) -> Case:
        """Build the launch."""
        arena = Arena()
        num_reqs = len(self.seq_lens)
        max_num_reqs = num_reqs + self.padding
        arguments = {
            "out_ptr": arena.blank("out", (max_num_reqs,)),
            "seq_lens_ptr": arena.tensor("seq_lens", list(self.seq_lens)),
            "dcp_size": self.size,
            "dcp_rank": self.rank % self.size,
            "cp_interleave": self.interleave,
            "num_reqs": num_reqs,
            "max_num_reqs": max_num_reqs,
            "BLOCK_SIZE": 128,
        }
        grid = (-(-max_num_reqs // 128),)
        return Case("cp_utils", "_dcp_local_seq_lens_kernel", grid, arguments, arena)


@given(
    st.builds(
        Local,
        st.lists(st.integers(0, 200), max_size=8).map(tuple),
        padding=st.integers(0, 4),
        size=st.integers(1, 4),
        rank=st.integers(0, 11),
        interleave=st.integers(1, 20),
    )
)
@example(Local((), padding=0))
@example(Local((2**31 - 1,) * 130, size=8, rank=7, interleave=16))
def test_dcp_local_seq_lens(case: Local) -> None:
    """Each rank counts its share of a sequence, and padding is 0."""
    compare(case.make)


@dataclass(frozen=True)
class Accepted:
    """What decides a scatter_num_accepted case."""

    sampled: tuple[int, ...]
    skipped: tuple[int, ...] = ()
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        states = len(self.sampled) + 2
        requests = torch.randperm(states, generator=g)[: len(self.sampled)]
        for i in self.skipped:
            requests[i : i + 1] = -1
        arguments = {
            "idx_mapping_ptr": arena.tensor("requests", requests),
            "num_sampled_ptr": arena.tensor("sampled", list(self.sampled)),
            "num_accepted_ptr": arena.blank("accepted", (states,)),
        }
        return Case(
            "model_states.mamba_hybrid",
            "_scatter_num_accepted_kernel",
            (len(self.sampled),),
            arguments,
            arena,
        )


@given(
    st.builds(
        Accepted,
        st.lists(st.integers(0, 5), max_size=8).map(tuple),
        skipped=st.lists(st.integers(0, 7), max_size=3).map(tuple),
        seed=SEEDS,
    )
)
@example(Accepted(()))
@example(Accepted((0, 4), skipped=(0, 1)))
def test_scatter_num_accepted(case: Accepted) -> None:
    """At least one token counts as accepted; dropped requests are skipped."""
    compare(case.make)


OTHERS: dict[str, Callable[[], Case]] = {
    "post_update_num_computed_tokens": Computed((2, 3)).make,
    "dcp_local_seq_lens": Local((5, 6)).make,
    "scatter_num_accepted": Accepted((2, 3), skipped=(0,)).make,
}


@pytest.mark.parametrize("op", OTHERS)
def test_opcheck(op: str) -> None:
    """The ops keep PyTorch's rules."""
    opcheck(OTHERS[op]())


@pytest.mark.parametrize(
    ("op", "argument", "value", "message"),
    [
        (
            "post_update_num_computed_tokens",
            "idx_mapping_ptr",
            torch.tensor([0, -1], dtype=torch.int32),
            r"idx_mapping_ptr\[1\] must be in \[0, 4\), but is -1",
        ),
        (
            "post_update_num_computed_tokens",
            "query_start_loc_ptr",
            torch.zeros(2, dtype=torch.int32),
            "query_start_loc_ptr must be of at least 3 elements, but is of 2",
        ),
        (
            "dcp_local_seq_lens",
            "dcp_rank",
            2,
            r"dcp_rank must be in \[0, 2\), but is 2",
        ),
        (
            "dcp_local_seq_lens",
            "max_num_reqs",
            5,
            "out_ptr must be of at least 5 elements, but is of 4",
        ),
        (
            "scatter_num_accepted",
            "num_accepted_ptr",
            torch.zeros(4, dtype=torch.int64),
            "num_accepted_ptr must be Int, but is Long",
        ),
        (
            "scatter_num_accepted",
            "idx_mapping_ptr",
            torch.tensor([-1, 4], dtype=torch.int32),
            r"idx_mapping_ptr\[1\] must be in .* 4\), but is 4",
        ),
    ],
)
def test_bad_argument(op: str, argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = OTHERS[op]().replace(argument, value)
    with pytest.raises(ValueError, match=f"{op}: {message}"):
        case.run_ours()
