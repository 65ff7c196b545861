# SPDX-License-Identifier: Apache-2.0
"""The findings as tables, as JSON, as Markdown and as a plot."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from rich.table import Table

from vllm_kunlun.bench.output import environment, markdown, number
from vllm_kunlun.bench.step.run import Row
from vllm_kunlun.bench.step.stopwatch import CONTEXT, DRAFT, STAGES
from vllm_kunlun.bench.step.xpu_model import Costs, estimate
from vllm_kunlun.terminal import make_table

OTHERS = (DRAFT, CONTEXT)
TIMES = ("column", "control, µs", "off / this", "torch / this", *STAGES, *OTHERS)
COUNTS = (
    "column",
    "launches",
    "host calls",
    "torch kernels",
    "torch ops",
    "copies",
    "bytes",
    "UVA writes",
    "UVA bytes",
    "copies back",
    "syncs",
)
ESTIMATE = "XPU estimate, µs"


def tables(rows: Sequence[Row], costs: Costs | None) -> Iterable[Table | str]:
    """Yield for each shape a table of times and one of counts."""
    for shape, found in by_shape(rows).items():
        if found[0].skipped is not None:
            yield f"{shape}: {found[0].skipped}"
            continue
        for headings, lines in (
            (TIMES, map(times, found)),
            (count_headings(costs), (counts(row, costs) for row in found)),
        ):
            yield make_table(headings, lines, shape)


def as_markdown(rows: Sequence[Row], costs: Costs | None) -> str:
    """Return the same tables in Markdown."""
    seen = environment()
    lines = [
        "# The control plane of a step",
        "",
        f"torch {seen['torch']}, {seen['threads']} threads, {seen['cpu_capability']}. "
        "Host times are medians over interleaved steps, in microseconds; counts are "
        "those of one step.",
    ]
    for shape, found in by_shape(rows).items():
        lines += ["", f"## {shape}", ""]
        if found[0].skipped is not None:
            lines.append(found[0].skipped)
            continue
        lines += markdown(TIMES, map(times, found))
        lines.append("")
        lines += markdown(count_headings(costs), (counts(row, costs) for row in found))
    if costs is not None:
        lines += ["", "## Costs of the estimate", ""]
        lines += markdown(("cost", "value", "source"), cost_lines(costs), rest="---")
    return "\n".join(lines) + "\n"


def as_json(rows: Sequence[Row], costs: Costs | None) -> str:
    """Return all that is known."""
    found = []
    for row in rows:
        entry = asdict(row)
        if costs is not None and row.skipped is None:
            entry["xpu_estimate"] = estimate(row.counted, costs)
        found.append(entry)
    everything = {"environment": environment(), "rows": found}
    if costs is not None:
        everything["costs"] = asdict(costs)
    return json.dumps(everything, indent=2) + "\n"


def by_shape(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each shape, with the shape in words."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        shape = (
            f"{row.requests} requests, {row.drafts} drafts, KV groups: {row.groups}, "
            f"vocabulary of {row.vocabulary}, width of {row.hidden}, {row.sampling}"
        )
        found.setdefault(shape, []).append(row)
    return found


def times(row: Row) -> tuple[str, ...]:
    """Return a row's cells under `TIMES`."""
    figures = (row.total, row.off_over_this, row.torch_over_this)
    stages = (row.stages[stage] for stage in (*STAGES, *OTHERS))
    return (row.column, *map(number, figures), *map(number, stages))


def count_headings(costs: Costs | None) -> tuple[str, ...]:
    """Return the headings of counts."""
    return COUNTS if costs is None else (*COUNTS, ESTIMATE)


def counts(row: Row, costs: Costs | None) -> tuple[str, ...]:
    """Return a row's cells under `count_headings`."""
    c = row.counted
    figures = (
        c.launches,
        c.host_calls,
        c.torch_kernels,
        c.dispatches,
        c.copies,
        c.bytes,
        c.uva_writes,
        c.uva_bytes,
        c.copies_back,
        c.syncs,
    )
    cells = (row.column, *map(str, figures))
    return cells if costs is None else (*cells, number(estimate(c, costs)))


def cost_lines(costs: Costs) -> Iterable[tuple[str, ...]]:
    """Yield each cost, its value, and where the default is from."""
    for f in fields(costs):
        value = getattr(costs, f.name)
        source = f.metadata["source"] if value == f.default else "given"
        yield f.name, f"{value:g} {f.metadata['unit']}", source


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw host time against requests, a panel for each number of drafts and groups.

    Raises:
        ImportError: there is no matplotlib.
        ValueError: matplotlib cannot write a file of this kind.
    """
    from vllm_kunlun.bench.plots import axes, save

    measured = [row for row in rows if row.skipped is None]
    panels: dict[str, list[Row]] = {}
    for row in measured:
        title = f"{row.drafts} drafts, KV groups: {row.groups}"
        panels.setdefault(title, []).append(row)
    figure, panes = axes(len(panels))
    for pane, (title, found) in zip(panes, panels.items(), strict=True):
        for column in dict.fromkeys(row.column for row in found):
            mine = [row for row in found if row.column == column]
            pane.plot(
                [row.requests for row in mine],
                [row.total for row in mine],
                marker="o",
                label=column,
            )
        pane.set(
            title=title,
            xlabel="requests",
            ylabel="host time of the control plane, µs",
            xscale="log",
            yscale="log",
        )
        pane.legend(fontsize="x-small")
    save(figure, path)
