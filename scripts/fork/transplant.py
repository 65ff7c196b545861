# SPDX-License-Identifier: Apache-2.0
"""Carries one patch over to another tree by a three-way merge, without a work tree."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path

from fork.errors import ForkError
from fork.git import Repository

_GIT = (2, 38)
_HUNK = re.compile(rb"@@ -(\d+(?:,\d+)?) \+(\d+(?:,\d+)?) @@.*")


class Outcome(str, Enum):
    """What became of a patch."""

    CLEAN = "clean"
    MOVED = "moved"
    THREE_WAY = "3-way"
    CONFLICT = "conflict"
    UPSTREAM = "taken upstream"
    DROPPED = "dropped"
    KEPT = "as before"
    FOLLOWED = "as before, with its change"


@dataclass(frozen=True)
class Transplant:
    """The tree that comes out.

    Attributes:
        tree: where there are conflicts, the files concerned are left as they were.
        conflicts: path of each file in conflict, with its conflicting hunks.
    """

    tree: str
    conflicts: Mapping[str, Sequence[str]]


def need_git(repository: Repository) -> None:
    """Refuse a git that cannot merge without a work tree."""
    text = repository.run("version")
    found = tuple(int(number) for number in re.findall(r"\d+", text)[:2])
    if found < _GIT:
        raise ForkError(
            f"A rebase needs git {_GIT[0]}.{_GIT[1]} or newer, but this is {text}: "
            "install a newer one."
        )


def transplant(repository: Repository, commit: str, onto: str) -> Transplant:
    """Merge what `commit` changes into the tree `onto`."""
    tree = repository.tree_id(commit)
    before = repository.tree_id(f"{commit}^")
    return merge(repository, before, onto, tree)


def merge(repository: Repository, base: str, ours: str, theirs: str) -> Transplant:
    """Merge three trees."""
    if base == ours:
        return Transplant(theirs, {})
    # `merge-tree` takes commits: two children of the base.
    parent = _commit(repository, base)
    sides = [_commit(repository, side, "-p", parent) for side in (ours, theirs)]
    status, printed = repository.attempt(
        "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", *sides
    )
    merged, *paths = printed.rstrip("\0").split("\0")
    if status == 0:
        return Transplant(merged, {})
    if status != 1 or not paths:
        raise ForkError(f"git merge-tree failed on {theirs} ({printed.strip()}).")
    conflicts = {path: _hunks(repository, merged, path) for path in sorted({*paths})}
    return Transplant(_without(repository, merged, conflicts, ours), conflicts)


def classify(old: bytes, new: bytes) -> Outcome:
    """Tell what a merge did to a patch that went through without a conflict."""
    if content_digest(old) != content_digest(new):
        return Outcome.THREE_WAY
    if _HUNK.findall(old) != _HUNK.findall(new):
        return Outcome.MOVED
    return Outcome.CLEAN


def content_digest(patch: bytes) -> str:
    """Digest what a patch changes: not where, not on which blobs, not its message."""
    total = sha256()
    _, _, diff = patch.partition(b"\ndiff --git ")
    for line in diff.splitlines(keepends=True):
        if not line.startswith(b"index "):
            total.update(b"@@\n" if _HUNK.match(line) else line)
    return total.hexdigest()


def conflict_hunks(text: str) -> list[str]:
    """Cut the marked conflicts out of a file, each preceded by its line number."""
    found: list[str] = []
    current: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("<<<<<<< "):
            current = [f"line {number}:"]
        if current is not None:
            current.append(line)
            if line.startswith(">>>>>>> "):
                found.append("\n".join(current))
                current = None
    return found


def _commit(repository: Repository, tree: str, *parents: str) -> str:
    who = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x"}
    dates = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
    return repository.run(
        "commit-tree", tree, *parents, "-m", "merge side", env=who | dates
    )


def _hunks(repository: Repository, tree: str, path: str) -> list[str]:
    status, text = repository.attempt("cat-file", "blob", f"{tree}:{path}")
    # No markers: upstream has deleted or renamed the file.
    return conflict_hunks(text) if status == 0 else []


def _without(
    repository: Repository, merged: str, paths: Mapping[str, object], onto: str
) -> str:
    """Take the files in conflict back to how they were."""
    lines = [
        repository.run("ls-tree", onto, "--", path) or f"0 {'0' * 40}\t{path}"
        for path in paths
    ]
    with tempfile.TemporaryDirectory(dir=repository.git_dir) as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        repository.run("read-tree", merged, env=index)
        with (Path(folder) / "entries").open("w+b") as stream:
            stream.write("".join(f"{line}\n" for line in lines).encode())
            stream.seek(0)
            repository.run("update-index", "--index-info", istream=stream, env=index)
        return repository.run("write-tree", env=index)
