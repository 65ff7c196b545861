# SPDX-License-Identifier: Apache-2.0
"""Log probabilities, ranks and their tokens against upstream's kernels."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, assert_same, compare, opcheck, run_both
from oracle.logits import make_logits, make_rows

F32 = torch.float32
I64 = torch.int64
DTYPES = st.sampled_from([F32, torch.float16, torch.bfloat16])
VOCABS = st.integers(1, 90) | st.sampled_from([1023, 1024, 1025, 2300])


@dataclass(frozen=True)
class Rows:
    """Rows of logits with some tokens of each."""

    vocab: int
    rows: int
    tokens: int = 1
    dtype: torch.dtype = F32
    one_row: bool = False
    """All rows are one row in memory."""
    masked: float = 0.1
    value: float | None = None
    """Put into one place of each row."""
    seed: int = 0
    spare: int = 3

    def logits(self, arena: Arena, g: torch.Generator) -> torch.Tensor:
        """Make the logits."""
        rows = 1 if self.one_row else self.rows
        logits = make_logits(
            arena, (rows, self.vocab), g, self.dtype, self.masked, self.spare
        )
        if self.value is not None:
            at = torch.randint(self.vocab, (rows,), generator=g)
            logits[torch.arange(rows), at] = self.value
        return logits.expand(self.rows, -1) if self.one_row else logits

    def make_log_softmax(self) -> Case:
        """Build a launch of _topk_log_softmax_kernel."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        logits = self.logits(arena, g)
        shape = (self.rows, self.tokens)
        ids = torch.randint(self.vocab, shape, generator=g)
        arguments = {
            "output_ptr": arena.blank("output", shape, F32),
            "logits_ptr": logits,
            "logits_stride": logits.stride(0),
            "topk_ids_ptr": arena.tensor("ids", ids, I64),
            "topk": self.tokens,
            "vocab_size": self.vocab,
            "BLOCK_SIZE": 1024,
            "TOPK_BLOCK_SIZE": min(1 << (self.tokens - 1).bit_length(), 1024),
        }
        grid = (self.rows,)
        return Case(
            "sample.logprob", "_topk_log_softmax_kernel", grid, arguments, arena
        )

    def make_ranks(self) -> Case:
        """Build a launch of _ranks_kernel."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        logits = self.logits(arena, g)
        ids = torch.randint(self.vocab, (self.rows,), generator=g)
        arguments = {
            "output_ptr": arena.blank("output", (self.rows,), I64),
            "logits_ptr": logits,
            "logits_stride": logits.stride(0),
            "token_ids_ptr": arena.tensor("ids", ids, I64),
            "vocab_size": self.vocab,
            "BLOCK_SIZE": 8192,
        }
        return Case("sample.logprob", "_ranks_kernel", (self.rows,), arguments, arena)

    def make_num_nans(self) -> Case:
        """Build a launch of _num_nans_kernel; half of the logits are NaN."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        logits = self.logits(arena, g)
        nans = torch.rand(logits.shape, generator=g) < 0.5
        signs = torch.where(torch.rand(logits.shape, generator=g) < 0.5, -1.0, 1.0)
        logits.copy_(torch.where(nans, (signs * math.nan).to(self.dtype), logits))
        arguments = {
            "logits_ptr": logits,
            "logits_stride": logits.stride(0),
            "num_nans_ptr": arena.blank("output", (self.rows,)),
            "vocab_size": self.vocab,
            "BLOCK_SIZE": 8192,
        }
        grid = (self.rows,)
        return Case("metrics.logits", "_num_nans_kernel", grid, arguments, arena)


def rows_of_any_type() -> st.SearchStrategy[Rows]:
    """Draw a case."""
    return st.builds(
        Rows,
        vocab=VOCABS,
        rows=st.integers(0, 3),
        tokens=st.integers(1, 20),
        dtype=DTYPES,
        one_row=st.booleans(),
        masked=st.sampled_from([0.0, 0.1, 0.9]),
        seed=st.integers(0, 2**31),
    )


def run_on_same_logits(case: Rows, make: Callable[[Rows], Case]) -> tuple[Case, Case]:
    """Launch both sides on the same values; return them without the logits.

    The interpreter keeps bf16 as unsigned integers, and compares them as such, so that
    upstream's side has the logits in f32, with the same order and the same ties. Ours
    must leave them as they are.
    """
    ours, theirs = make(case), make(replace(case, dtype=F32))
    rows = slice(1 if case.one_row else case.rows)
    theirs.arguments["logits_ptr"][rows] = ours.arguments["logits_ptr"][rows]
    before = ours.arena.buffers["logits"].clone()
    theirs.run_upstream()
    ours.run_ours()
    after = ours.arena.buffers.pop("logits")
    del theirs.arena.buffers["logits"]
    assert torch.equal(before.view(torch.uint8), after.view(torch.uint8))
    return theirs, ours


@given(rows_of_any_type())
@example(Rows(1, 1))
@example(Rows(9, 0))
@example(Rows(2049, 2, 1500, torch.bfloat16))
@example(Rows(40, 2, 3, masked=1.0))
@example(Rows(40, 2, 40, value=math.nan, masked=0.0))
@example(Rows(40, 2, 40, torch.float16, value=math.inf))
@example(Rows(40, 2, 40, value=-1e30))
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_topk_log_softmax(case: Rows) -> None:
    """Within 16 ulp of f32 at 1 or at the largest term, whichever is larger.

    Upstream's is an f32 sum of NumPy's exponentials, each good to 2.4 ulp, over up to 3
    blocks of 1024: the sum's relative error, some 10 ulp, is its logarithm's absolute
    one. Ours, against f64, is within 2 ulp.
    """
    theirs, ours = run_on_same_logits(case, Rows.make_log_softmax)
    ids = ours.arguments["topk_ids_ptr"]
    logits = ours.arguments["logits_ptr"].double()
    exact = logits.log_softmax(-1).gather(-1, ids)
    terms = (logits.gather(-1, ids) - logits.amax(-1, keepdim=True)).abs()
    ulp = 2**-23 * torch.maximum(exact.abs(), terms).clamp(min=1)
    for side, ulps in ((theirs, 16), (ours, 2)):
        found = side.arguments["output_ptr"].double()
        error = (found - exact).abs() <= ulps * ulp
        same = (found == exact) | (found.isnan() & exact.isnan())
        assert (error | same).all()
    theirs.arguments["output_ptr"].copy_(ours.arguments["output_ptr"])
    assert_same(theirs, ours)


@given(rows_of_any_type())
@example(Rows(1, 1, masked=0.0))
@example(Rows(9, 0))
@example(Rows(8192, 2, masked=1.0))
@example(Rows(8195, 2, masked=0.0))
@example(Rows(40, 40, value=math.nan))
@example(Rows(40, 40, dtype=torch.float16, value=math.inf))
def test_ranks(case: Rows) -> None:
    """Ranks are upstream's, but for a token at -inf: see the next test."""
    theirs, ours = run_on_same_logits(case, Rows.make_ranks)
    a = ours.arguments
    chosen = a["logits_ptr"].gather(-1, a["token_ids_ptr"][:, None])[:, 0]
    out = theirs.arguments["output_ptr"]
    nans = a["logits_ptr"].isnan().sum(-1)
    out.copy_(torch.where(chosen.isneginf(), case.vocab - nans, out))
    assert_same(theirs, ours)


def test_rank_of_a_forbidden_token_counts_the_vocabulary_only() -> None:
    """A deviation: upstream counts the lanes that pad its last block as well."""

    def make() -> Case:
        case = Rows(4, 1).make_ranks()
        case.arguments["logits_ptr"].copy_(torch.tensor([[1.0, 2.0, -math.inf, 0.0]]))
        case.arguments["token_ids_ptr"].fill_(2)
        return case

    theirs, ours = run_both(make)
    assert ours.arguments["output_ptr"].item() == 4
    assert theirs.arguments["output_ptr"].item() == 8192


@pytest.mark.parametrize("token", [-1, 9, 2**40])
@pytest.mark.parametrize("dtype", [F32, torch.float16, torch.bfloat16])
def test_token_outside_the_vocabulary_has_no_probability(
    token: int, dtype: torch.dtype
) -> None:
    """A deviation: upstream reads what lies around the row."""
    case = Rows(9, 2, 3, dtype, masked=0.0).make_log_softmax()
    case.arguments["topk_ids_ptr"][:, 1] = token
    case.run_ours()
    out = case.arguments["output_ptr"]
    assert out[:, 1].isneginf().all()
    assert out[:, [0, 2]].isfinite().all()
    case = Rows(9, 2, dtype=dtype).make_ranks()
    case.arguments["token_ids_ptr"].fill_(token)
    case.run_ours()
    assert case.arguments["output_ptr"].tolist() == [9, 9]


def test_upstream_reads_past_the_row() -> None:
    """What the test before deviates from."""
    case = Rows(9, 2, 1, masked=0.0).make_log_softmax()
    case.arguments["topk_ids_ptr"].fill_(9)
    case.run_upstream()
    assert (case.arguments["output_ptr"] < -7000).all()


@given(rows_of_any_type())
@example(Rows(8193, 2))
@example(Rows(1, 0))
def test_num_nans(case: Rows) -> None:
    """NaNs of both signs are counted, and infinities are none."""
    theirs, ours = run_on_same_logits(replace(case, one_row=False), Rows.make_num_nans)
    assert_same(theirs, ours)


@dataclass(frozen=True)
class Fill:
    """What decides a fill_logprob_token_ids case."""

    rows: int
    own: tuple[int, ...]
    """How many tokens of its own each request has."""
    topk: int
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        cols = max(self.topk, *self.own)
        ids = arena.blank("out_ids", (self.rows, 1 + cols), I64)
        valid = arena.blank("out_valid", (self.rows, 1 + cols), torch.bool)
        own = torch.randint(1000, (len(self.own), 12), generator=g)
        own = arena.tensor("own", own)
        topk = torch.randint(1000, (self.rows, self.topk), generator=g)
        topk = arena.tensor("topk", topk) if self.topk else own
        sampled = torch.randint(1000, (self.rows,), generator=g)
        arguments = {
            "out_token_ids_ptr": ids,
            "out_token_ids_stride": ids.stride(0),
            "out_valid_mask_ptr": valid,
            "out_valid_mask_stride": valid.stride(0),
            "sampled_token_ids_ptr": arena.tensor("sampled", sampled, I64),
            "topk_indices_ptr": topk,
            "topk_indices_stride": topk.stride(0),
            "expanded_idx_mapping_ptr": arena.tensor(
                "requests", make_rows(self.rows, len(self.own), g)
            ),
            "num_per_req_token_ids_ptr": arena.tensor("num_own", self.own),
            "per_req_token_ids_ptr": own,
            "per_req_token_ids_stride": own.stride(0),
            "NUM_TOPK": self.topk,
            "PADDED_COLS": 1 << max(cols - 1, 0).bit_length(),
        }
        kernel = "_fill_logprob_token_ids_kernel"
        return Case("sample.logprob", kernel, (self.rows,), arguments, arena)


@given(
    st.builds(
        Fill,
        rows=st.integers(0, 5),
        own=st.lists(st.just(0) | st.integers(1, 12), min_size=2, max_size=4).map(
            tuple
        ),
        topk=st.integers(0, 9),
        seed=st.integers(0, 2**31),
    )
)
@example(Fill(3, (0, 0), 0))
@example(Fill(3, (12, 0), 0))
@example(Fill(4, (3, 0), 9))
def test_fill_logprob_token_ids(case: Fill) -> None:
    """The sampled token, then the request's own, else the top-k; the rest stays."""
    compare(case.make)


@dataclass(frozen=True)
class Prompt:
    """What decides a prompt_logprobs_token_ids case."""

    queries: tuple[tuple[int, int], ...]
    """Tokens computed before, and now, for each request of the batch."""
    spare: int = 1
    """Tokens that there is room for behind the longest request."""
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        n = len(self.queries) + 1
        order = torch.randperm(n, generator=g)[: len(self.queries)]
        computed = torch.zeros(n, dtype=I64)
        computed[order] = torch.tensor([q[0] for q in self.queries], dtype=I64)
        lens = torch.tensor([0, *(q[1] for q in self.queries)])
        width = max([sum(q) for q in self.queries], default=0) + self.spare
        tokens = torch.randint(1, 1000, (n, width), generator=g)
        tokens = arena.tensor("tokens", tokens)
        arguments = {
            "prompt_logprobs_token_ids_ptr": arena.blank(
                "output", (int(lens.sum()),), I64
            ),
            "query_start_loc_ptr": arena.tensor("starts", lens.cumsum(0)),
            "idx_mapping_ptr": arena.tensor("order", order),
            "num_computed_tokens_ptr": arena.tensor("computed", computed),
            "all_token_ids_ptr": tokens,
            "all_token_ids_stride": tokens.stride(0),
            "BLOCK_SIZE": 1024,
        }
        kernel = "_prompt_logprobs_token_ids_kernel"
        grid = (len(self.queries),)
        return Case("sample.prompt_logprob", kernel, grid, arguments, arena)


QUERIES = st.tuples(st.just(0) | st.integers(1, 40), st.integers(0, 30))


@given(
    st.builds(
        Prompt,
        queries=st.lists(QUERIES, max_size=5).map(tuple),
        spare=st.integers(1, 4),
        seed=st.integers(0, 2**31),
    )
)
@example(Prompt(((0, 1025), (3000, 1024), (7, 0)), 1))
@example(Prompt((), 1))
def test_prompt_logprobs_token_ids(case: Prompt) -> None:
    """Each position gets the token after it."""
    compare(case.make)


def test_no_prompt_token_is_read_past_the_row() -> None:
    """A deviation: upstream reads on into what lies behind the request's tokens."""
    theirs, ours = run_both(Prompt(((3, 5),), spare=0).make)
    expected, found = (
        side.arguments["prompt_logprobs_token_ids_ptr"] for side in (theirs, ours)
    )
    assert torch.equal(expected[:-1], found[:-1])
    assert found[-1] == 0
    assert expected[-1] != 0


GOOD = {
    "topk_log_softmax": Rows(9, 2, 3, spare=0).make_log_softmax,
    "ranks": Rows(9, 2, spare=0).make_ranks,
    "num_nans": Rows(9, 2, spare=0).make_num_nans,
    "fill_logprob_token_ids": Fill(2, (0, 3), 2).make,
    "prompt_logprobs_token_ids": Prompt(((3, 5), (0, 2))).make,
}


@pytest.mark.parametrize("op", GOOD)
def test_opcheck(op: str) -> None:
    """The op keeps PyTorch's rules."""
    opcheck(GOOD[op]())


def ints(*values: int) -> torch.Tensor:
    """Return an i32 tensor."""
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("op", "argument", "value", "message"),
    [
        ("topk_log_softmax", "topk", 4, "output_ptr must be of at least 8 elements"),
        ("topk_log_softmax", "vocab_size", 10, "logits_ptr must be of at least 10 col"),
        (
            "topk_log_softmax",
            "topk_ids_ptr",
            ints(1, 2),
            "topk_ids_ptr must be Long, but is Int",
        ),
        (
            "ranks",
            "logits_ptr",
            torch.zeros(2, 9).double(),
            "logits_ptr must be Float, Half or BFloat16, but is Double",
        ),
        ("ranks", "logits_stride", 5, "logits_ptr must be of row stride 5"),
        ("num_nans", "num_nans_ptr", ints(1), "num_nans_ptr must be of at least 2 el"),
        ("fill_logprob_token_ids", "NUM_TOPK", 4, "out_token_ids_ptr must be of at"),
        (
            "fill_logprob_token_ids",
            "num_per_req_token_ids_ptr",
            ints(4, 4),
            r"num_per_req_token_ids_ptr\[\d\] must be in \[0, 4\), but is 4",
        ),
        (
            "prompt_logprobs_token_ids",
            "query_start_loc_ptr",
            ints(0, 5, 8),
            r"query_start_loc_ptr\[2\] must be in \[5, 8\), but is 8",
        ),
        (
            "prompt_logprobs_token_ids",
            "idx_mapping_ptr",
            ints(0, -1),
            r"idx_mapping_ptr\[1\] must be in \[0, 3\), but is -1",
        ),
    ],
)
def test_bad_argument(op: str, argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = GOOD[op]().replace(argument, value)
    with pytest.raises(ValueError, match=f"{op}: {message}"):
        case.run_ours()
