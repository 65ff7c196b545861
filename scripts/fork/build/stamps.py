# SPDX-License-Identifier: Apache-2.0
"""Remembers what a wheel was built from, and believes it only if all is still so."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from fork.files import sha256, write_atomically


def key(inputs: Mapping[str, str]) -> str:
    """Return one digest over everything that goes into a build."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def digest_of_files(root: Path, paths: Iterable[Path]) -> str:
    """Return one digest over names and contents; folders are walked."""
    total = hashlib.sha256()
    for path in sorted(_files(paths)):
        total.update(f"{path.relative_to(root)}\0{sha256(path)}\n".encode())
    return total.hexdigest()


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_file():
            yield path
        for folder, names, files in os.walk(path):
            names[:] = [name for name in names if name != "__pycache__"]
            yield from (Path(folder) / name for name in files)


def find(dist: Path, name: str, wanted: str) -> Path | None:
    """Return the wheel that was built from exactly these inputs, if it is intact."""
    try:
        stamp = json.loads(_stamp(dist, name).read_text("utf-8"))
        wheel = dist / str(stamp["wheel"])
        if stamp["key"] == wanted and sha256(wheel) == stamp["sha256"]:
            return wheel
    except (OSError, ValueError, KeyError, TypeError):
        # No stamp, or one that says nothing: the wheel is simply built again.
        return None
    return None


def record(dist: Path, name: str, made_from: str, wheel: Path) -> None:
    """Remember a wheel."""
    stamp = {"key": made_from, "wheel": wheel.name, "sha256": sha256(wheel)}
    write_atomically(_stamp(dist, name), json.dumps(stamp, indent=1).encode())


def _stamp(dist: Path, name: str) -> Path:
    return dist / f".{name}.json"
