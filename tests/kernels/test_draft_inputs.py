# SPDX-License-Identifier: Apache-2.0
"""The fused ops of drafting against the single kernels and torch ops they replace."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena
from test_dflash import LAST_FIT, Inputs, Request, cases

from vllm_kunlun import ops

ops.load()
kunlun = torch.ops.vllm_kunlun

OUTPUTS = {
    "out_input_ids_ptr": "input_ids",
    "out_query_positions_ptr": "query_positions",
    "out_query_start_loc_ptr": "query_start_loc",
    "out_seq_lens_ptr": "seq_lens",
    "out_context_positions_ptr": "context_positions",
    "out_sample_indices_ptr": "sample_indices",
    "out_sample_pos_ptr": "sample_pos",
    "out_sample_idx_mapping_ptr": "sample_idx_mapping",
}
"""What is the same for every group: the single kernel's name and the fused op's."""

INPUTS = {
    "target_positions_ptr": "target_positions",
    "target_query_start_loc_ptr": "target_query_start_loc",
    "idx_mapping_ptr": "idx_mapping",
    "last_sampled_ptr": "last_sampled",
    "next_prefill_tokens_ptr": "next_prefill_tokens",
    "num_sampled_ptr": "num_sampled",
    "num_rejected_ptr": "num_rejected",
}


@dataclass(frozen=True)
class Draft:
    """A drafting step: its rows, and the groups whose slots they get."""

    inputs: Inputs
    block_sizes: tuple[int, ...] = (4,)
    group_ids: tuple[int, ...] = (0,)
    num_groups: int = 1
    """KV-cache groups of the engine, the target's among them."""
    skip_rejected: bool = False

    def tables(self) -> list[torch.Tensor]:
        """Return a block table for each group."""
        shape = (len(self.inputs.requests), self.inputs.columns)
        g = torch.Generator().manual_seed(self.inputs.seed)
        return [
            torch.randint(30_000, shape, generator=g, dtype=torch.int32)
            for _ in self.block_sizes
        ]

    def run_single(self) -> Arena:
        """Launch the single kernel for each group, and copy the sampling state."""
        case = self.inputs.make()
        arguments = dict(case.arguments)
        context_rows = arguments["out_context_positions_ptr"].numel()
        query_slots, context_slots = self.slots(case.arena, context_rows)
        for i, gid in enumerate(self.group_ids):
            table = self.tables()[i]
            case = case.replace("out_query_slot_mapping_ptr", query_slots[gid])
            case = case.replace("out_context_slot_mapping_ptr", context_slots[i])
            case = case.replace("block_table_ptr", table)
            case = case.replace("block_table_stride", table.stride(0))
            case.replace("block_size", self.block_sizes[i]).run_ours()
        if self.skip_rejected:
            starts = arguments["target_query_start_loc_ptr"].tolist()
            for end, r in zip(starts[1:], self.inputs.requests, strict=True):
                context_slots[:, end - r.rejected : end] = -1
        for name, value in self.state().items():
            out = case.arena.blank(f"out_{name}", tuple(value.shape), value.dtype)
            out.copy_(value)
        idx_mapping = arguments["idx_mapping_ptr"]
        out = case.arena.blank("out_idx_mapping", (arguments["max_num_reqs"],))
        out.fill_(-1)
        out[: idx_mapping.numel()] = idx_mapping
        return case.arena

    def run_fused(self, **replaced: Any) -> Arena:
        """Launch the fused op."""
        case = self.inputs.make()
        arguments, arena = case.arguments, case.arena
        context_rows = arguments["out_context_positions_ptr"].numel()
        query_slots, context_slots = self.slots(arena, context_rows)
        state = self.state()
        call: dict[str, Any] = {
            **{new: arguments[old] for old, new in OUTPUTS.items()},
            **{new: arguments[old] for old, new in INPUTS.items()},
            **state,
            **{
                f"out_{name}": arena.blank(f"out_{name}", tuple(v.shape), v.dtype)
                for name, v in state.items()
            },
            "out_idx_mapping": arena.blank(
                "out_idx_mapping", (arguments["max_num_reqs"],)
            ),
            "query_slots": query_slots,
            "context_slots": context_slots,
            "block_tables": self.tables(),
            "group_ids": self.group_ids,
            "block_sizes": self.block_sizes,
            "sample_from_anchor": self.inputs.from_anchor,
            "skip_rejected": self.skip_rejected,
            "pad_slot_id": -1,
            "num_reqs": len(self.inputs.requests),
        }
        for name in (
            "parallel_drafting_token_id",
            "num_query_per_req",
            "num_speculative_steps",
            "max_model_len",
        ):
            call[name] = arguments[name]
        kunlun.prepare_draft_inputs(**{**call, **replaced})
        return arena

    def slots(self, arena: Arena, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the slots are written to."""
        i64 = torch.int64
        return (
            arena.blank("all_query_slots", (self.num_groups, rows), i64),
            arena.blank("all_context_slots", (len(self.group_ids), rows), i64),
        )

    def state(self) -> dict[str, torch.Tensor]:
        """Return the sampling state of the target."""
        g = torch.Generator().manual_seed(self.inputs.seed)
        count = (len(self.inputs.requests) + self.inputs.padding,)
        seeds = torch.randint(-(2**62), 2**62, count, generator=g)
        return {"temperature": torch.rand(count, generator=g), "seeds": seeds}


LONG_PREFILL = Inputs(
    (Request(3, 700, 2), Request(40, 3)), columns=200, max_model_len=1000, padding=90
)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Draw a step with one to four groups, below and at the length limit."""
    num_groups = draw(st.integers(1, 4))
    group_ids = draw(st.lists(st.integers(0, num_groups - 1), min_size=1, unique=True))
    sizes = st.sampled_from([1, 3, 4, 16])
    return Draft(
        draw(cases(95, st.integers(8, 110))),
        block_sizes=tuple(draw(sizes) for _ in group_ids),
        group_ids=tuple(group_ids),
        num_groups=num_groups,
        skip_rejected=draw(st.booleans()),
    )


def assert_same(expected: Arena, found: Arena) -> None:
    """Compare all memory, guards included."""
    for name, buffer in expected.buffers.items():
        assert torch.equal(buffer, found.buffers[name]), name


@given(drafts())
@example(Draft(LAST_FIT, skip_rejected=True))
@example(Draft(Inputs((Request(0, 1),), padding=0)))
# A prefill that cores share, and more groups than a launch of the XPU's has room for.
@example(Draft(LONG_PREFILL, (4, 16, 1, 3, 4), (4, 2, 0, 1, 5), 6, skip_rejected=True))
def test_prepare_draft_inputs(draft: Draft) -> None:
    """One launch does what one for each group and three copies do."""
    assert_same(draft.run_single(), draft.run_fused())


TWO = Inputs((Request(0, 3), Request(8, 4, 2)))


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("num_reqs", 0, "num_reqs must be at least 1, but is 0"),
        ("num_reqs", 5, r"num_reqs must be in \[1, 5\), but is 5"),
        ("group_ids", [1], r"group_ids\[0\] must be in \[0, 1\), but is 1"),
        ("block_sizes", [0], r"block_sizes\[0\] must be at least 1, but is 0"),
        ("block_sizes", [4, 4], r"len\(block_sizes\) must be in \[1, 2\), but is 2"),
        ("num_speculative_steps", 2, "num_speculative_steps must be at least 3"),
        ("max_model_len", 0, "max_model_len must be at least 1, but is 0"),
        (
            "num_rejected",
            torch.tensor([0, 4], dtype=torch.int32),
            r"num_rejected\[1\] must be in \[0, 4\), but is 4",
        ),
        (
            "seeds",
            torch.zeros(4, dtype=torch.int32),
            "seeds must be Long, but is Int",
        ),
    ],
)
def test_bad_draft_input(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    with pytest.raises(ValueError, match=f"prepare_draft_inputs: .*{message}"):
        Draft(TWO).run_fused(**{argument: value})


@dataclass(frozen=True)
class Context:
    """Hidden states of a batch, from which rejected rows are left out."""

    requests: tuple[tuple[int, int], ...]
    """How many rows each request has, and how many of them were rejected."""
    widths: tuple[int, ...] = (3, 5)
    num_groups: int = 1
    padding: int = 0
    dtype: torch.dtype = torch.float32

    def values(self) -> dict[str, Any]:
        """Return the inputs."""
        g = torch.Generator().manual_seed(len(self.requests))
        rows = sum(r for r, _ in self.requests)
        padded = rows + self.padding
        starts = torch.tensor([0, *(r for r, _ in self.requests)]).cumsum(0)
        return {
            "hidden_states": [
                torch.randn(padded, width, generator=g).to(self.dtype)
                for width in self.widths
            ],
            "positions": torch.randint(2**40, (padded,), generator=g),
            "slots": torch.randint(2**40, (self.num_groups, padded), generator=g),
            "query_start_loc": starts.to(torch.int32),
            "num_rejected": torch.tensor(
                [rejected for _, rejected in self.requests], dtype=torch.int32
            ),
        }

    def kept(self) -> list[int]:
        """Return the rows that are left."""
        rows: list[int] = []
        first = 0
        for count, rejected in self.requests:
            rows += range(first, first + count - rejected)
            first += count
        return rows

    def run(self, arena: Arena, **replaced: Any) -> None:
        """Launch the op."""
        call = self.values()
        kept, groups = len(self.kept()), self.num_groups
        width = sum(self.widths)
        call |= {
            "features": arena.blank("features", (kept, width), self.dtype),
            "out_positions": arena.blank("positions", (kept,), torch.int64),
            "out_slots": arena.blank("slots", (groups, kept), torch.int64),
            "num_reqs": len(self.requests),
        }
        kunlun.gather_context(**{**call, **replaced})


@st.composite
def contexts(draw: st.DrawFn) -> Context:
    """Draw a batch."""
    rows = st.integers(1, 9)
    counts = draw(st.lists(rows, min_size=1, max_size=6))
    types = [torch.float32, torch.bfloat16, torch.float16]
    return Context(
        tuple((n, draw(st.integers(0, n - 1))) for n in counts),
        widths=tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))),
        num_groups=draw(st.integers(1, 3)),
        padding=draw(st.integers(0, 3)),
        dtype=draw(st.sampled_from(types)),
    )


@given(contexts())
@example(Context(((1, 0),)))
@example(Context(((4, 3), (4, 0), (1, 0), (4, 3))))
# More requests than are looked at at a time, and more layers than a launch of the XPU's
# has room for, one of them wider than what is copied at a time.
@example(Context(((2, 1),) * 70, widths=(1,) * 8 + (1500, 3), num_groups=2))
def test_gather_context(context: Context) -> None:
    """What is left is what indexing with the rows that are kept gives."""
    found, expected = Arena(), Arena()
    context.run(found)
    values, kept = context.values(), context.kept()
    features = torch.cat(values["hidden_states"], dim=-1)[kept]
    expected.tensor("features", features, context.dtype)
    expected.tensor("positions", values["positions"][kept], torch.int64)
    expected.tensor("slots", values["slots"][:, kept], torch.int64)
    assert_same(expected, found)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("num_reqs", 0, "num_reqs must be at least 1, but is 0"),
        (
            "features",
            torch.zeros(4, 8),
            r"the rows of features must be in \[5, 6\), but is 4",
        ),
        (
            "features",
            torch.zeros(5, 7),
            r"the width of hidden_states must be in \[7, 8\), but is 8",
        ),
        ("hidden_states", [], r"len\(hidden_states\) must be at least 1, but is 0"),
        (
            "num_rejected",
            torch.tensor([0, 4], dtype=torch.int32),
            r"num_rejected\[1\] must be in \[0, 4\), but is 4",
        ),
    ],
)
def test_bad_context(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    with pytest.raises(ValueError, match=f"gather_context: .*{message}"):
        Context(((3, 0), (4, 2))).run(Arena(), **{argument: value})
