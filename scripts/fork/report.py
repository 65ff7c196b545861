# SPDX-License-Identifier: Apache-2.0
"""Writes what scripts/rebase --check has found: as a table, as JSON, as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

from rich.table import Table

from fork.check import Patch, Report, Result
from fork.kernel_lock import Change, Drift
from fork.transplant import Outcome

_TITLES = ("vLLM", "torch", "donor", "patches", "Triton functions", "names")
_HEAD = """# What newer upstreams would break

How the patches of vLLM {source} and our kernels stand towards other releases. A patch
is `clean` if it applies as it is, `moved` if only its line numbers change, `3-way` if
lines around its own have changed, `conflict` if a person has to merge it, `taken
upstream` if it changes nothing there. After a conflict the file concerned is left as
upstream has it, so a later patch to the same file may conflict for that reason alone.

Triton functions are compared with `kernel-locks/{source}.toml`, names (what
`vllm_kunlun` and the series import from upstream or override) by their signature.

Written on {today} by `{command}`
for the series {digest}; {versions} releases took {seconds:.0f} s.
"""


def table(report: Report) -> Table:
    """Give a line per release."""
    result = Table(*_TITLES)
    for one in report.results:
        result.add_row(*_cells(one))
    return result


def as_json(report: Report) -> str:
    """Give everything that was found."""
    return json.dumps(
        {
            "source": report.source,
            "series": report.digest,
            "seconds": round(report.seconds, 1),
            "versions": [_object(one) for one in report.results],
        },
        indent=1,
    )


def as_markdown(report: Report, today: date, command: str) -> str:
    """Give the page docs/upstream-drift.md."""
    head = _HEAD.format(
        source=report.source,
        digest=report.digest[:12],
        today=today.isoformat(),
        command=command,
        versions=len(report.results),
        seconds=report.seconds,
    )
    rows = [_TITLES, ["---"] * len(_TITLES), *map(_cells, report.results)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    sections = ["\n".join(_section(one)) for one in report.results]
    return "\n".join([head, *lines, "", *sections])


def to_do(result: Result) -> str:
    """Say in one sentence what a person would have to do."""
    if not result.needs_work:
        return "Nothing by hand."
    parts = []
    stuck = [p for p in result.patches if p.outcome is Outcome.CONFLICT]
    if stuck:
        files = sum(len(patch.conflicts) for patch in stuck)
        hunks = sum(max(n, 1) for p in stuck for n in p.conflicts.values())
        parts.append(
            f"merge {_number(len(stuck), 'patch', 'patches')} by hand "
            f"({_number(hunks, 'hunk')} in {_number(files, 'file')})"
        )
    if taken := result.count(Outcome.UPSTREAM):
        parts.append(f"drop {_number(taken, 'patch', 'patches')}")
    ours = [drift for drift in result.kernels if drift.op]
    changed = [drift for drift in ours if drift.change is not Change.GONE]
    if changed:
        parts.append(f"look at {_number(len(changed), 'op')} of ours again")
    if gone := len(ours) - len(changed):
        parts.append(f"give up {_number(gone, 'op')}, whose kernel is gone")
    if new := sum(drift.change is Change.NEW for drift in result.kernels):
        parts.append(f"decide on {_number(new, 'new Triton function')}")
    if other := len(result.kernels) - len(ours) - new:
        parts.append(f"look at {_number(other, 'other Triton function')}")
    if result.names:
        parts.append(f"follow {_number(len(result.names), 'name')}")
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]


def _number(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _cells(result: Result) -> list[str]:
    release = result.release
    outcomes = [patch.outcome.value for patch in result.patches]
    changes = [drift.change.value for drift in result.kernels]
    return [
        release.version,
        release.torch,
        "yes" if release.donor else "no",
        _counted(outcomes, [outcome.value for outcome in Outcome]),
        f"{result.kernel_count}: "
        + _counted(changes, [change.value for change in Change]),
        str(len(result.names)),
    ]


def _counted(found: Sequence[str], kinds: Sequence[str]) -> str:
    counts = [f"{found.count(kind)} {kind}" for kind in kinds if kind in found]
    return ", ".join(counts) or "as before"


def _section(result: Result) -> Iterator[str]:
    yield f"## {result.release.version}\n"
    yield f"{to_do(result)}\n"
    yield "| patch | outcome | conflicting hunks |"
    yield "| --- | --- | --- |"
    for patch in result.patches:
        yield f"| {patch.name} | {patch.outcome.value} | {_hunks(patch)} |"
    yield ""
    if result.kernels:
        yield "| kernel | module | change | our op |"
        yield "| --- | --- | --- | --- |"
        for drift in sorted(result.kernels, key=_order):
            module = drift.module.removeprefix("vllm.v1.")
            op = f"`{drift.op}`" if drift.op else ""
            yield f"| `{drift.name}` | {module} | {drift.change.value} | {op} |"
        yield ""
    for change in result.names:
        yield f"- `{change.name}`, {change.name.use.value} by {change.users[0]}:"
        yield f"  {change.what}"
    if result.names:
        yield ""


def _order(drift: Drift) -> tuple[bool, str, str]:
    return not drift.op, drift.module, drift.name


def _hunks(patch: Patch) -> str:
    return ", ".join(
        f"{path}: {count or 'the file'}" for path, count in patch.conflicts.items()
    )


def _object(result: Result) -> dict[str, Any]:
    return {
        "version": result.release.version,
        "torch": result.release.torch,
        "donor": result.release.donor is not None,
        "needs_work": result.needs_work,
        "to_do": to_do(result),
        "patches": [
            {"name": p.name, "outcome": p.outcome.value, "conflicts": p.conflicts}
            for p in result.patches
        ],
        "kernel_count": result.kernel_count,
        "kernels": [
            {
                "change": drift.change.value,
                "module": drift.module,
                "name": drift.name,
                "op": drift.op,
            }
            for drift in result.kernels
        ],
        "names": [
            {
                "name": str(change.name),
                "use": change.name.use.value,
                "what": change.what,
                "users": change.users,
            }
            for change in result.names
        ],
        "seconds": round(result.seconds, 2),
    }
