# SPDX-License-Identifier: Apache-2.0
"""The states of Mamba layers against upstream's kernels."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import GUARD, Arena, Case, assert_same, compare, opcheck

MODULE = "vllm.v1.worker.mamba_utils"
COLUMNS = 5
SPARE_COLUMNS = 4
"""For the columns of drafts, after the last one that a state is moved to."""
SEEDS = st.integers(0, 2**31)


@dataclass(frozen=True)
class Preprocess:
    """What decides a preprocess_mamba_align_fused case."""

    num_reqs: int
    block_size: int = 4
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        slots = self.num_reqs + 2

        def draw(low: int, high: int, count: int = slots) -> torch.Tensor:
            return torch.randint(low, high, (count,), generator=g)

        lens = draw(0, 2 * self.block_size + 1, self.num_reqs)
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), lens.cumsum(0)])
        requests = torch.randperm(slots, generator=g)[: self.num_reqs]
        arguments = {
            "idx_mapping_ptr": arena.tensor("requests", requests),
            "state_idx_ptr": arena.tensor("state", draw(-1, 4)),
            "num_computed_tokens_ptr": arena.tensor(
                "computed", draw(0, 3 * self.block_size)
            ),
            "query_start_loc_ptr": arena.tensor("starts", starts),
            "num_accepted_tokens_ptr": arena.tensor("accepted", draw(0, 5)),
            "src_col_ptr": arena.blank("src_col", (slots,)),
            "src_off_ptr": arena.blank("src_off", (slots,)),
            "num_reqs": self.num_reqs,
            "BLOCK_SIZE": 8,
            "MAMBA_BLOCK_SIZE": self.block_size,
        }
        grid = (-(-self.num_reqs // 8),)
        kernel = "preprocess_mamba_align_fused_kernel"
        return Case(MODULE, kernel, grid, arguments, arena)


@given(
    st.builds(Preprocess, st.integers(0, 20), block_size=st.integers(1, 6), seed=SEEDS)
)
@example(Preprocess(0))
@example(Preprocess(1))
@example(Preprocess(8, block_size=1))
@example(Preprocess(17, block_size=528))
def test_preprocess(case: Preprocess) -> None:
    """Each request knows the column of its state, and the one it was in."""
    compare(case.make)


@dataclass(frozen=True)
class Kind:
    """A kind of state: a window of a convolution, or (width 0) any other."""

    width: int
    inner: int
    dtype: torch.dtype = torch.float32
    padding: int = 0
    """Elements of a block behind the state."""


CONV = Kind(4, 6, torch.float16)
SSM = Kind(0, 10, padding=3)
LARGE = (Kind(6, 300, padding=5), Kind(0, 2100))


@dataclass(frozen=True)
class States:
    """The layers of a model: all have the same kinds of states."""

    kinds: tuple[Kind, ...] = (CONV, SSM)
    groups: int = 1
    layers: int = 1
    dim_first: bool = False

    def arguments(
        self, arena: Arena, rows: int, generator: torch.Generator
    ) -> dict[str, Any]:
        """Return what a launch knows about the states, for `rows` block tables."""
        columns = COLUMNS + SPARE_COLUMNS
        blocks = rows * columns
        tables = [
            arena.tensor(
                f"table{i}",
                torch.randperm(blocks, generator=generator).view(rows, columns),
            )
            for i in range(self.groups)
        ]
        entries = []
        for group in range(self.groups):
            for layer in range(self.layers):
                for i, kind in enumerate(self.kinds):
                    size = max(kind.width, 1) * kind.inner
                    values = torch.randn(
                        (blocks, size + kind.padding), generator=generator
                    )
                    name = f"state{group}.{layer}.{i}"
                    state = arena.tensor(name, values, kind.dtype)
                    entries.append((state, kind, group))
        rowwise = [self.dim_first and kind.width > 0 for _, kind, _ in entries]

        def listed(values: list[int], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype)

        i32, i64 = torch.int32, torch.int64
        return {
            "block_table_ptrs_ptr": listed([t.data_ptr() for t in tables], i64),
            "block_table_stride_req": columns,
            "state_base_addrs_ptr": listed([s.data_ptr() for s, _, _ in entries], i64),
            "state_block_strides_ptr": listed(
                [s.stride(0) * s.element_size() for s, _, _ in entries], i64
            ),
            "state_elem_sizes_ptr": listed(
                [s.element_size() for s, _, _ in entries], i32
            ),
            "state_inner_sizes_ptr": listed(
                [
                    1 if by_row else kind.inner
                    for (_, kind, _), by_row in zip(entries, rowwise, strict=True)
                ],
                i64,
            ),
            "state_conv_widths_ptr": listed([k.width for _, k, _ in entries], i32),
            "state_group_indices_ptr": listed([g for _, _, g in entries], i32),
            "state_dim_row_count_ptr": listed(
                [
                    kind.inner if by_row else 0
                    for (_, kind, _), by_row in zip(entries, rowwise, strict=True)
                ],
                i32,
            ),
            "state_dim_row_stride_ptr": listed(
                [
                    kind.width * state.element_size() if by_row else 0
                    for (state, kind, _), by_row in zip(entries, rowwise, strict=True)
                ],
                i64,
            ),
            "COPY_BLOCK_SIZE": 1024,
            "CONV_STATE_DIM_FIRST": self.dim_first,
        }

    @property
    def count(self) -> int:
        """The number of states."""
        return self.groups * self.layers * len(self.kinds)


@st.composite
def all_states(draw: st.DrawFn) -> States:
    """Draw the layers of a model."""
    kinds = st.builds(
        Kind,
        st.integers(0, 5),
        st.integers(1, 12),
        st.sampled_from([torch.float16, torch.float32]),
        st.integers(0, 5),
    )
    return States(
        kinds=tuple(draw(st.lists(kinds, min_size=1, max_size=2))),
        groups=draw(st.integers(1, 2)),
        layers=draw(st.integers(1, 2)),
        dim_first=draw(st.booleans()),
    )


def order_of(
    num_reqs: int, skipped: tuple[int, ...], generator: torch.Generator
) -> torch.Tensor:
    """Return the slots of a batch's requests, of which some are not to be handled."""
    order = torch.randperm(num_reqs + 2, generator=generator)[:num_reqs]
    for i in skipped:
        order[i : i + 1] = -1
    return order


@dataclass(frozen=True)
class Precopy:
    """What decides a precopy_mamba_align_fused case."""

    num_reqs: int
    skipped: tuple[int, ...] = ()
    states: States = States()
    spare_rows: int = 0
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        slots = self.num_reqs + 2

        def draw(low: int, high: int) -> torch.Tensor:
            return torch.randint(low, high, (slots,), generator=g)

        arguments = {
            "mamba_state_idx_ptr": arena.tensor("state", draw(0, COLUMNS)),
            "src_col_ptr": arena.tensor("src_col", draw(-1, COLUMNS)),
            "token_bias_ptr": arena.tensor("bias", draw(0, SPARE_COLUMNS + 1)),
            **self.states.arguments(arena, self.num_reqs, g),
            "idx_mapping_ptr": arena.tensor(
                "order", order_of(self.num_reqs, self.skipped, g)
            ),
            "num_reqs": self.num_reqs,
        }
        grid = (self.num_reqs + self.spare_rows, self.states.count)
        kernel = "precopy_mamba_align_fused_kernel"
        return Case(MODULE, kernel, grid, arguments, arena)


SKIPPED = st.lists(st.integers(0, 3), max_size=2).map(tuple)


@given(
    st.builds(
        Precopy,
        st.integers(0, 3),
        skipped=SKIPPED,
        states=all_states(),
        spare_rows=st.integers(0, 2),
        seed=SEEDS,
    )
)
@example(Precopy(0))
@example(Precopy(0, spare_rows=2))
@example(Precopy(1))
@example(Precopy(8, skipped=(0, 7)))
@example(Precopy(2, states=States(LARGE)))
@example(Precopy(2, states=States((Kind(1100, 2), SSM), dim_first=True)))
def test_precopy(case: Precopy) -> None:
    """States move to the column of the step's last token, later by the bias."""
    compare(case.make)


@dataclass(frozen=True)
class Postprocess:
    """What decides a postprocess_mamba_fused case."""

    num_reqs: int
    block_size: int = 4
    skipped: tuple[int, ...] = ()
    states: States = States()
    mapped: bool = True
    """Whether the requests' data are by slot, and the accepted counts in place."""
    precomputed: bool = True
    stays: float = 0.5
    """The share of requests whose state is in the target's column already."""
    spare_rows: int = 0
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        slots = self.num_reqs + 2

        def draw(low: int, high: int) -> torch.Tensor:
            return torch.randint(low, high, (slots,), generator=g)

        accepted = draw(1, SPARE_COLUMNS + 2)
        computed = accepted + draw(0, COLUMNS * self.block_size)
        computed = computed.minimum(torch.tensor(COLUMNS * self.block_size))
        accepted = accepted.minimum(computed)
        # Every second request ends where a block does.
        aligned = (computed // self.block_size).clamp(min=1) * self.block_size
        computed = torch.where(draw(0, 2) > 0, aligned.maximum(accepted), computed)
        column = torch.where(
            torch.rand((slots,), generator=g) < self.stays,
            (computed // self.block_size - 1).clamp(min=0),
            draw(0, COLUMNS),
        )
        drafts, more = draw(0, 4), draw(1, 4)
        before = computed - accepted + 1 - more
        unused = not self.precomputed

        def optional(used: bool, name: str, values: torch.Tensor) -> Any:
            return arena.tensor(name, values) if used else None

        order = order_of(self.num_reqs, self.skipped, g)
        arguments = {
            "num_accepted_tokens_ptr": arena.tensor("accepted", accepted),
            "mamba_state_idx_ptr": arena.tensor("state", column),
            "num_scheduled_tokens_ptr": optional(unused, "scheduled", drafts + more),
            "num_computed_tokens_ptr": arena.tensor(
                "computed", computed if self.precomputed else before
            ),
            "num_draft_tokens_ptr": optional(unused, "drafts", drafts),
            **self.states.arguments(arena, self.num_reqs, g),
            "num_accepted_tokens_out_ptr": (
                None if self.mapped else arena.blank("out", (slots,))
            ),
            "idx_mapping_ptr": optional(self.mapped, "order", order),
            "num_reqs": self.num_reqs,
            "block_size": self.block_size,
            "HAS_IDX_MAPPING": self.mapped,
            "PRECOMPUTED_NEW_COMPUTED": self.precomputed,
        }
        grid = (self.num_reqs + self.spare_rows, self.states.count)
        return Case(MODULE, "postprocess_mamba_fused_kernel", grid, arguments, arena)


def run_upstream_by_state(case: Case) -> None:
    """Launch upstream's kernel once per state, each with the counts as they were.

    The first state's program sets the count that the others decide by: so none of them
    gets to see it.
    """
    counts = case.arguments["num_accepted_tokens_ptr"]
    before = counts.clone()
    for i in range(case.grid[1]):
        counts.copy_(before)
        alone = {
            name: value[i : i + 1] if name.startswith("state_") else value
            for name, value in case.arguments.items()
        }
        replace(case, grid=(case.grid[0], 1), arguments=alone).run_upstream()


STEPS = Postprocess(4, block_size=2, seed=3)


@given(
    st.builds(
        Postprocess,
        st.integers(0, 3),
        block_size=st.integers(1, 5),
        skipped=SKIPPED,
        states=all_states(),
        mapped=st.booleans(),
        precomputed=st.booleans(),
        spare_rows=st.integers(0, 2),
        seed=SEEDS,
    )
)
@example(Postprocess(0))
@example(Postprocess(1))
@example(Postprocess(8, skipped=(0, 7), block_size=2))
@example(Postprocess(3, states=States(LARGE), block_size=1))
@example(replace(STEPS, mapped=False, precomputed=False))
@example(replace(STEPS, states=States((Kind(1100, 2), SSM), dim_first=True)))
def test_postprocess(case: Postprocess) -> None:
    """States are kept as they were at a block's end, if accepted tokens pass one."""
    theirs, ours = case.make(), case.make()
    run_upstream_by_state(theirs)
    ours.run_ours()
    assert_same(theirs, ours)


@given(
    st.builds(
        Postprocess,
        st.integers(0, 3),
        block_size=st.integers(1, 5),
        skipped=SKIPPED,
        mapped=st.booleans(),
        stays=st.just(0.0),
        seed=SEEDS,
    ).filter(lambda case: not case.mapped or not shifts_in_place(case))
)
def test_postprocess_in_one_launch(case: Postprocess) -> None:
    """Where counts are not changed in place, upstream's one launch does the same."""
    compare(case.make)


def shifts_in_place(case: Postprocess) -> bool:
    """Tell whether the first state's program changes what others decide by."""
    arguments = case.make().arguments
    computed = arguments["num_computed_tokens_ptr"]
    blocks = computed // case.block_size
    running = computed - arguments["num_accepted_tokens_ptr"] + 1
    passes = blocks * case.block_size >= running
    return bool((passes & (arguments["mamba_state_idx_ptr"] == blocks - 1)).any())


def test_all_states_move_within_a_block() -> None:
    """Upstream's first state resets the count, and the next ones then stay behind."""

    def make() -> Case:
        # 3 tokens are accepted, of which the last one is a block's.
        g = torch.Generator().manual_seed(0)
        arena = Arena()
        states = States(kinds=(Kind(0, 2), Kind(0, 2)))
        arguments = {
            "num_accepted_tokens_ptr": arena.tensor("accepted", [3]),
            "mamba_state_idx_ptr": arena.tensor("state", [1]),
            "num_scheduled_tokens_ptr": None,
            "num_computed_tokens_ptr": arena.tensor("computed", [8]),
            "num_draft_tokens_ptr": None,
            **states.arguments(arena, 1, g),
            "num_accepted_tokens_out_ptr": None,
            "idx_mapping_ptr": arena.tensor("order", [0]),
            "num_reqs": 1,
            "block_size": 4,
            "HAS_IDX_MAPPING": True,
            "PRECOMPUTED_NEW_COMPUTED": True,
        }
        grid = (1, states.count)
        return Case(MODULE, "postprocess_mamba_fused_kernel", grid, arguments, arena)

    def moved(case: Case) -> list[bool]:
        # The state after the third token, in the column of the second draft.
        table = case.arena.buffers["table0"]
        blocks = table[GUARD : GUARD + COLUMNS + SPARE_COLUMNS]
        found = []
        for i in range(2):
            state = case.arena.buffers[f"state0.0.{i}"][GUARD:-GUARD].view(-1, 2)
            found.append(torch.equal(state[blocks[1]], state[blocks[3]]))
        return found

    theirs, ours = make(), make()
    theirs.run_upstream()
    ours.run_ours()
    assert moved(theirs) == [True, False]
    assert moved(ours) == [True, True]
    for case in (theirs, ours):
        assert case.arguments["num_accepted_tokens_ptr"].tolist() == [1]


CASES: dict[str, Callable[[], Case]] = {
    "preprocess_mamba_align_fused": Preprocess(3).make,
    "precopy_mamba_align_fused": Precopy(2).make,
    "postprocess_mamba_fused": STEPS.make,
}


@pytest.mark.parametrize("op", CASES)
def test_opcheck(op: str) -> None:
    """The ops keep PyTorch's rules."""
    opcheck(CASES[op]())


def test_opcheck_counts_apart() -> None:
    """So does the form with another tensor for the counts."""
    opcheck(replace(STEPS, mapped=False, precomputed=False).make())


def i32(*values: int) -> torch.Tensor:
    """Return a list as a tensor."""
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("op", "argument", "value", "message"),
    [
        (
            "preprocess_mamba_align_fused",
            "MAMBA_BLOCK_SIZE",
            0,
            "MAMBA_BLOCK_SIZE must be at least 1, but is 0",
        ),
        (
            "preprocess_mamba_align_fused",
            "idx_mapping_ptr",
            i32(0, -1, 2),
            r"idx_mapping_ptr\[1\] must be in \[0, 5\), but is -1",
        ),
        (
            "preprocess_mamba_align_fused",
            "src_off_ptr",
            i32(0, 0, 0, 0),
            "src_off_ptr must be of at least 5 elements, but is of 4",
        ),
        (
            "preprocess_mamba_align_fused",
            "num_computed_tokens_ptr",
            torch.zeros(5, dtype=torch.int64),
            "num_computed_tokens_ptr must be Int, but is Long",
        ),
        (
            "precopy_mamba_align_fused",
            "idx_mapping_ptr",
            i32(0, 4),
            r"idx_mapping_ptr\[1\] must be in .* 4\), but is 4",
        ),
        (
            "precopy_mamba_align_fused",
            "src_col_ptr",
            i32(9, 9, 9, 9),
            r"src_col_ptr\[\d\] must be in \[0, 9\), but is 9",
        ),
        (
            "precopy_mamba_align_fused",
            "token_bias_ptr",
            i32(9, 9, 9, 9),
            r"src_col_ptr\[\d\] must be in \[0, 0\), but is",
        ),
        (
            "precopy_mamba_align_fused",
            "state_group_indices_ptr",
            i32(0, 1),
            r"state_group_indices_ptr\[1\] must be in \[0, 1\), but is 1",
        ),
        (
            "precopy_mamba_align_fused",
            "state_inner_sizes_ptr",
            torch.tensor([6]),
            "state_inner_sizes_ptr must be of at least 2 elements, but is of 1",
        ),
        (
            "postprocess_mamba_fused",
            "block_size",
            0,
            "block_size must be at least 1, but is 0",
        ),
        (
            "postprocess_mamba_fused",
            "idx_mapping_ptr",
            None,
            "idx_mapping_ptr must be a tensor with these flags, but is None",
        ),
        (
            "postprocess_mamba_fused",
            "HAS_IDX_MAPPING",
            False,
            "num_accepted_tokens_out_ptr must be a tensor with these flags, but is",
        ),
        (
            "postprocess_mamba_fused",
            "PRECOMPUTED_NEW_COMPUTED",
            False,
            "num_scheduled_tokens_ptr must be a tensor with these flags, but is None",
        ),
        (
            "postprocess_mamba_fused",
            "num_computed_tokens_ptr",
            i32(99, 98, 99, 98, 99, 98),
            r"num_computed_tokens_ptr\[\d\] must be in \[0, 9\), but is 48",
        ),
    ],
)
def test_bad_argument(op: str, argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = CASES[op]().replace(argument, value)
    with pytest.raises(ValueError, match=f"{op}: {message}"):
        case.run_ours()


def test_negative_block() -> None:
    """A table with a negative block is refused by table, place and value."""
    case = CASES["postprocess_mamba_fused"]()
    case.arena.buffers["table0"].fill_(-3)
    message = r"block_table_ptrs_ptr\[0\]\[\d+\] must be at least 0, but is -3"
    with pytest.raises(ValueError, match=message):
        case.run_ours()
