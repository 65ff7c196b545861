# SPDX-License-Identifier: Apache-2.0
"""The DFlash drafters' inputs against upstream's kernel."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, compare, opcheck

DRAFTING_TOKEN = 40_000


@dataclass(frozen=True)
class Request:
    """One request: what the target has just done for it."""

    computed: int
    """Position of its first row in the target's batch."""
    rows: int
    rejected: int = 0
    sampled: int = 1


@dataclass(frozen=True)
class Inputs:
    """What decides a prepare_dflash_inputs case."""

    requests: tuple[Request, ...]
    steps: int = 3
    from_anchor: bool = True
    block_size: int = 4
    columns: int = 32
    max_model_len: int = 100
    padding: int = 2
    seed: int = 0

    @property
    def queries(self) -> int:
        """Query rows per request."""
        return self.steps if self.from_anchor else self.steps + 1

    def reaches_limit(self) -> bool:
        """Whether a row is where we deviate from upstream."""
        last = min(self.max_model_len, self.columns * self.block_size)
        return any(
            r.computed + r.rows - r.rejected + self.queries > last
            or r.computed + r.rows > self.columns * self.block_size
            for r in self.requests
        )

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()

        def ids(*shape: int) -> torch.Tensor:
            return torch.randint(30_000, shape, generator=g)

        num_reqs = len(self.requests)
        max_num_reqs = num_reqs + self.padding
        positions: list[int] = []
        starts = [0]
        for r in self.requests:
            positions += range(r.computed, r.computed + r.rows)
            starts.append(len(positions))
        max_num_tokens = max(max_num_reqs * self.queries, len(positions)) + 3
        samples = (max_num_reqs * self.steps,)
        tokens = (max_num_tokens,)
        i64 = torch.int64
        table = arena.tensor("block_table", ids(max(num_reqs, 1), self.columns))
        arguments = {
            "out_input_ids_ptr": arena.blank("input_ids", tokens),
            "out_query_positions_ptr": arena.blank("query_positions", tokens, i64),
            "out_query_start_loc_ptr": arena.blank(
                "query_start_loc", (max_num_reqs + 1,)
            ),
            "out_seq_lens_ptr": arena.blank("seq_lens", (max_num_reqs,)),
            "out_query_slot_mapping_ptr": arena.blank("query_slots", tokens, i64),
            "out_context_positions_ptr": arena.blank("context_pos", tokens, i64),
            "out_context_slot_mapping_ptr": arena.blank("context_slots", tokens, i64),
            "out_sample_indices_ptr": arena.blank("sample_indices", samples, i64),
            "out_sample_pos_ptr": arena.blank("sample_pos", samples, i64),
            "out_sample_idx_mapping_ptr": arena.blank("sample_idx_mapping", samples),
            "target_positions_ptr": arena.tensor("positions", positions, i64),
            "target_query_start_loc_ptr": arena.tensor("starts", starts),
            "idx_mapping_ptr": arena.tensor(
                "requests", torch.randperm(max_num_reqs, generator=g)[:num_reqs]
            ),
            "last_sampled_ptr": arena.tensor("last", ids(max_num_reqs, 1), i64),
            "next_prefill_tokens_ptr": arena.tensor("next", ids(max_num_reqs)),
            "num_sampled_ptr": arena.tensor(
                "sampled", [r.sampled for r in self.requests]
            ),
            "num_rejected_ptr": arena.tensor(
                "rejected", [r.rejected for r in self.requests]
            ),
            "block_table_ptr": table,
            "block_table_stride": table.stride(0),
            "parallel_drafting_token_id": DRAFTING_TOKEN,
            "block_size": self.block_size,
            "num_query_per_req": self.queries,
            "num_speculative_steps": self.steps,
            "max_num_reqs": max_num_reqs,
            "max_num_tokens": max_num_tokens,
            "max_model_len": self.max_model_len,
            "SAMPLE_FROM_ANCHOR": self.from_anchor,
            "PAD_SLOT_ID": -1,
            "BLOCK_SIZE": 16,
        }
        longest = max((r.rows for r in self.requests), default=0) + self.queries
        return Case(
            "spec_decode.dflash.speculator",
            "_prepare_dflash_inputs_kernel",
            (num_reqs, -(-longest // 16)),
            arguments,
            arena,
        )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draw a request."""
    rows = draw(st.integers(1, 12))
    return Request(
        computed=draw(st.integers(0, 85)),
        rows=rows,
        rejected=draw(st.integers(0, rows - 1)),
        sampled=draw(st.integers(0, 3)),
    )


def cases(
    max_model_len: int, columns: st.SearchStrategy[int]
) -> st.SearchStrategy[Inputs]:
    """Cases whose requests reach positions up to about 100."""
    return st.builds(
        Inputs,
        requests=st.lists(requests(), min_size=1, max_size=5).map(tuple),
        steps=st.integers(1, 5),
        from_anchor=st.booleans(),
        block_size=st.sampled_from([1, 3, 4, 16]),
        columns=columns,
        max_model_len=st.just(max_model_len),
        padding=st.integers(0, 3),
        seed=st.integers(0, 2**31),
    )


LAST_FIT = Inputs((Request(computed=92, rows=5, rejected=0),))
"""Its three queries are the last positions below max_model_len."""


@given(cases(105, st.integers(105, 120)))
@example(Inputs((Request(0, 1),), padding=0))
@example(Inputs((Request(0, 30, sampled=0), Request(5, 4, 3)), from_anchor=False))
@example(Inputs((Request(3, 1),), steps=1, padding=9))
@example(LAST_FIT)
@example(replace(LAST_FIT, columns=25))
def test_prepare_dflash_inputs(case: Inputs) -> None:
    """Below the length limit, everything is upstream's."""
    assert not case.reaches_limit()
    compare(case.make)


def test_no_requests() -> None:
    """Without requests nothing is written, not even padding."""
    ours, untouched = Inputs(()).make(), Inputs(()).make()
    ours.run_ours()
    for name, buffer in untouched.arena.buffers.items():
        assert torch.equal(ours.arena.buffers[name], buffer), name


SHARED = (
    "out_input_ids_ptr",
    "out_query_positions_ptr",
    "out_query_start_loc_ptr",
    "out_context_positions_ptr",
    "out_sample_indices_ptr",
    "out_sample_pos_ptr",
    "out_sample_idx_mapping_ptr",
)
"""What the deviations leave alone."""


def run_both(case: Inputs) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return upstream's tensors and ours, after checking what must be equal."""
    theirs, ours = case.make(), case.make()
    theirs.run_upstream()
    ours.run_ours()
    for name in SHARED:
        assert torch.equal(theirs.arguments[name], ours.arguments[name]), name
    return dict(theirs.arguments), dict(ours.arguments)


def test_queries_past_the_length_limit() -> None:
    """Upstream wraps them into real slots; here they write no keys and values."""
    case = Inputs((Request(computed=95, rows=4),), max_model_len=100, columns=25)
    theirs, ours = run_both(case)
    last_block = int(ours["block_table_ptr"][0, 24]) * 4
    # Positions 99, 100, 101.
    upstream = [last_block + 3, last_block, last_block + 1]
    assert theirs["out_query_slot_mapping_ptr"][:3].tolist() == upstream
    assert ours["out_query_slot_mapping_ptr"][:3].tolist() == [last_block + 3, -1, -1]
    assert theirs["out_seq_lens_ptr"].tolist() == [102, 0, 0]
    assert ours["out_seq_lens_ptr"].tolist() == [100, 0, 0]


def test_limit_inside_the_table() -> None:
    """A table that reaches further than max_model_len changes nothing."""
    case = Inputs((Request(computed=95, rows=4),), max_model_len=100, columns=30)
    _, ours = run_both(case)
    assert ours["out_query_slot_mapping_ptr"][1:3].tolist() == [-1, -1]
    assert ours["out_seq_lens_ptr"].tolist() == [100, 0, 0]


def test_rows_past_the_block_table() -> None:
    """Upstream takes the last block once more; here there is no slot."""
    case = Inputs((Request(computed=30, rows=4),), columns=8)
    theirs, ours = run_both(case)
    last_block = int(ours["block_table_ptr"][0, 7]) * 4
    inside = [last_block + 2, last_block + 3]
    wrapped = [last_block, last_block + 1]
    context = "out_context_slot_mapping_ptr"
    assert theirs[context][:4].tolist() == [*inside, *wrapped]
    assert ours[context][:4].tolist() == [*inside, -1, -1]
    assert theirs["out_query_slot_mapping_ptr"][:2].tolist() == [
        last_block + 2,
        last_block + 3,
    ]
    assert ours["out_query_slot_mapping_ptr"][:3].tolist() == [-1, -1, -1]


@given(cases(95, st.integers(8, 110)))
def test_other_rows_at_the_limit(case: Inputs) -> None:
    """Wherever a row still has a slot, it is upstream's."""
    theirs, ours = run_both(case)
    for name in ("out_query_slot_mapping_ptr", "out_context_slot_mapping_ptr"):
        kept = ours[name] != -1
        assert torch.equal(theirs[name][kept], ours[name][kept]), name
    limited = theirs["out_seq_lens_ptr"].clamp(max=case.max_model_len)
    assert torch.equal(limited, ours["out_seq_lens_ptr"])


@pytest.mark.parametrize("from_anchor", [False, True])
def test_opcheck(from_anchor: bool) -> None:
    """The op keeps PyTorch's rules."""
    opcheck(Inputs((Request(0, 3), Request(8, 4, 2)), from_anchor=from_anchor).make())


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("block_size", 0, "block_size must be at least 1, but is 0"),
        ("max_num_reqs", 1, "max_num_reqs must be at least 2, but is 1"),
        ("max_num_tokens", 5, "max_num_tokens must be at least 6, but is 5"),
        ("num_speculative_steps", 2, "num_speculative_steps must be at least 3"),
        ("max_num_reqs", 9, "out_query_start_loc_ptr must be of at least 10 elements"),
        ("block_table_stride", 7, "of row stride 7 .* but is of row stride 32"),
        (
            "last_sampled_ptr",
            torch.zeros(4, dtype=torch.int32),
            "last_sampled_ptr must be Long, but is Int",
        ),
        (
            "num_rejected_ptr",
            torch.tensor([0, 4], dtype=torch.int32),
            r"num_rejected_ptr\[1\] must be in \[0, 4\), but is 4",
        ),
        (
            "idx_mapping_ptr",
            torch.tensor([0, -1], dtype=torch.int32),
            r"idx_mapping_ptr\[1\] must be in \[0, 4\), but is -1",
        ),
    ],
)
def test_bad_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = Inputs((Request(0, 3), Request(8, 4, 2))).make().replace(argument, value)
    with pytest.raises(ValueError, match=f"prepare_dflash_inputs: .*{message}"):
        case.run_ours()
