# SPDX-License-Identifier: Apache-2.0
"""What a rebase remembers in its work tree, so that it can be taken up at any time."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fork.errors import ForkError, shown
from fork.files import write_atomically
from fork.git import Repository
from fork.paths import Layout
from fork.transplant import Outcome

_FILE = "vllm-kunlun-rebase.json"


@dataclass
class Item:
    """One patch on its way.

    Attributes:
        name: its file.
        commit: its commit on the old base.
        before: its commit in the earlier rebase to the same version, if that was
            made from the same change, or from `was`.
        was: where the patch has changed since, its commit then.
        dropped: whether it was dropped in that earlier rebase.
        own: whether only the target's series has it.
        outcome: an `Outcome`, once there is one.
    """

    name: str
    commit: str
    before: str | None = None
    was: str | None = None
    dropped: bool = False
    own: bool = False
    outcome: str | None = None

    @property
    def source(self) -> str:
        """The commit to carry over, as long as nothing has changed in it."""
        return self.commit if self.was else self.before or self.commit


@dataclass
class Rebase:
    """A rebase that has begun.

    Attributes:
        source: the version that the series is taken from.
        target: the version it goes to.
        series: digest of the series that is taken.
        replaces: digests of the target's series files as they were found.
        base: commit of the target's sdist.
        tip: the last commit that was made, on top of `base`.
        stopped: why a person has to look at the next patch, if so: an `Outcome`.
    """

    source: str
    target: str
    series: str
    replaces: dict[str, str]
    base: str
    tip: str
    items: list[Item] = field(default_factory=list)
    stopped: str | None = None

    @property
    def position(self) -> int:
        """How many patches are done."""
        return sum(item.outcome is not None for item in self.items)

    @property
    def next(self) -> Item | None:
        """The first patch that is not done."""
        return next((item for item in self.items if item.outcome is None), None)

    def settle(self, outcome: Outcome, tip: str) -> None:
        """Be done with the next patch."""
        item = self.next
        assert item is not None
        item.outcome = outcome.value
        self.tip = tip
        self.stopped = None


def save(repository: Repository, rebase: Rebase) -> None:
    """Remember where the rebase is."""
    data = json.dumps(asdict(rebase), indent=1).encode()
    write_atomically(repository.git_dir / _FILE, data)


def forget(repository: Repository) -> None:
    """The rebase is over."""
    (repository.git_dir / _FILE).unlink(missing_ok=True)


def unfinished(layout: Layout) -> Path | None:
    """Return the work tree of the rebase that was begun and not ended."""
    found = sorted(layout.rebase("*").parent.glob(layout.rebase("*").name))
    return found[0] if found else None


def load(layout: Layout) -> tuple[Repository, Rebase]:
    """Take up the rebase that was begun."""
    folder = unfinished(layout)
    if folder is None:
        raise ForkError(
            "There is no unfinished rebase: begin one with `scripts/rebase --to "
            "VERSION`."
        )
    try:
        raw = json.loads((folder / ".git" / _FILE).read_text("utf-8"))
        items = [Item(**item) for item in raw.pop("items")]
        return Repository(folder), Rebase(**raw, items=items)
    except (OSError, ValueError, TypeError, KeyError):
        raise ForkError(
            f"{shown(folder)} was not made by scripts/rebase: move it away."
        ) from None
