# SPDX-License-Identifier: Apache-2.0
"""The findings as a table, as JSON and as Markdown."""

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict

from rich.table import Table

from vllm_kunlun.bench.kernels.timing import Row
from vllm_kunlun.bench.output import environment, markdown, number
from vllm_kunlun.terminal import make_table

HEADINGS = (
    "kernel",
    "requests",
    "vocabulary",
    "ours, µs",
    "torch, µs",
    "torch / ours",
    "pass, µs",
    "ours / pass",
)


def as_table(rows: Iterable[Row]) -> Table:
    """Return the rows for a terminal."""
    return make_table(HEADINGS, map(_cells, rows))


def as_markdown(rows: list[Row], title: str) -> str:
    """Return a summary by kernel, then all rows, then what the baselines are."""
    seen = environment()
    lines = [
        f"# {title}",
        "",
        f"torch {seen['torch']}, {seen['threads']} threads, {seen['cpu_capability']}.",
        "",
        *markdown(
            (
                "kernel",
                "least torch / ours",
                "median torch / ours",
                "median ours / pass",
            ),
            summary(rows),
        ),
        "",
        *markdown(HEADINGS, (_cells(row) for row in rows)),
        "",
        *markdown(
            ("kernel", "the torch code"),
            dict.fromkeys((row.kernel, row.baseline) for row in rows),
            rest="---",
        ),
    ]
    return "\n".join(lines) + "\n"


def as_json(rows: list[Row]) -> str:
    """Return all that is known."""
    found = {"environment": environment(), "rows": [asdict(row) for row in rows]}
    return json.dumps(found, indent=2) + "\n"


def summary(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """Return for each kernel the least and the median ratio over its sizes."""
    by_kernel: dict[str, list[Row]] = {}
    for row in rows:
        if row.skipped is None:
            by_kernel.setdefault(row.kernel, []).append(row)
    lines: list[tuple[str, ...]] = []
    for kernel, measured in by_kernel.items():
        ratios = [row.ratio for row in measured if row.ratio is not None]
        passes = [row.passes for row in measured if row.passes is not None]
        lines.append(
            (
                kernel,
                number(min(ratios)),
                number(statistics.median(ratios)),
                number(statistics.median(passes) if passes else None),
            )
        )
    return lines


def _cells(row: Row) -> tuple[str, ...]:
    vocabulary = "-" if row.vocabulary is None else str(row.vocabulary)
    size = (row.kernel, str(row.requests), vocabulary)
    if row.skipped is not None:
        return (*size, row.skipped, "-", "-", "-", "-")
    figures = (row.ours, row.torch, row.ratio, row.memory_pass, row.passes)
    return (*size, *(number(figure) for figure in figures))
