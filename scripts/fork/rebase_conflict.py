# SPDX-License-Identifier: Apache-2.0
"""A conflict of a rebase: what a person is shown, and what is taken from them."""

from __future__ import annotations

from pathlib import Path

from fork.errors import ForkError, shown
from fork.fetch import Say
from fork.git import Repository
from fork.transplant import Transplant, conflict_hunks


def show(repository: Repository, commit: str, result: Transplant, say: Say) -> None:
    """Print the files in conflict with their conflicting hunks."""
    for path in result.conflicts:
        file = repository.path / path
        text = file.read_text("utf-8", "replace") if file.is_file() else ""
        hunks = conflict_hunks(text)
        say(f"--- {path}, conflicting hunks: {len(hunks) or 'the whole file'}")
        for hunk in hunks:
            say(hunk)
        if not hunks:
            say("upstream has deleted or renamed this file, or it is not text")
    say(f"`git show {commit[:10]}` there shows the patch on the old upstream.")


def resolved(repository: Repository, tip: str) -> str:
    """Return the tree that a person has made, or say what is still open."""
    head = repository.commit_id("HEAD")
    place = shown(repository.path)
    if head != tip:
        # Somebody used to git has committed the resolution.
        if repository.commit_id("HEAD^") != tip or repository.changed_paths():
            raise ForkError(
                f"{place} has other commits than the rebase made: `git -C {place} "
                f"reset --soft {tip[:10]}` keeps the files, then --continue."
            )
        return repository.tree_id("HEAD")
    unmerged = repository.run("diff", "--name-only", "--diff-filter=U", "-z")
    paths = [path for path in unmerged.split("\0") if path]
    marked = [path for path in paths if _has_markers(repository.path / path)]
    if marked:
        raise ForkError(
            f"{place} still has conflict markers in {', '.join(marked)}: edit them "
            "away and `git add` the files, then --continue."
        )
    new = repository.run("ls-files", "--others", "--exclude-standard")
    if new:
        raise ForkError(
            f"{place} has files that git does not know ({', '.join(new.split()[:3])}): "
            "`git add` what belongs to the patch and delete the rest."
        )
    repository.run("add", "--all")
    return repository.run("write-tree")


def _has_markers(file: Path) -> bool:
    return file.is_file() and bool(conflict_hunks(file.read_text("utf-8", "replace")))
