# SPDX-License-Identifier: Apache-2.0
"""What the tools remember in a build tree, and whether somebody has worked in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from fork.errors import ForkError, shown, tool
from fork.files import write_atomically
from fork.git import Repository
from fork.series import Series

_FILE = "vllm-kunlun.json"


@dataclass(frozen=True)
class State:
    """The base and tip that the tools have put there, and from which files."""

    base: str
    tip: str
    files: Mapping[str, str]

    @classmethod
    def of(cls, base: str, tip: str, series: Series) -> State:
        """Describe a tree that holds exactly this series."""
        return cls(base, tip, digests(series))


def digests(series: Series) -> dict[str, str]:
    """Map every file of a series folder to its digest."""
    return {name: sha256(data).hexdigest() for name, data in series.files.items()}


def branch_name(version: str) -> str:
    """Return the branch that the series lives on."""
    return f"kunlun/{version}"


def save(repository: Repository, state: State) -> None:
    """Remember the state inside git's own folder, where nobody edits."""
    data = json.dumps(asdict(state), indent=1).encode()
    write_atomically(repository.git_dir / _FILE, data)


def open_tree(tree: Path, version: str) -> tuple[Repository, State]:
    """Open a build tree that is ours, on its branch, with nothing half done."""
    try:
        state = State(**json.loads((tree / ".git" / _FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        raise ForkError(
            f"{shown(tree)} was not made by scripts/apply: move it away and run "
            f"{tool('apply', version)}."
        ) from None
    repository = Repository(tree)
    if operation := repository.unfinished_operation():
        raise ForkError(
            f"{shown(tree)} is in the middle of a {operation}: finish it or abort it "
            "there, then try again."
        )
    branch = branch_name(version)
    if (current := repository.branch()) != branch:
        raise ForkError(
            f"{shown(tree)} has {current or 'no branch'} checked out instead of "
            f"{branch}: run `git -C {shown(tree)} switch {branch}`."
        )
    return repository, state


def refuse_uncommitted(repository: Repository) -> None:
    """Refuse where files were changed and not committed."""
    if changed := repository.changed_paths():
        listed = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
        raise ForkError(
            f"{shown(repository.path)} has uncommitted work ({listed}): commit it "
            "there, or take it back with `git stash --include-untracked`."
        )
