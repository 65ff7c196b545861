# SPDX-License-Identifier: Apache-2.0
"""Positions of several dimensions against upstream's kernel."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, compare, opcheck, run_both

MAX_MODEL_LEN = 60


@dataclass(frozen=True)
class Request:
    """One request's place in its prefill."""

    computed: int
    rows: int
    prefill: int
    delta: int = 0


@dataclass(frozen=True)
class Positions:
    """What decides a prepare_rope_positions case."""

    requests: tuple[Request, ...]
    dims: int = 3
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        num_reqs = len(self.requests)
        states = num_reqs + 2
        order = torch.randperm(states, generator=g)[:num_reqs]
        starts = [0]
        per_state = {name: torch.zeros(states) for name in ("len", "delta", "computed")}
        for req, r in zip(order, self.requests, strict=True):
            starts.append(starts[-1] + r.rows)
            per_state["len"][req] = r.prefill
            per_state["delta"][req] = r.delta
            per_state["computed"][req] = r.computed
        positions = arena.blank("positions", (self.dims, starts[-1] + 3), torch.int64)
        shape = (states * self.dims, MAX_MODEL_LEN)
        arguments = {
            "positions_ptr": positions,
            "positions_stride": positions.stride(0),
            "prefill_positions_ptr": arena.tensor(
                "prefill_positions", torch.randint(10**6, shape, generator=g)
            ),
            "prefill_positions_stride0": self.dims * MAX_MODEL_LEN,
            "prefill_positions_stride1": MAX_MODEL_LEN,
            "prefill_delta_ptr": arena.tensor("delta", per_state["delta"]),
            "idx_mapping_ptr": arena.tensor("requests", order),
            "query_start_loc_ptr": arena.tensor("starts", starts),
            "prefill_lens_ptr": arena.tensor("prefill_lens", per_state["len"]),
            "num_computed_tokens_ptr": arena.tensor("computed", per_state["computed"]),
            "BLOCK_SIZE": 16,
            "NUM_DIMS": self.dims,
        }
        kernel = "_prepare_rope_positions_kernel"
        return Case("mm.rope", kernel, (num_reqs,), arguments, arena)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draw a request whose query is in its prefill or after it."""
    rows = draw(st.integers(1, 30))
    computed = draw(st.integers(0, MAX_MODEL_LEN - rows))
    inside = st.integers(computed + rows, MAX_MODEL_LEN)
    prefill = draw(st.one_of(inside, st.integers(0, computed)))
    return Request(computed, rows, prefill, delta=draw(st.integers(-50, 50)))


@given(
    st.builds(
        Positions,
        st.lists(requests(), max_size=5).map(tuple),
        dims=st.sampled_from([3, 4]),
        seed=st.integers(0, 2**31),
    )
)
@example(Positions(()))
@example(Positions((Request(0, 60, 60), Request(59, 1, 59, delta=-58))))
def test_prepare_rope_positions(case: Positions) -> None:
    """Stored positions in the prefill, counted ones after it."""
    compare(case.make)


def test_query_that_leaves_the_prefill() -> None:
    """Upstream reads on in the prefill's positions; we count, as in later steps."""
    case = Positions((Request(computed=9, rows=4, prefill=10, delta=5),))
    theirs, ours = run_both(case.make)
    base = int(ours.arguments["idx_mapping_ptr"][0]) * 3
    stored = ours.arguments["prefill_positions_ptr"][base : base + 3]
    assert torch.equal(theirs.arguments["positions_ptr"][:, :4], stored[:, 9:13].long())
    for dim, positions in enumerate(ours.arguments["positions_ptr"][:, :4].tolist()):
        assert positions == [int(stored[dim, 9]), 15, 16, 17]


GOOD = Positions((Request(0, 3, 7), Request(9, 2, 8, delta=4)))


def test_opcheck() -> None:
    """The op keeps PyTorch's rules."""
    opcheck(GOOD.make())


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("positions_stride", 5, "of row stride 5 .* but is of row stride 8"),
        ("NUM_DIMS", 4, "positions_ptr must be of at least 4 rows, but is of 3"),
        (
            "idx_mapping_ptr",
            torch.tensor([0, 4], dtype=torch.int32),
            r"idx_mapping_ptr\[1\] must be in \[0, 4\), but is 4",
        ),
        (
            "query_start_loc_ptr",
            torch.tensor([0, 3, 9], dtype=torch.int32),
            r"query_start_loc_ptr\[2\] must be in \[3, 9\), but is 9",
        ),
        (
            "prefill_delta_ptr",
            torch.zeros(4, dtype=torch.int64),
            "prefill_delta_ptr must be Int, but is Long",
        ),
    ],
)
def test_bad_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = GOOD.make().replace(argument, value)
    with pytest.raises(ValueError, match=f"prepare_rope_positions: .*{message}"):
        case.run_ours()
