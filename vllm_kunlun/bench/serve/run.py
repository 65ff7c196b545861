# SPDX-License-Identifier: Apache-2.0
"""All ways under the same load, in turn."""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_kunlun.bench.serve.load import load
from vllm_kunlun.bench.serve.server import Server
from vllm_kunlun.bench.ways import V1, Way, turns

FIGURES = {
    "output_throughput": "tokens/s",
    "request_throughput": "requests/s",
    "median_ttft_ms": "TTFT, ms",
    "median_tpot_ms": "TPOT, ms",
    "median_itl_ms": "ITL, ms",
    "p99_itl_ms": "p99 ITL, ms",
}
"""What is taken of ``vllm bench serve``, and its heading."""


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    ways: Sequence[Way]
    serve: list[str]
    """Arguments of ``vllm serve``."""
    load: list[str]
    """Arguments of ``vllm bench serve``."""
    concurrency: Sequence[int]
    requests: int
    """Per run and unit of concurrency."""
    rounds: int
    compiled: bool


@dataclass
class Row:
    """What a way did; medians over rounds."""

    way: str
    concurrency: int
    figures: dict[str, float] = field(default_factory=dict)
    over_v1: float | None = None
    """Throughput; the median of the ratios of each round."""


def run(plan: Plan, say: Callable[[str], None]) -> list[Row]:
    """Measure all that is planned.

    Raises:
        RuntimeError: a server does not run, or requests fail.
    """
    servers: list[Server] = []
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            for way in plan.ways:
                say(f"Starting {way.label}")
                servers.append(Server(way, plan.serve, folder, compiled=plan.compiled))
                if plan.compiled:
                    # They share a cache of what is compiled.
                    servers[-1].wait()
            for server in servers:
                server.wait()
            for concurrency in plan.concurrency:
                found = take_turns(servers, plan, concurrency, say)
                rows += rows_of(found, concurrency)
        finally:
            for server in servers:
                server.stop()
    return rows


def take_turns(
    servers: Sequence[Server],
    plan: Plan,
    concurrency: int,
    say: Callable[[str], None],
) -> dict[str, list[dict[str, Any]]]:
    """Load each server, in each round in another order."""
    found: dict[str, list[dict[str, Any]]] = {s.way.label: [] for s in servers}
    arguments = [*plan.load, "--max-concurrency", str(concurrency)]
    arguments += ["--num-prompts", str(plan.requests * concurrency)]
    for i, server in turns(servers, plan.rounds):
        say(f"{concurrency} at once, round {i + 1}: {server.way.label}")
        found[server.way.label].append(load(server, arguments))
    return found


def rows_of(found: dict[str, list[dict[str, Any]]], concurrency: int) -> list[Row]:
    """Return a row for each way."""
    rows = []
    for way, runs in found.items():
        row = Row(way, concurrency)
        for name in FIGURES:
            row.figures[name] = statistics.median(run[name] for run in runs)
        if V1 in found:
            row.over_v1 = statistics.median(
                mine["output_throughput"] / other["output_throughput"]
                for mine, other in zip(runs, found[V1], strict=True)
            )
        rows.append(row)
    return rows
