# SPDX-License-Identifier: Apache-2.0
"""The token-by-token drafters' inputs against upstream's kernels."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, compare, opcheck

MODULE = "spec_decode.autoregressive.speculator"
I64 = torch.int64
SEEDS = st.integers(0, 2**31)


def small(g: torch.Generator, *shape: int, high: int = 1000) -> torch.Tensor:
    """Return random numbers below `high`."""
    return torch.randint(high, shape, generator=g)


@dataclass(frozen=True)
class Request:
    """One request: what the target has just done for it."""

    rows: int
    rejected: int = 0
    sampled: int = 1


@dataclass(frozen=True)
class Prefill:
    """What decides a prepare_draft_prefill_inputs case."""

    requests: tuple[Request, ...]
    padding: int = 2
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        num_reqs = len(self.requests)
        reqs = num_reqs + self.padding
        starts = [0]
        for r in self.requests:
            starts.append(starts[-1] + r.rows)
        tokens = (starts[-1] + 3,)
        states = reqs + 1
        order = torch.randperm(states, generator=g)[:num_reqs]
        arguments = {
            "last_token_indices_ptr": arena.blank("last_token", (reqs,), I64),
            "draft_current_step_ptr": arena.blank("step", (), I64),
            "draft_input_ids_ptr": arena.blank("input_ids", tokens),
            "draft_positions_ptr": arena.blank("positions", tokens, I64),
            "draft_query_start_loc_ptr": arena.blank("query_start", (reqs + 1,)),
            "draft_seq_lens_ptr": arena.blank("seq_lens", (reqs,)),
            "target_input_ids_ptr": arena.tensor("target_ids", small(g, *tokens)),
            "target_positions_ptr": arena.tensor("target_pos", small(g, *tokens), I64),
            "idx_mapping_ptr": arena.tensor("requests", order),
            "last_sampled_ptr": arena.tensor("last", small(g, states, 1), I64),
            "next_prefill_tokens_ptr": arena.tensor("next", small(g, states)),
            "num_sampled_ptr": arena.tensor(
                "num_sampled", [r.sampled for r in self.requests]
            ),
            "num_rejected_ptr": arena.tensor(
                "num_rejected", [r.rejected for r in self.requests]
            ),
            "query_start_loc_ptr": arena.tensor("starts", starts),
            "seq_lens_ptr": arena.tensor("target_seq_lens", small(g, num_reqs)),
            "max_num_reqs": reqs,
            "BLOCK_SIZE": 16,
        }
        kernel = "_prepare_prefill_inputs_kernel"
        return Case(MODULE, kernel, (num_reqs,), arguments, arena)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draw a request."""
    rows = draw(st.integers(1, 40))
    rejected = draw(st.integers(0, rows - 1))
    return Request(rows, rejected, sampled=draw(st.integers(0, 3)))


@given(
    st.builds(
        Prefill,
        st.lists(requests(), max_size=5).map(tuple),
        padding=st.integers(0, 20),
        seed=SEEDS,
    )
)
@example(Prefill(()))
@example(Prefill((Request(1),), padding=0))
@example(Prefill((Request(33, sampled=0), Request(4, 3)), padding=40))
def test_prepare_draft_prefill_inputs(case: Prefill) -> None:
    """The target's rows move on by one token, without what was rejected."""
    compare(case.make)


@dataclass(frozen=True)
class Decode:
    """What decides a prepare_decode_inputs case."""

    num_reqs: int
    padding: int = 2
    steps: int = 3
    advance: bool = True
    max_model_len: int = 500
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        n, reqs = self.num_reqs, self.num_reqs + self.padding
        drafts = arena.tensor("drafts", small(g, n, self.steps), I64)[:, 0]
        arguments = {
            "draft_tokens_ptr": drafts,
            "draft_tokens_stride": drafts.stride(0),
            "target_seq_lens_ptr": arena.tensor("target_seq_lens", small(g, n) + 9),
            "num_rejected_ptr": arena.tensor("rejected", small(g, n, high=9)),
            "input_ids_ptr": arena.blank("input_ids", (reqs,)),
            "positions_ptr": arena.tensor("positions", small(g, reqs), I64),
            "query_start_loc_ptr": arena.blank("query_start", (reqs + 1,)),
            "seq_lens_ptr": arena.blank("seq_lens", (reqs,)),
            "max_model_len": self.max_model_len,
            "max_num_reqs": reqs,
            "BLOCK_SIZE": 16,
            "ADVANCE_DRAFT_POSITIONS": self.advance,
        }
        return Case(MODULE, "_prepare_decode_inputs_kernel", (n + 1,), arguments, arena)


@given(
    st.builds(
        Decode,
        st.integers(0, 6),
        padding=st.integers(0, 20),
        steps=st.integers(1, 4),
        advance=st.booleans(),
        max_model_len=st.sampled_from([1, 500, 2000]),
        seed=SEEDS,
    )
)
@example(Decode(0, padding=0))
@example(Decode(20, padding=0))
def test_prepare_decode_inputs(case: Decode) -> None:
    """One row per request, at most to the length limit."""
    compare(case.make)


@dataclass(frozen=True)
class Update:
    """What decides an update_draft_inputs case."""

    num_reqs: int
    step: int = 0
    steps: int = 3
    hidden: int = 8
    dtype: torch.dtype = torch.float32
    advance: bool = True
    max_model_len: int = 500
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        n, reqs = self.num_reqs, self.num_reqs + 1
        output = arena.blank("output", (reqs, self.steps), I64)
        following = arena.blank("following", (reqs, self.hidden + 2), self.dtype)
        hidden = torch.randn(n, self.hidden, generator=g)
        hidden = arena.tensor("hidden", hidden, self.dtype)
        arguments = {
            "output_draft_tokens_ptr": output,
            "output_draft_tokens_stride": output.stride(0),
            "next_input_hidden_states_ptr": following,
            "next_input_hidden_states_stride": following.stride(0),
            "input_ids_ptr": arena.blank("input_ids", (reqs,)),
            "positions_ptr": arena.tensor("positions", small(g, reqs), I64),
            "seq_lens_ptr": arena.tensor("seq_lens", small(g, reqs)),
            "draft_tokens_ptr": arena.tensor("drafts", small(g, n), I64),
            "current_draft_step_ptr": arena.tensor("step", self.step % self.steps, I64),
            "hidden_states_ptr": hidden,
            "hidden_states_stride": hidden.stride(0),
            "hidden_size": self.hidden,
            "max_model_len": self.max_model_len,
            "num_speculative_steps": self.steps,
            "BLOCK_SIZE": 16,
            "ADVANCE_DRAFT_POSITIONS": self.advance,
        }
        return Case(MODULE, "_update_draft_inputs_kernel", (n,), arguments, arena)


@given(
    st.builds(
        Update,
        st.integers(0, 5),
        step=st.integers(0, 11),
        steps=st.integers(1, 4),
        hidden=st.integers(1, 40),
        dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
        advance=st.booleans(),
        max_model_len=st.sampled_from([1, 500, 2000]),
        seed=SEEDS,
    )
)
@example(Update(0))
@example(Update(2, step=2))
def test_update_draft_inputs(case: Update) -> None:
    """The sampled draft is kept, and is the next pass's input unless it is the last."""
    compare(case.make)


LAUNCHES: dict[str, Callable[[], Case]] = {
    "prepare_draft_prefill_inputs": Prefill((Request(3), Request(4, 2))).make,
    "prepare_decode_inputs": Decode(2).make,
    "update_draft_inputs": Update(2).make,
}


@pytest.mark.parametrize("op", LAUNCHES)
def test_opcheck(op: str) -> None:
    """The ops keep PyTorch's rules.

    opcheck clones the arguments, and a clone of a column is contiguous.
    """
    column = op == "prepare_decode_inputs"
    opcheck(Decode(2, steps=1).make() if column else LAUNCHES[op]())


@pytest.mark.parametrize(
    ("op", "argument", "value", "message"),
    [
        (
            "prepare_draft_prefill_inputs",
            "max_num_reqs",
            1,
            "max_num_reqs must be at least 2, but is 1",
        ),
        (
            "prepare_draft_prefill_inputs",
            "num_rejected_ptr",
            torch.tensor([3, 0], dtype=torch.int32),
            r"num_rejected_ptr\[0\] must be in \[0, 3\), but is 3",
        ),
        (
            "prepare_draft_prefill_inputs",
            "last_sampled_ptr",
            torch.zeros(5),
            "last_sampled_ptr must be Long, but is Float",
        ),
        (
            "prepare_decode_inputs",
            "draft_tokens_stride",
            1,
            "draft_tokens_ptr must be of row stride 1 .* but is of row stride 3",
        ),
        (
            "prepare_decode_inputs",
            "max_num_reqs",
            9,
            "query_start_loc_ptr must be of at least 10 elements, but is of 5",
        ),
        (
            "update_draft_inputs",
            "hidden_states_ptr",
            torch.zeros(2, 8, dtype=torch.float16),
            "next_input_hidden_states_ptr must be Half, but is Float",
        ),
        (
            "update_draft_inputs",
            "hidden_size",
            9,
            "hidden_states_ptr must be of at least 9 columns",
        ),
        (
            "update_draft_inputs",
            "current_draft_step_ptr",
            torch.tensor(3),
            r"current_draft_step_ptr\[0\] must be in \[0, 3\), but is 3",
        ),
    ],
)
def test_bad_argument(op: str, argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = LAUNCHES[op]().replace(argument, value)
    with pytest.raises(ValueError, match=f"{op}: .*{message}"):
        case.run_ours()
