# SPDX-License-Identifier: Apache-2.0
"""All ways on all kinds of text, in turn."""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from vllm_kunlun.bench.spec.process import EngineProcess
from vllm_kunlun.bench.spec.worker import Found
from vllm_kunlun.bench.ways import V1, V1_NGRAM, Way, turns

WARM_UP = {"kind": "open chat", "requests": 1, "at_once": 1, "max_tokens": 4}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    ways: Sequence[Way]
    kinds: Sequence[str]
    concurrency: Sequence[int]
    requests: int
    """Per run and unit of concurrency."""
    max_tokens: int
    rounds: int
    options: dict[str, Any]
    """Of vLLM's `LLM`."""
    compiled: bool = False
    synthetic: Sequence[Way] = ()
    """Ways whose acceptance is forced."""
    rates: Sequence[float] = ()


@dataclass
class Row:
    """What a way did with a kind of text; medians over rounds."""

    way: str
    kind: str
    at_once: int
    tokens_per_second: float
    inter_token: float
    """Milliseconds."""
    over_v1: float | None = None
    """The median of the ratios of each round."""
    over_ngram: float | None = None
    same_as_v1: float | None = None
    """Share of the requests with V1's tokens."""
    drafted_per_step: float | None = None
    acceptance: float | None = None
    """Accepted drafts over verified ones."""
    length: float | None = None
    """Mean acceptance length: tokens of a step that verified drafts."""
    by_position: list[float] = field(default_factory=list)
    """Share of the drafts of which this position, and all before it, was accepted."""
    rate: float | None = None
    """The acceptance that was forced."""


@dataclass
class Report:
    """All that was found."""

    rows: list[Row] = field(default_factory=list)
    synthetic: list[Row] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Ways that did not run, and why."""


def run(plan: Plan, say: Say) -> Report:
    """Measure all that is planned.

    Raises:
        RuntimeError: not one engine started, or one broke at work.
    """
    report = Report()
    with engines(plan.ways, plan, report, say) as running:
        if not running:
            raise RuntimeError(next(iter(report.failed.values())))
        cells = list(product(plan.kinds, plan.concurrency))
        for i, (kind, at_once) in enumerate(cells, start=1):
            say(f"{i} of {len(cells)}: {kind}, {at_once} at once")
            found = take_turns(running, order_of(plan, kind, at_once), plan.rounds)
            report.rows += rows_of(found, kind, at_once)
    if plan.synthetic:
        with engines(plan.synthetic, plan, report, say) as running:
            for rate, at_once in product(plan.rates, plan.concurrency):
                say(f"Forced acceptance of {rate:g}, {at_once} at once")
                order = order_of(plan, "open chat", at_once) | {"rate": rate}
                found = take_turns(running, order, plan.rounds)
                rows = rows_of(found, "forced acceptance", at_once)
                for row in rows:
                    row.rate = rate
                report.synthetic += rows
    return report


def order_of(plan: Plan, kind: str, at_once: int) -> dict[str, Any]:
    """Return what an engine is told to do."""
    return {
        "kind": kind,
        "requests": plan.requests * at_once,
        "at_once": at_once,
        "max_tokens": plan.max_tokens,
    }


@contextmanager
def engines(
    ways: Sequence[Way], plan: Plan, report: Report, say: Say
) -> Iterator[list[EngineProcess]]:
    """Start an engine for each way and take them down at the end.

    Ways that do not start are noted in `report` with the reason.
    """
    started: list[EngineProcess] = []
    running: list[EngineProcess] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for way in ways:
                started.append(
                    EngineProcess(
                        way, plan.options, Path(folder), compiled=plan.compiled
                    )
                )
            for engine in started:
                say(f"Starting {engine.way.label}")
                try:
                    engine.wait()
                    engine.run(**WARM_UP)
                    running.append(engine)
                except RuntimeError as error:
                    report.failed[engine.way.label] = str(error)
            yield running
        finally:
            for engine in started:
                engine.stop()


def take_turns(
    running: Sequence[EngineProcess], order: dict[str, Any], rounds: int
) -> dict[str, list[Found]]:
    """Give each engine the same order, in each round in another order."""
    found: dict[str, list[Found]] = {engine.way.label: [] for engine in running}
    for _, engine in turns(running, rounds):
        found[engine.way.label].append(engine.run(**order))
    return found


def rows_of(found: dict[str, list[Found]], kind: str, at_once: int) -> list[Row]:
    """Return a row for each way."""
    rows = []
    for way, runs in found.items():
        speeds = [run.tokens / run.seconds for run in runs]
        row = Row(
            way=way,
            kind=kind,
            at_once=at_once,
            tokens_per_second=statistics.median(speeds),
            inter_token=statistics.median(run.inter_token for run in runs),
            over_v1=ratio(runs, found.get(V1)),
            over_ngram=ratio(runs, found.get(V1_NGRAM)),
        )
        if V1 in found:
            pairs = list(zip(runs[0].outputs, found[V1][0].outputs, strict=True))
            row.same_as_v1 = sum(a == b for a, b in pairs) / len(pairs)
        if drafts := sum(run.drafts for run in runs):
            drafted = sum(run.drafted for run in runs)
            accepted = sum(run.accepted for run in runs)
            row.drafted_per_step = drafted / drafts
            row.acceptance = accepted / drafted if drafted else None
            row.length = 1 + accepted / drafts
            by_position = zip(*(run.accepted_at for run in runs), strict=True)
            row.by_position = [sum(counts) / drafts for counts in by_position]
        rows.append(row)
    return rows


def ratio(runs: list[Found], others: list[Found] | None) -> float | None:
    """Return the median over rounds of how much faster than others `runs` were."""
    if others is None:
        return None
    return statistics.median(
        (a.tokens / a.seconds) / (b.tokens / b.seconds)
        for a, b in zip(runs, others, strict=True)
    )
