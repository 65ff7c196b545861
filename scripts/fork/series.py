# SPDX-License-Identifier: Apache-2.0
"""The series on disk: which patches, in which order, and whether they are sound."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fork.errors import ForkError, shown

SERIES_FILE = "series"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\.patch")


@dataclass(frozen=True)
class Series:
    """The patches by name, in order, as bytes."""

    patches: Mapping[str, bytes]

    @property
    def names(self) -> list[str]:
        """Return the names in order."""
        return list(self.patches)

    @property
    def index(self) -> bytes:
        """Return the content of the series file."""
        return "".join(f"{name}\n" for name in self.patches).encode()

    @property
    def files(self) -> dict[str, bytes]:
        """Return everything that the folder must hold."""
        return {**self.patches, SERIES_FILE: self.index}

    @property
    def digest(self) -> str:
        """Return one digest over the names, the order and every byte."""
        total = hashlib.sha256()
        for name, content in self.patches.items():
            total.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
        return total.hexdigest()


def check_name(name: str, where: str) -> None:
    """Refuse names that could not be the same file on every file system."""
    if not _NAME.fullmatch(name):
        raise ForkError(
            f"{where}: {name!r} is not a patch name; use lower-case letters, digits, "
            "`.`, `_` and `-`, ending in `.patch`."
        )


def read(folder: Path) -> Series:
    """Read a series whose `series` file lists exactly the patches that exist."""
    index = folder / SERIES_FILE
    try:
        raw = index.read_bytes()
    except FileNotFoundError:
        raise ForkError(
            f"{shown(index)} is missing: take it back from git "
            f"(`git checkout -- {shown(index)}`)."
        ) from None
    names = raw.decode("utf-8", "replace").splitlines()
    for number, name in enumerate(names, 1):
        check_name(name, f"{shown(index)}, line {number}")
        if names.index(name) != number - 1:
            raise ForkError(f"{shown(index)} lists {name} twice: delete one line.")
    if present := set(names) - patch_files(folder):
        raise ForkError(
            f"{shown(index)} lists {_some(present)}, which is not in the folder: take "
            "the file back from git, or drop its line."
        )
    if extra := patch_files(folder) - set(names):
        raise ForkError(
            f"{shown(folder)} holds {_some(extra)}, which `{SERIES_FILE}` does not "
            "list: add its line where it belongs, or move the file away."
        )
    series = Series({name: (folder / name).read_bytes() for name in names})
    if series.index != raw:
        raise ForkError(
            f"{shown(index)} is not one patch name a line with a final newline: "
            "run scripts/export to write it again."
        )
    return series


def patch_files(folder: Path) -> set[str]:
    """List what lies in a series folder beside the series file."""
    if not folder.is_dir():
        return set()
    names = {path.name for path in folder.iterdir()}
    # Temporary files of an export that was interrupted are hidden ones.
    return {name for name in names if name != SERIES_FILE and name[0] != "."}


def _some(names: set[str]) -> str:
    return ", ".join(sorted(names)[:3])
