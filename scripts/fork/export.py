# SPDX-License-Identifier: Apache-2.0
"""Writes the commits of the build tree as the series, all of it or nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fork import apply, config, fetch, message, series, state
from fork.config import Lock, Upstream
from fork.errors import ForkError, ForkErrors, shown, tool
from fork.fetch import Say
from fork.files import exclusive, remove_tree, scratch
from fork.git import Repository
from fork.message import PATCH_FILE, Message
from fork.paths import Layout
from fork.series import Series


@dataclass(frozen=True)
class Formatted:
    """Commits as they are after export, and the series that they make."""

    tip: str
    series: Series


def format_commits(repository: Repository, base: str) -> Formatted:
    """Turn every commit after the base into a patch, or say what stands against it."""
    if not repository.is_ancestor(base, "HEAD"):
        raise ForkError(
            f"{shown(repository.path)} no longer stands on upstream's commit {base}: "
            "rebase your work onto it."
        )
    findings: list[str] = []
    patches: dict[str, bytes] = {}
    tip = base
    for commit in repository.commits(base):
        text = message.parse(repository.message(commit))
        who = f"Commit {commit[:10]} ({text.subject})"
        text = text.with_trailer(PATCH_FILE, _file_name(text, who))
        name = text.trailer(PATCH_FILE) or ""
        findings += message.lint(text, who)
        findings += _lint_commit(repository, commit, who)
        if name in patches:
            findings.append(
                f"{who}: the name {name} is taken by an earlier commit; give it "
                f"another `{PATCH_FILE}:` trailer."
            )
        tip = repository.recommit(commit, tip, text.text())
        patches[name] = repository.patch(tip)
    if findings:
        raise ForkErrors(findings)
    return Formatted(tip, Series(patches))


def _file_name(text: Message, who: str) -> str:
    name = text.trailer(PATCH_FILE)
    if name is None:
        slug = re.sub(r"[^a-z0-9]+", "-", text.subject.lower()).strip("-")
        name = f"{slug[:60].rstrip('-')}.patch"
    series.check_name(name, who)
    return name


def _lint_commit(repository: Repository, commit: str, who: str) -> list[str]:
    parents = repository.run("show", "--no-patch", "--format=%P", commit).split()
    if len(parents) > 1:
        return [f"{who}: it is a merge, which no patch can hold; rebase instead."]
    if repository.tree_id(commit) == repository.tree_id(parents[0]):
        return [f"{who}: it changes nothing; drop it with `git rebase -i`."]
    return []


def export(
    layout: Layout, upstream: Upstream, *, offline: bool = False, say: Say = print
) -> bool:
    """Write the series and its lock; return whether anything changed."""
    version = upstream.version
    tree = layout.tree(version)
    folder = layout.series_dir(version)
    if not tree.exists():
        raise ForkError(
            f"{shown(tree)} does not exist: run {tool('apply', version)} first."
        )
    with exclusive(layout.build):
        repository, known = state.open_tree(tree, version)
        state.refuse_uncommitted(repository)
        formatted = format_commits(repository, known.base)
        new = formatted.series
        refuse_foreign_changes(folder, known.files, new)
        before = read_files(folder)
        if new.files != before:
            prove(layout, upstream, formatted, offline, say)
        write(folder, new, before)
        lock = Lock(known.base, new.digest, repository.tree_id(formatted.tip))
        changed = config.write_lock(layout.config, version, lock)
        # The same tree under canonical commits: no file of the work tree changes.
        repository.run(
            "update-ref", "-m", "scripts/export", "HEAD", formatted.tip, "HEAD"
        )
        state.save(repository, state.State.of(known.base, formatted.tip, new))
    for line in _report(before, new):
        say(line)
    if not changed and new.files == before:
        say(f"{shown(folder)} already is what {shown(tree)} holds: nothing to do.")
    return changed or new.files != before


def prove(
    layout: Layout, upstream: Upstream, formatted: Formatted, offline: bool, say: Say
) -> None:
    """Apply the new patches from nothing: they must give the very same commits."""
    archive = fetch.fetch(upstream.sdist, offline=offline, say=say)
    with scratch(layout.build, "export") as folder:
        applied = apply.build(
            folder, archive, upstream, formatted.series, lambda _: None
        )
    if applied.tip != formatted.tip:
        raise ForkError(
            f"The patches of vLLM {upstream.version} would apply as {applied.tip} "
            f"instead of {formatted.tip}: look for odd characters in the messages or "
            "author names of your commits."
        )


def read_files(folder: Path) -> dict[str, bytes]:
    """Read every file of a series folder, listed or not."""
    names = series.patch_files(folder) | {series.SERIES_FILE}
    paths = (folder / name for name in sorted(names))
    return {path.name: path.read_bytes() for path in paths if path.is_file()}


def refuse_foreign_changes(
    folder: Path,
    known: Mapping[str, str],
    new: Series,
    since: str = "the build tree was applied",
) -> None:
    """Refuse to overwrite what changed on disk since the tree was applied.

    A file may also be as it is about to be written: an export that was interrupted
    leaves it so, and running it again must finish the work.
    """
    ours = state.digests(new)
    for name, content in read_files(folder).items():
        digest = sha256(content).hexdigest()
        if digest not in (known.get(name), ours.get(name)):
            raise ForkError(
                f"{shown(folder / name)} was changed or added since {since} and would "
                "be lost: take it back from git or move it away, or keep your commits "
                f"with {tool('apply', folder.name)} --set-aside and cherry-pick them."
            )


def write(folder: Path, new: Series, before: Mapping[str, bytes]) -> None:
    """Put the files in place; what can fail is done before anything is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = {
        name: data for name, data in new.files.items() if before.get(name) != data
    }
    staging = folder / ".export"
    remove_tree(staging)
    try:
        if changed:
            staging.mkdir()
        for name, data in changed.items():
            (staging / name).write_bytes(data)
        # The series file goes last but for what it no longer lists.
        for name in sorted(changed, key=lambda name: name == series.SERIES_FILE):
            os.replace(staging / name, folder / name)
        for name in before.keys() - new.files.keys():
            (folder / name).unlink()
    finally:
        remove_tree(staging)


def _report(before: Mapping[str, bytes], new: Series) -> list[str]:
    lines = []
    for name in sorted(before.keys() | new.patches.keys()):
        if name == series.SERIES_FILE:
            continue
        if name not in new.patches:
            lines.append(f"removed  {name}")
        elif name not in before:
            lines.append(f"new      {name}")
        elif before[name] != new.patches[name]:
            lines.append(f"changed  {name}")
    old = before.get(series.SERIES_FILE)
    if not lines and old is not None and old != new.index:
        lines.append("reordered")
    return lines
