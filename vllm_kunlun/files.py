# SPDX-License-Identifier: Apache-2.0
"""Files that are there whole or not at all, and folders that must hold some."""

import json
import os
from collections.abc import Callable
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
        scratch.touch()
        mode = scratch.stat().st_mode
        write(scratch)
        # Some writers make a file of their own that only its owner can read.
        scratch.chmod(mode)
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text."""
    write_whole(path, lambda scratch: scratch.write_text(text, encoding="utf-8"))


def write_json(path: Path, what: Any, *, indent: int | None = None) -> None:
    """Write `what` as JSON."""
    write_text(path, json.dumps(what, indent=indent) + "\n")


def check_model(path: Path | None) -> None:
    """Refuse a folder that is no model's; None is one that comes along.

    Raises:
        ValueError: it has no ``config.json``.
    """
    if path is not None and not (path / "config.json").is_file():
        raise ValueError(f"{path} is no model: it has no config.json.")
