# SPDX-License-Identifier: Apache-2.0
"""Gumbel sampling against upstream's kernel."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, assert_same, compare, opcheck, run_both

BLOCK = 1024
F32 = torch.float32


@dataclass(frozen=True)
class Sample:
    """What decides a gumbel_sample case."""

    vocab: int
    temperatures: tuple[float, ...]
    """One per row; None of the rows shares its state with another one."""
    dropped: tuple[int, ...] = ()
    """Rows without a request."""
    dtype: torch.dtype = F32
    divide: bool = True
    fp64: bool = False
    processed: bool = False
    col: str = "none"
    """none, i32, i64: one for all rows; rows: one per row."""
    wide_pos: bool = True
    one_row: bool = False
    """All rows are one row in memory."""
    ties: bool = False
    holes: bool = False
    """Two of three logits are -inf, as after top-k."""
    block: int = BLOCK
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        n, steps = len(self.temperatures), 3
        max_num_reqs = n + 2
        blocks = -(-self.vocab // self.block)
        values = torch.randn((1 if self.one_row else n), self.vocab, generator=g) * 3
        if self.ties:
            values = values.round().clamp(max=4)
        if self.holes:
            values[torch.rand(values.shape, generator=g) < 2 / 3] = -torch.inf
        logits = arena.tensor("logits", values, self.dtype)
        if self.one_row:
            logits = logits.expand(n, -1)
        rows = torch.randperm(max_num_reqs, generator=g)[:n]
        temperature = arena.blank("temperature", (max_num_reqs,), F32)
        temperature[rows] = torch.tensor(self.temperatures, dtype=F32)
        rows[list(self.dropped)] = -1
        processed = col = None
        if self.processed:
            shape = (max_num_reqs, steps, self.vocab)
            processed = arena.blank("processed", shape, F32)
        cols = torch.randint(steps, (n,), generator=g)
        if self.col == "rows":
            col = arena.tensor("col", cols)
        elif self.col != "none":
            dtype = torch.int32 if self.col == "i32" else torch.int64
            col = arena.tensor("col", steps - 1, dtype)
        limit = 2**62 if self.wide_pos else 2**31
        argmax = arena.blank("argmax", (n, blocks + 1), torch.int64)
        max_type = torch.float64 if self.fp64 else F32
        top = arena.blank("max", (n, blocks + 1), max_type)
        arguments = {
            "local_argmax_ptr": argmax,
            "local_argmax_stride": argmax.stride(0),
            "local_max_ptr": top,
            "local_max_stride": top.stride(0),
            "processed_logits_ptr": processed,
            "processed_logits_stride": 0 if processed is None else processed.stride(0),
            "processed_logits_col_ptr": col,
            "logits_ptr": logits,
            "logits_stride": logits.stride(0),
            "expanded_idx_mapping_ptr": arena.tensor("order", rows),
            "seeds_ptr": arena.tensor(
                "seeds",
                torch.randint(-(2**63), 2**63 - 1, (max_num_reqs,), generator=g),
                torch.int64,
            ),
            "pos_ptr": arena.tensor(
                "pos",
                torch.randint(limit, (n,), generator=g),
                torch.int64 if self.wide_pos else torch.int32,
            ),
            "temp_ptr": temperature,
            "vocab_size": self.vocab,
            "BLOCK_SIZE": self.block,
            "APPLY_TEMPERATURE": self.divide,
            "USE_FP64": self.fp64,
            "PER_TOKEN_COL": self.col == "rows",
        }
        return Case(
            "sample.gumbel", "_gumbel_sample_kernel", (n, blocks), arguments, arena
        )


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Draw a case."""
    temperature = st.sampled_from([0.0, 0.0, 0.5, 0.7, 1.0, 1.7])
    temperatures = draw(st.lists(temperature, max_size=3))
    dropped = [i for i in range(len(temperatures)) if draw(st.integers(0, 4)) == 0]
    vocab = st.one_of(st.integers(1, 80), st.sampled_from([1023, 1024, 1025, 2300]))
    processed = draw(st.booleans())
    cols = ["none", "i32", "i64", "rows"] if processed else ["none"]
    return Sample(
        vocab=draw(vocab),
        temperatures=tuple(temperatures),
        dropped=tuple(dropped),
        dtype=draw(st.sampled_from([F32, torch.bfloat16, torch.float16])),
        divide=draw(st.booleans()),
        fp64=draw(st.booleans()),
        processed=processed,
        col=draw(st.sampled_from(cols)),
        wide_pos=draw(st.booleans()),
        one_row=draw(st.booleans()),
        ties=draw(st.booleans()),
        holes=draw(st.booleans()),
        block=draw(st.sampled_from([BLOCK, BLOCK, 256, 2 * BLOCK])),
        seed=draw(st.integers(0, 2**31)),
    )


def bound(case: Sample) -> float:
    """How far local_max may be off: one ulp of the largest sum of logit and noise.

    The logarithms in the noise are NumPy's on one side and ours on the other. Without
    noise there is nothing to be off.
    """
    if not any(case.temperatures):
        return 0.0
    return 2.0**-46 if case.fp64 else 2.0**-18


def check(case: Sample) -> None:
    """Compare both sides; tokens may differ where their values are as good as equal."""
    theirs, ours = run_both(case.make)
    expected, found = (side.arena.buffers["max"] for side in (theirs, ours))
    tied = (expected != found) & ((expected - found).abs() <= bound(case))
    tokens = ours.arena.buffers["argmax"]
    tokens.copy_(torch.where(tied, theirs.arena.buffers["argmax"], tokens))
    close = {"max": lambda a, b: (a == b) | ((a - b).abs() <= bound(case))}
    assert_same(theirs, ours, close)


GREEDY = Sample(2300, (0.0, 0.0, 0.0))
SAMPLED = Sample(1500, (0.7, 0.0, 1.0), processed=True, col="i32")


@given(samples())
@example(GREEDY)
@example(replace(GREEDY, temperatures=()))
@example(replace(GREEDY, ties=True, dtype=torch.bfloat16))
@example(replace(GREEDY, one_row=True, dropped=(1,), processed=True))
@example(replace(GREEDY, ties=True, block=2 * BLOCK))
@example(SAMPLED)
@example(replace(SAMPLED, fp64=True, col="rows", dtype=torch.float16))
@example(replace(SAMPLED, divide=False, wide_pos=False, col="i64", dropped=(0,)))
def test_gumbel_sample(case: Sample) -> None:
    """The same tokens, and the same processed logits to the bit."""
    check(case)


@pytest.mark.parametrize("dtype", [F32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 1024, 1100])
def test_nothing_above_minus_infinity(vocab: int, dtype: torch.dtype) -> None:
    """A block of -inf alone gives its first token."""
    case = replace(GREEDY, vocab=vocab, dtype=dtype)

    def make() -> Case:
        made = case.make()
        made.arguments["logits_ptr"].fill_(-torch.inf)
        return made

    compare(make)


def test_nan_never_wins() -> None:
    """Upstream does not say what NaN does; here it is not the largest."""
    case = replace(GREEDY, vocab=200).make()
    case.arguments["logits_ptr"][:, ::2] = torch.nan
    case.run_ours()
    odd = case.arguments["logits_ptr"][:, 1::2].argmax(-1) * 2 + 1
    assert torch.equal(case.arguments["local_argmax_ptr"][:, 0], odd)


def test_every_half() -> None:
    """All finite f16 values reach the processed logits as they are."""
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    halves = bits.view(torch.float16)
    halves = halves[~halves.isnan()]
    case = Sample(len(halves), (0.0,), dtype=torch.float16, processed=True).make()
    case.arguments["logits_ptr"].copy_(halves)
    case.run_ours()
    row = int(case.arguments["expanded_idx_mapping_ptr"][0])
    stored = case.arguments["processed_logits_ptr"][row, 0]
    assert torch.equal(stored.view(torch.int32), halves.float().view(torch.int32))


def test_launches_are_split_between_threads() -> None:
    """A launch that is worth it gives the same on two threads as on one."""
    case = Sample(40 * BLOCK + 7, (0.7,) * 16)
    one, two = case.make(), case.make()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one.run_ours()
        torch.set_num_threads(2)
        two.run_ours()
    finally:
        torch.set_num_threads(threads)
    assert_same(one, two)


Draws = Callable[[Sequence[tuple[int, int]]], list[tuple[int, float]]]


@pytest.fixture(scope="module")
def draws(tmp_path_factory: pytest.TempPathFactory) -> Draws:
    """The words and the uniform draws of (seed, offset) pairs, by the kernels' code."""
    here = Path(__file__)
    program = tmp_path_factory.mktemp("philox") / "table"
    include = here.parents[2] / "csrc"
    source = here.with_name("philox_table.cpp")
    command = ["c++", "-std=c++17", f"-I{include}", str(source), "-o", str(program)]
    subprocess.run(command, check=True)

    def run(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
        numbers = [str(number % 2**64) for pair in pairs for number in pair]
        out = subprocess.run([program, *numbers], check=True, capture_output=True)
        lines = [line.split() for line in out.stdout.decode().splitlines()]
        return [(int(word), float.fromhex(unit)) for word, unit in lines]

    return run


def test_philox(draws: Draws) -> None:
    """Known answers of tl.randint and tl.rand, from Triton's interpreter."""
    table = {
        (0, 0): (1713891541, float.fromhex("0x1.989fa2p-1")),
        (42, 0): (2632642643, float.fromhex("0x1.8c543cp-1")),
        (42, 1): (4242219303, float.fromhex("0x1.926f6ap-6")),
        (0xABCD, 7): (78255843, float.fromhex("0x1.2a85b6p-5")),
        (-1, 5): (1851720930, float.fromhex("0x1.b97c12p-1")),
        (2**40 + 7, 2**33 + 3): (3968613133, float.fromhex("0x1.373c4ep-3")),
    }
    assert draws(list(table)) == list(table.values())


def test_noise_is_within_one_ulp(draws: Draws) -> None:
    """The largest noise of each block, against double precision."""
    case = Sample(200 * BLOCK, (1.0,)).make()
    case.arguments["logits_ptr"].zero_()
    case.run_ours()
    row = int(case.arguments["expanded_idx_mapping_ptr"])
    seed = int(case.arguments["seeds_ptr"][row])
    tokens = case.arguments["local_argmax_ptr"][0, :-1]
    found = case.arguments["local_max_ptr"][0, :-1]
    [(word, _)] = draws([(seed, int(case.arguments["pos_ptr"]))])
    uniform = [unit for _, unit in draws([(word, int(t)) for t in tokens])]
    exact = -(-torch.log1p(-torch.tensor(uniform, dtype=torch.float64))).log()
    ulp = torch.nextafter(found, torch.tensor(torch.inf)) - found
    assert bool(((found - exact).abs() <= ulp).all())


SAMPLE_CASES = [GREEDY, SAMPLED, replace(SAMPLED, fp64=True, col="rows")]


@pytest.mark.parametrize("case", SAMPLE_CASES)
def test_opcheck(case: Sample) -> None:
    """The op keeps PyTorch's rules."""
    opcheck(case.make())


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        (
            "logits_ptr",
            torch.zeros(3, 1500, dtype=torch.float64),
            "logits_ptr must be Float, Half or BFloat16, but is Double",
        ),
        (
            "vocab_size",
            1501,
            r"logits_ptr must be of at least 1501 columns, but is of shape \[3, 1500\]",
        ),
        ("USE_FP64", True, "local_max_ptr must be Double, but is Float"),
        (
            "pos_ptr",
            torch.zeros(2, dtype=torch.int64),
            "pos_ptr must be of at least 3 elements, but is of 2",
        ),
        (
            "processed_logits_col_ptr",
            torch.tensor(3),
            r"processed_logits_col_ptr\[0\] must be in \[0, 3\), but is 3",
        ),
        (
            "expanded_idx_mapping_ptr",
            torch.tensor([0, -1, 5], dtype=torch.int32),
            r"expanded_idx_mapping_ptr\[2\] must be in \[0, 5\), but is 5",
        ),
    ],
)
def test_bad_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    with pytest.raises(ValueError, match=f"gumbel_sample: {message}"):
        SAMPLED.make().replace(argument, value).run_ours()
