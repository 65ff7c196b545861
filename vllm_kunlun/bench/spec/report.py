# SPDX-License-Identifier: Apache-2.0
"""The findings as tables, as JSON, as Markdown and as plots."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from vllm_kunlun.bench.output import environment, markdown, number
from vllm_kunlun.bench.spec.run import Plan, Report, Row
from vllm_kunlun.terminal import make_table

SPEED = (
    "way",
    "at once",
    "tokens/s",
    "over V1",
    "over V1 + ngram",
    "ms between tokens",
    "drafts per step",
    "acceptance",
    "acceptance length",
    "same tokens as V1",
)
FORCED = ("way", "at once", "acceptance", "tokens/s", "ms between tokens", "length")


def tables(report: Report) -> Iterable[Table]:
    """Yield a table for each kind of text."""
    for kind, rows in by_kind(report).items():
        yield make_table(SPEED, map(speed, rows), kind)
    if report.synthetic:
        lines = map(forced, report.synthetic)
        yield make_table(FORCED, lines, "forced acceptance")


def as_markdown(report: Report, plan: Plan) -> str:
    """Return the same in Markdown, and acceptance by position."""
    seen = environment()
    mode = "compiled" if plan.compiled else "eager"
    lines = [
        "# What speculation brings",
        "",
        f"torch {seen['torch']}, {seen['threads']} threads, {seen['cpu_capability']}; "
        f"{plan.options.get('dtype', 'auto')}, {mode}, {plan.max_tokens} new tokens, "
        f"greedy, {plan.requests} requests for each at once, counted while all places "
        f"are taken, {plan.rounds} interleaved rounds: medians, and medians of the "
        "ratios of each round.",
    ]
    for way, reason in report.failed.items():
        lines += ["", f"{way} is missing: {reason}"]
    for kind, rows in by_kind(report).items():
        lines += ["", f"## {kind}", "", *markdown(SPEED, map(speed, rows))]
        drafting = [row for row in rows if row.by_position]
        if drafting:
            most = max(len(row.by_position) for row in drafting)
            headings = ["accepted up to", "at once", *map(str, range(1, most + 1))]
            lines += ["", *markdown(headings, map(positions, drafting))]
    if report.synthetic:
        lines += ["", "## Forced acceptance", ""]
        lines += markdown(FORCED, map(forced, report.synthetic))
    return "\n".join(lines) + "\n"


def as_json(report: Report, plan: Plan) -> str:
    """Return all that is known."""
    everything = {
        "environment": environment(),
        "options": plan.options,
        "compiled": plan.compiled,
        "max_tokens": plan.max_tokens,
        "requests": plan.requests,
        "rounds": plan.rounds,
        "ways": {way.label: way.speculative for way in plan.ways},
        **asdict(report),
    }
    return json.dumps(everything, indent=2) + "\n"


def by_kind(report: Report) -> dict[str, list[Row]]:
    """Return the rows of each kind of text."""
    found: dict[str, list[Row]] = {}
    for row in report.rows:
        found.setdefault(row.kind, []).append(row)
    return found


def speed(row: Row) -> tuple[str, ...]:
    """Return a row's cells under `SPEED`."""
    return (
        row.way,
        str(row.at_once),
        number(row.tokens_per_second),
        number(row.over_v1),
        number(row.over_ngram),
        number(row.inter_token),
        number(row.drafted_per_step),
        percent(row.acceptance),
        number(row.length),
        percent(row.same_as_v1),
    )


def forced(row: Row) -> tuple[str, ...]:
    """Return a row's cells under `FORCED`."""
    return (
        row.way,
        str(row.at_once),
        percent(row.rate),
        number(row.tokens_per_second),
        number(row.inter_token),
        number(row.length),
    )


def positions(row: Row) -> tuple[str, ...]:
    """Return a row's acceptance up to each position."""
    return (row.way, str(row.at_once), *map(percent, row.by_position))


def percent(share: float | None) -> str:
    """Return a share in percent, or a dash."""
    return "-" if share is None else f"{share:.0%}"


def plot(report: Report, path: Path) -> None:
    """Draw speed over V1 for each kind of text, and speed by forced acceptance."""
    from vllm_kunlun.bench.plots import axes, save

    kinds = by_kind(report)
    figure, panes = axes(len(kinds) + bool(report.synthetic))
    for pane, (kind, rows) in zip(panes, kinds.items(), strict=False):
        for way in dict.fromkeys(row.way for row in rows):
            mine = [r for r in rows if r.way == way and r.over_v1 is not None]
            pane.plot(
                [str(row.at_once) for row in mine],
                [row.over_v1 for row in mine],
                marker="o",
                label=way,
            )
        pane.set(title=kind, xlabel="requests at once", ylabel="speed over V1")
        pane.legend(fontsize="x-small")
    if report.synthetic:
        pane = panes[-1]
        series = dict.fromkeys((row.way, row.at_once) for row in report.synthetic)
        for way, at_once in series:
            mine = [r for r in report.synthetic if (r.way, r.at_once) == (way, at_once)]
            pane.plot(
                [row.rate for row in mine],
                [row.tokens_per_second for row in mine],
                marker="o",
                label=f"{way}, {at_once}",
            )
        pane.set(
            title="forced acceptance", xlabel="acceptance", ylabel="tokens/s", ylim=0
        )
        pane.legend(fontsize="x-small")
    save(figure, path)
