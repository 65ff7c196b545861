# SPDX-License-Identifier: Apache-2.0
"""Shows the series at a glance, and whether tree, series and lock agree."""

from __future__ import annotations

from dataclasses import dataclass

from fork import message, series, state
from fork.config import Upstream
from fork.errors import ForkError, shown, tool
from fork.paths import Layout
from fork.transplant import content_digest


@dataclass(frozen=True)
class Row:
    """One patch as the table shows it."""

    name: str
    subject: str
    files: int
    added: int
    removed: int
    forwarded: str
    drop_when: str


@dataclass(frozen=True)
class Status:
    """The table, and one sentence each on tree and lock."""

    rows: list[Row]
    notes: list[str]


def status(layout: Layout, upstream: Upstream) -> Status:
    """Look at everything, change nothing."""
    patches = series.read(layout.series_dir(upstream.version))
    rows = [_row(name, content) for name, content in patches.patches.items()]
    locked = upstream.lock.series == patches.digest
    notes = [
        "The series is the one that upstream.toml locks."
        if locked
        else "The series is not the one that upstream.toml locks: run scripts/verify."
    ]
    notes += _rebased_notes(layout, upstream)
    return Status(rows, [*notes, _tree_note(layout, upstream, patches)])


def _rebased_notes(layout: Layout, upstream: Upstream) -> list[str]:
    """Say whether the series that this one was made from has changed since."""
    made = upstream.rebased
    if made is None:
        return []
    source = layout.series_dir(made.source)
    now = {
        name: content_digest(patch)
        for name, patch in series.read(source).patches.items()
    }
    if now == dict(made.patches):
        return [f"It was made from {shown(source)} as that is now."]
    names = now.keys() | made.patches.keys()
    changed = sorted(name for name in names if now.get(name) != made.patches.get(name))
    return [
        f"It was made from an older {shown(source)} (now other: {', '.join(changed)}): "
        f"run scripts/rebase --to {upstream.version}."
    ]


def _row(name: str, content: bytes) -> Row:
    parsed = message.of_patch(content)
    diff = content.decode("utf-8", "replace").partition("\ndiff --git ")[2]
    lines = diff.splitlines()
    return Row(
        name=name,
        subject=parsed.subject,
        files=content.count(b"\ndiff --git "),
        added=sum(x.startswith("+") and not x.startswith("+++ ") for x in lines),
        removed=sum(x.startswith("-") and not x.startswith("--- ") for x in lines),
        forwarded=_one_line(parsed.trailer(message.FORWARDED)),
        drop_when=_one_line(parsed.trailer(message.DROP_WHEN)),
    )


def _one_line(value: str | None) -> str:
    return " ".join(value.split()) if value else "(missing)"


def _tree_note(layout: Layout, upstream: Upstream, patches: series.Series) -> str:
    tree = layout.tree(upstream.version)
    if not tree.exists():
        return f"{shown(tree)} does not exist: run {tool('apply', upstream.version)}."
    try:
        repository, known = state.open_tree(tree, upstream.version)
        state.refuse_uncommitted(repository)
    except ForkError as error:
        return str(error)
    if repository.commit_id("HEAD") != known.tip:
        command = tool("export", upstream.version)
        return f"{shown(tree)} has commits to export: run {command}."
    if known.files != state.digests(patches):
        command = tool("apply", upstream.version)
        return f"{shown(tree)} holds an older series: run {command}."
    return f"{shown(tree)} holds the series, with nothing to export."
