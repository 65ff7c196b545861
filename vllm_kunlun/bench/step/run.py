# SPDX-License-Identifier: Apache-2.0
"""All columns at one shape of a step, interleaved."""

import gc
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from vllm.v1.core.sched.output import SchedulerOutput

from vllm_kunlun.bench.step.columns import (
    Activation,
    Column,
    use_native_tables,
)
from vllm_kunlun.bench.step.count import Counts, Recorder
from vllm_kunlun.bench.step.runner import Shape, make_config, make_runner, one_process
from vllm_kunlun.bench.step.stopwatch import (
    CONTEXT,
    DRAFT,
    MODEL,
    STAGES,
    Stopwatch,
    own_seconds,
)
from vllm_kunlun.bench.step.workload import MOST_STEPS, Workload

CHECKED_STEPS = 4
LEAST_ROUNDS = 5
TURN = 2
"""Steps of a column before the next one's turn."""
MEMORY = 6 * 2**30
"""Bytes that the runners of all columns may need."""


@dataclass
class Row:
    """What was found for a column at a shape; times are medians, in microseconds."""

    column: str
    requests: int
    drafts: int
    groups: int
    vocabulary: int
    hidden: int
    sampling: str
    total: float | None = None
    """The control plane: all stages but the models and the draft steps."""
    off_over_this: float | None = None
    """The median of the ratios of each round."""
    torch_over_this: float | None = None
    stages: dict[str, float] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    steps: int = 0
    skipped: str | None = None
    """Why nothing was measured."""

    @property
    def counted(self) -> Counts:
        """The counts of the control plane."""
        return sum((self.counts[s] for s in STAGES if s in self.counts), start=Counts())


class Lane:
    """A column's runner and its requests."""

    def __init__(
        self, column: Column, shape: Shape, sampling: str, turnover: int, folder: Path
    ) -> None:
        self.column = column
        self.activation = Activation(column)
        # What else runs on the machine takes nothing off a thread's own time.
        alone = torch.get_num_threads() == 1
        clock = time.thread_time if alone else time.perf_counter
        self.stopwatch = Stopwatch(clock, own_seconds(clock))
        self.recorder = Recorder(self.stopwatch)
        self.workload = Workload(shape, sampling, turnover)
        self.times: list[dict[str, float]] = []
        self.tokens: list[list[list[int]]] = []
        self.counts: dict[str, Counts] = {}
        with self.activation.on(), ExitStack() as stack:
            config = make_config(shape, folder)
            stack.enter_context(one_process(config))
            stack.enter_context(self.recorder.watch())
            self.runner = make_runner(config, shape.groups, self._set_stages)
        self.activation.find_kernels()
        self.stopwatch.watch(self.runner)
        self.output: SchedulerOutput = self.workload.first()

    def _set_stages(self, runner: Any) -> None:
        if self.column.native:
            use_native_tables(runner)

    def step(self) -> None:
        """Run one step and play the scheduler for the next one."""
        self.stopwatch.start()
        self.runner.execute_model(self.output)
        output = self.runner.sample_tokens(None)
        self.stopwatch.stop()
        self._schedule(output)

    def count(self) -> None:
        """Run one step and count what it asks for."""
        self.stopwatch.start()
        with self.recorder.count():
            self.runner.execute_model(self.output)
            output = self.runner.sample_tokens(None)
        self.stopwatch.stop()
        self.counts = self.recorder.by_stage
        self._schedule(output)

    def _schedule(self, output: Any) -> None:
        result = output.get_output()
        self.tokens.append(result.sampled_token_ids)
        self.output = self.workload.next(result.sampled_token_ids, result.req_ids)


def measure(
    columns: Sequence[Column],
    shape: Shape,
    sampling: str,
    turnover: int,
    seconds: float,
) -> list[Row]:
    """Measure all columns at a shape for about `seconds`.

    Raises:
        RuntimeError: a column gives other tokens than "off".
    """
    rows = [
        Row(
            c.label,
            shape.requests,
            shape.drafts,
            shape.groups,
            shape.vocabulary,
            shape.hidden,
            sampling,
        )
        for c in columns
    ]
    needed = memory(shape) * len(columns)
    if needed > MEMORY:
        reason = f"needs {needed / 2**30:.1f} GiB, more than {MEMORY / 2**30:.0f} GiB"
        for row in rows:
            row.skipped = reason
        return rows
    lanes = []
    with tempfile.TemporaryDirectory() as folder, _cheap_collections():
        for i, column in enumerate(columns):
            (own := Path(folder) / str(i)).mkdir()
            lanes.append(Lane(column, shape, sampling, turnover, own))
    for lane in lanes:
        with lane.activation.on():
            for _ in range(CHECKED_STEPS):
                lane.step()
            lane.count()
            lane.step()
    check(lanes, sampling)
    time_rounds(lanes, seconds)
    totals = {lane.column.label: [control(t) for t in lane.times] for lane in lanes}
    for row, lane in zip(rows, lanes, strict=True):
        mine = totals[row.column]
        row.total = statistics.median(mine) * 1e6
        row.off_over_this = ratio(totals.get("off"), mine)
        row.torch_over_this = ratio(totals.get("torch"), mine)
        row.stages = {
            stage: statistics.median(t[stage] for t in lane.times) * 1e6
            for stage in (*STAGES, DRAFT, CONTEXT)
        }
        row.counts = {s: c for s, c in lane.counts.items() if s != MODEL}
        row.steps = len(mine)
    return rows


@contextmanager
def _cheap_collections() -> Iterator[None]:
    """Spare the collections of garbage, as a model is loaded, all that is imported."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def memory(shape: Shape) -> int:
    """Return about how many bytes a runner needs."""
    rows = shape.requests * (1 + shape.drafts)
    # Logits of target and draft, each with a copy or two, and counts of tokens.
    return 4 * shape.vocabulary * (5 * rows + 3 * shape.requests) + (64 << 20)


def control(times: dict[str, float]) -> float:
    """Return the seconds of the control plane."""
    return sum(times[stage] for stage in STAGES)


def ratio(dividends: list[float] | None, divisors: list[float]) -> float | None:
    """Return the median of the ratios of each round."""
    if dividends is None:
        return None
    return statistics.median(a / b for a, b in zip(dividends, divisors, strict=True))


def check(lanes: Sequence[Lane], sampling: str) -> None:
    """Compare the tokens of all columns.

    Raises:
        RuntimeError: they differ.
    """
    off = next(lane for lane in lanes if lane.column.label == "off")
    for lane in lanes:
        if lane.column.native and sampling != "greedy":
            # Its noise is torch's own.
            continue
        if lane.tokens != off.tokens:
            raise RuntimeError(
                f"The column {lane.column.label!r} gives other tokens than 'off': the "
                "benchmark says nothing, please report it."
            )


def time_rounds(lanes: Sequence[Lane], seconds: float) -> None:
    """Let the lanes take turns, each as often first as the others."""
    collects = gc.isenabled()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        for i in range((MOST_STEPS - CHECKED_STEPS - 2) // TURN):
            for j in range(len(lanes)):
                lane = lanes[(i + j) % len(lanes)]
                with lane.activation.on():
                    for _ in range(TURN):
                        lane.step()
                        lane.times.append(lane.stopwatch.seconds)
            if i + 1 >= LEAST_ROUNDS and time.perf_counter() > end:
                break
    finally:
        if collects:
            gc.enable()
