# SPDX-License-Identifier: Apache-2.0
"""Files that are there whole or not at all."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` make a file beside `path`, then put it in its place.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(scratch)
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def write_json(path: Path, what: Any, *, indent: int | None = None) -> None:
    """Write `what` as JSON."""
    text = json.dumps(what, indent=indent) + "\n"
    write_whole(path, lambda scratch: scratch.write_text(text))


def same_settings(path: Path, settings: dict[str, Any]) -> None:
    """Note what a folder's files are made with; refuse to go on with something else.

    Args:
        path: of the note.
        settings: names of options and what can be written as JSON.

    Raises:
        ValueError: the folder was begun with other settings.
    """
    if not path.exists():
        write_json(path, settings, indent=2)
        return
    before = json.loads(path.read_text())
    for name in _sorted(before.keys() | settings.keys()):
        if before.get(name) != settings.get(name):
            raise ValueError(
                f"{path.parent} was begun with {name}={before.get(name)!r}, not "
                f"{settings.get(name)!r}: go on with that, or take another --work."
            )


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(names)
