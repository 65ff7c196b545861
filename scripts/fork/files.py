# SPDX-License-Identifier: Apache-2.0
"""Files that are either as they were or complete, and their digests."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def sha256(path: Path) -> str:
    """Return the digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file's content in one step, whatever happens meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes private files; a tracked file is as readable as its siblings.
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


@contextlib.contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """Give a temporary folder beside its destination, gone at the end.

    The owner holds the lock of `parent`, so what an interrupted run has left under
    the same name is nobody's any more and is removed first.
    """
    parent.mkdir(parents=True, exist_ok=True)
    path = parent / f".{name}.tmp"
    remove_tree(path)
    path.mkdir()
    try:
        yield path
    finally:
        remove_tree(path)


def remove_tree(path: Path) -> None:
    """Remove a folder if it is there."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


@contextlib.contextmanager
def exclusive(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Let one process at a time work in a folder; the others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
