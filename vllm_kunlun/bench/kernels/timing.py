# SPDX-License-Identifier: Apache-2.0
"""How a cell is checked and measured."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vllm_kunlun.bench.kernels.case import Case, Cell, Size
from vllm_kunlun.launch import KunlunKernels

LEAST_ROUNDS = 5
MOST_ROUNDS = 2000
MEMORY = 4 * 2**30
"""Bytes that a cell may need."""


@dataclass(frozen=True)
class Row:
    """What was found for a case at a size; times are medians, in microseconds."""

    kernel: str
    baseline: str
    requests: int
    vocabulary: int | None
    ours: float | None = None
    torch: float | None = None
    ratio: float | None = None
    """The median of torch / ours of each round."""
    memory_pass: float | None = None
    """One pass over the same memory."""
    passes: float | None = None
    """The median of ours / that pass of each round."""
    rounds: int = 0
    skipped: str | None = None
    """Why nothing was measured."""


def measure(case: Case, size: Size, seconds: float) -> Row:
    """Check one cell and measure it for about `seconds`.

    Raises:
        RuntimeError: ours and the baseline do not agree.
    """
    identity = (case.name, case.baseline, size.requests, size.vocabulary)
    needed = case.memory(size)
    if needed > MEMORY:
        reason = f"needs {needed / 2**30:.1f} GiB, more than {MEMORY / 2**30:.0f} GiB"
        return Row(*identity, skipped=reason)
    cell = case.build(size)
    ours = launcher(case, cell)
    check(case, size, cell, ours)
    times = time_rounds(cell, ours, seconds)
    medians = [statistics.median(side) * 1e6 for side in times]
    row = {
        "ours": medians[0],
        "torch": medians[1],
        "ratio": median_ratio(times[1], times[0]),
        "rounds": len(times[0]),
    }
    if len(times) > 2:
        row |= {"memory_pass": medians[2], "passes": median_ratio(times[0], times[2])}
    return Row(*identity, **row)  # type: ignore[arg-type]


def launcher(case: Case, cell: Cell) -> Callable[[], None]:
    """Return a call of ours as the seam makes it, with what upstream does after it."""
    launch = KunlunKernels().bind(case.module, case.kernel, tuple(cell.arguments))
    assert launch is not None
    if cell.finish is None:
        return lambda: launch(cell.grid, cell.arguments)
    finish = cell.finish

    def launch_and_finish() -> None:
        launch(cell.grid, cell.arguments)
        finish()

    return launch_and_finish


def check(case: Case, size: Size, cell: Cell, ours: Callable[[], None]) -> None:
    """Compare what ours and the baseline leave behind.

    Raises:
        RuntimeError: it differs.
    """
    before = [t.clone() for t in cell.writes]
    ours()
    found = [t.clone() for t in cell.writes]
    for tensor, was in zip(cell.writes, before, strict=True):
        tensor.copy_(was)
    cell.baseline()
    for i, (tensor, ours_left) in enumerate(zip(cell.writes, found, strict=True)):
        if not same(tensor, ours_left, cell.tolerance):
            raise RuntimeError(
                f"{case.name} at {size.requests} requests does other work than its "
                f"baseline (output {i} differs): the benchmark says nothing, please "
                "report it."
            )
    for tensor, was in zip(cell.writes, before, strict=True):
        tensor.copy_(was)


def same(expected: torch.Tensor, found: torch.Tensor, tolerance: float) -> bool:
    """Whether two results agree: integers exactly, NaN with NaN."""
    if not expected.is_floating_point():
        return bool(torch.equal(expected, found))
    if tolerance == 0:
        differs = (expected != found) & ~(expected.isnan() & found.isnan())
        return not bool(differs.any())
    return bool(
        torch.allclose(expected, found, rtol=tolerance, atol=tolerance, equal_nan=True)
    )


def time_rounds(
    cell: Cell, ours: Callable[[], None], seconds: float
) -> list[list[float]]:
    """Time ours, the baseline and the pass over memory in turn, round by round."""
    calls: list[Callable[[], Any]] = [ours, cell.baseline]
    if cell.reads or cell.changes:
        calls.append(lambda: pass_over(cell.reads, cell.changes))
    originals = [t.clone() for t in cell.restored]
    times: list[list[float]] = [[] for _ in calls]
    collects = gc.isenabled()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        for i in range(-1, MOST_ROUNDS):
            # Each goes first as often as the others; the first round warms up.
            for j in range(len(calls)):
                at = (i + j) % len(calls)
                for tensor, original in zip(cell.restored, originals, strict=True):
                    tensor.copy_(original)
                started = time.perf_counter()
                calls[at]()
                took = time.perf_counter() - started
                if i >= 0:
                    times[at].append(took)
            if i + 1 >= LEAST_ROUNDS and time.perf_counter() > end:
                break
    finally:
        if collects:
            gc.enable()
    return times


def pass_over(reads: Sequence[torch.Tensor], changes: Sequence[torch.Tensor]) -> None:
    """Read all of some tensors, and read and write all of others."""
    for tensor in reads:
        # A sum of integers is not one pass: torch widens them.
        tensor.sum() if tensor.is_floating_point() else tensor.max()
    for tensor in changes:
        tensor.neg_()


def median_ratio(dividends: list[float], divisors: list[float]) -> float:
    """Return the median of the ratios of each round."""
    return statistics.median(a / b for a, b in zip(dividends, divisors, strict=True))
