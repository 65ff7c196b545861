# SPDX-License-Identifier: Apache-2.0
"""Temperature and min_p against upstream's kernels."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, assert_same, opcheck, run_both, same_bits_or_nan
from oracle.logits import make_logits, make_rows

BLOCK = 1024  # upstream has 8192, which only makes its interpreter slower
EXTREMES = (math.inf, -math.inf, math.nan, -0.0)


@dataclass(frozen=True)
class Rows:
    """What decides a case of both kernels: rows, and their requests' settings."""

    vocab: int
    rows: int
    settings: tuple[float, ...]
    """One per request."""
    extremes: bool = False
    seed: int = 0
    spare: int = 3

    def make(self, kernel: str) -> Case:
        """Build the launch of `kernel`."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        logits = make_logits(arena, (self.rows, self.vocab), g, spare=self.spare)
        if self.extremes and self.rows:
            for value in EXTREMES:
                logits[0, torch.randint(self.vocab, (1,), generator=g)] = value
        requests = make_rows(self.rows, len(self.settings), g)
        settings = arena.tensor("settings", self.settings, torch.float32)
        arguments = {
            "logits_ptr": logits,
            "logits_stride": logits.stride(0),
            "expanded_idx_mapping_ptr": arena.tensor("requests", requests),
            "vocab_size": self.vocab,
        }
        if kernel == "temperature":
            arguments |= {"temperature_ptr": settings, "BLOCK_SIZE": BLOCK}
            grid = (self.rows, -(-self.vocab // BLOCK))
            return Case("sample.gumbel", "_temperature_kernel", grid, arguments, arena)
        arguments |= {"min_p_ptr": settings, "BLOCK_SIZE": 1024}
        return Case("sample.min_p", "_min_p_kernel", (self.rows,), arguments, arena)

    def make_temperature(self) -> Case:
        """Build a launch of _temperature_kernel."""
        return self.make("temperature")

    def make_min_p(self) -> Case:
        """Build a launch of _min_p_kernel."""
        return self.make("min_p")


def rows_with(setting: st.SearchStrategy[float]) -> st.SearchStrategy[Rows]:
    """Draw cases whose requests have such settings."""
    return st.builds(
        Rows,
        vocab=st.one_of(st.integers(1, 90), st.sampled_from([1023, 1024, 1025, 3000])),
        rows=st.integers(0, 5),
        settings=st.lists(setting, min_size=1, max_size=4).map(tuple),
        extremes=st.booleans(),
        seed=st.integers(0, 2**31),
    )


TEMPERATURES = st.sampled_from([0.0, 1.0]) | st.floats(2**-6, 2.0, width=32)
MIN_PS = st.sampled_from([0.0, 1.0]) | st.floats(2**-20, 1.0, width=32)


@given(rows_with(TEMPERATURES))
@example(Rows(BLOCK + 1, 3, (0.7,)))
@example(Rows(2 * BLOCK, 2, (1.0, 0.3)))
@example(Rows(5, 4, (0.0, 1.0)))
@example(Rows(1, 0, (0.5,)))
def test_temperature(case: Rows) -> None:
    """Rows are divided, to the bit; rows of temperature 0 and 1 are left alone."""
    theirs, ours = run_both(case.make_temperature)
    assert_same(theirs, ours, {"logits": same_bits_or_nan} if case.extremes else None)


@given(rows_with(MIN_PS))
@example(Rows(BLOCK + 1, 3, (0.2,)))
@example(Rows(7, 4, (0.0,)))
@example(Rows(7, 4, (1.0,)))
@example(Rows(1, 0, (0.5,)))
def test_min_p(case: Rows) -> None:
    """What is too unlikely becomes -inf.

    The thresholds' logarithms may differ by 4 ulp of f32 (NumPy's is good to 4, libm's
    to 1), so that a logit as close as this to its threshold may go either way.
    """
    case = replace(case, extremes=False)
    theirs, ours = run_both(case.make_min_p)
    a = theirs.arguments
    before = case.make_min_p().arguments["logits_ptr"].double()
    min_p = a["min_p_ptr"][a["expanded_idx_mapping_ptr"]].double()
    threshold = before.amax(-1, keepdim=True) + min_p.log()[:, None]
    close = (before - threshold).abs() <= 4 * 2**-23 * threshold.abs().clamp(min=16)
    ours_logits = ours.arguments["logits_ptr"]
    ours_logits.copy_(torch.where(close, a["logits_ptr"], ours_logits))
    assert_same(theirs, ours)


def test_min_p_of_nan() -> None:
    """A NaN stays as it is, and decides nothing for the others."""
    case = Rows(8, 1, (0.5,)).make_min_p()
    logits = case.arguments["logits_ptr"]
    logits.copy_(torch.tensor([[math.nan, 1.0, 0.9, 0.3, -1.0, 0.0, -math.inf, 0.5]]))
    case.run_ours()
    kept = [1.0, 0.9, -math.inf, -math.inf, -math.inf, -math.inf, 0.5]
    assert logits[0, 1:].tolist() == pytest.approx(kept)
    assert math.isnan(logits[0, 0])


@pytest.mark.parametrize("kernel", ["temperature", "min_p"])
def test_opcheck(kernel: str) -> None:
    """The op keeps PyTorch's rules."""
    opcheck(Rows(9, 2, (0.5, 0.0), spare=0).make(kernel))


LONG = torch.zeros(2, dtype=torch.int64)
FAR = torch.tensor([1, 2], dtype=torch.int32)


@pytest.mark.parametrize("kernel", ["temperature", "min_p"])
@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("vocab_size", 13, "logits_ptr must be of at least 13 columns"),
        ("logits_ptr", torch.zeros(2, 12).half(), "logits_ptr must be Float, but is"),
        ("logits_stride", 9, "logits_ptr must be of row stride 9"),
        ("expanded_idx_mapping_ptr", LONG, "_ptr must be Int, but is Long"),
        ("expanded_idx_mapping_ptr", FAR, r"_ptr\[1\] must be in \[0, 2\), but is 2"),
        ("expanded_idx_mapping_ptr", FAR[:1], "_ptr must be of at least 2 elements"),
    ],
)
def test_bad_argument(kernel: str, argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = Rows(9, 2, (0.5, 0.0)).make(kernel).replace(argument, value)
    with pytest.raises(ValueError, match=f"{kernel}: .*{message}"):
        case.run_ours()
