# SPDX-License-Identifier: Apache-2.0
"""The findings as a table, as JSON and as Markdown."""

import json
import os
import statistics
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from vllm_kunlun.bench.kernels.timing import Row

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


def environment() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def as_table(rows: Iterable[Row]) -> Table:
    """Return the rows for a terminal."""
    table = Table()
    for i, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if i else "left", no_wrap=not i)
    for row in rows:
        table.add_row(*_cells(row))
    return table


def as_markdown(rows: list[Row], title: str) -> str:
    """Return a summary by kernel, then all rows, then what the baselines are."""
    seen = environment()
    lines = [
        f"# {title}",
        "",
        f"torch {seen['torch']}, {seen['threads']} threads, {seen['cpu_capability']}.",
        "",
        *_markdown(
            (
                "kernel",
                "least torch / ours",
                "median torch / ours",
                "median ours / pass",
            ),
            summary(rows),
        ),
        "",
        *_markdown(HEADINGS, (_cells(row) for row in rows)),
        "",
        *_markdown(
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
                _number(min(ratios)),
                _number(statistics.median(ratios)),
                _number(statistics.median(passes) if passes else None),
            )
        )
    return lines


def check_target(path: Path) -> None:
    """Find out before the work whether a report can be written.

    Raises:
        ValueError: it cannot.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path} is in no existing folder: make the folder first.")
    if not os.access(path.absolute().parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: its folder is read-only.")


def write(path: Path, text: str) -> None:
    """Write a report in one piece."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _cells(row: Row) -> tuple[str, ...]:
    vocabulary = "-" if row.vocabulary is None else str(row.vocabulary)
    size = (row.kernel, str(row.requests), vocabulary)
    if row.skipped is not None:
        return (*size, row.skipped, "-", "-", "-", "-")
    figures = (row.ours, row.torch, row.ratio, row.memory_pass, row.passes)
    return (*size, *(_number(figure) for figure in figures))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _markdown(
    headings: tuple[str, ...], lines: Iterable[tuple[str, ...]], rest: str = "---:"
) -> Iterable[str]:
    """Yield a table; `rest` aligns all columns but the first."""
    yield "| " + " | ".join(headings) + " |"
    yield "|".join(["", "---", *[rest] * (len(headings) - 1), ""])
    for line in lines:
        yield "| " + " | ".join(line) + " |"
