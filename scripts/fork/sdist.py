# SPDX-License-Identifier: Apache-2.0
"""Reads an sdist straight from the archive: nothing of the machine shows through.

Members are taken as bytes with one of two modes, so that umask, line-ending settings
and .gitignore change nothing.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fork.errors import ForkError
from fork.files import exclusive, remove_tree, scratch


@dataclass(frozen=True)
class Member:
    """One file of the archive, its path relative to the archive's only folder."""

    path: str
    executable: bool
    data: bytes


def members(archive: Path) -> Iterator[Member]:
    """Yield the files of an sdist in the archive's order, refusing anything odd."""
    seen: set[str] = set()
    top: str | None = None
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for info in tar:
                root, path = _split(archive, info.name)
                if top is None:
                    top = root
                elif root != top:
                    raise _odd(archive, info.name, f"lies outside {top}/")
                if info.isdir():
                    continue
                if not info.isfile():
                    raise _odd(archive, info.name, "is neither a file nor a folder")
                if path in seen:
                    raise _odd(archive, info.name, "is there twice")
                seen.add(path)
                stream = tar.extractfile(info)
                assert stream is not None  # it is a regular file
                yield Member(path, bool(info.mode & 0o100), stream.read())
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ForkError(
            f"{archive.name} is not a readable sdist ({error}): delete {archive} and "
            "fetch it again."
        ) from None
    if not seen:
        raise ForkError(f"{archive.name} has no files: check upstream.toml's sdist.")


def _split(archive: Path, name: str) -> tuple[str, str]:
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise _odd(archive, name, "leads out of the archive")
    if ".git" in (part.lower() for part in parts):
        raise _odd(archive, name, "would write into git's own folder")
    return parts[0], "/".join(parts[1:])


def _odd(archive: Path, name: str, why: str) -> ForkError:
    return ForkError(
        f"{archive.name} is refused because its member {name!r} {why}: "
        "check upstream.toml's sdist."
    )


def unpack(archive: Path, digest: str, destination: Path) -> Path:
    """Unpack a verified sdist once; a second call finds it and returns at once."""
    stamp = ".unpacked-sdist"
    with exclusive(destination.parent):
        marker = destination / stamp
        if marker.is_file() and marker.read_text("utf-8") == digest:
            return destination
        with scratch(destination.parent, destination.name) as folder:
            for member in members(archive):
                path = folder / member.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(member.data)
                os.chmod(path, 0o755 if member.executable else 0o644)
            (folder / stamp).write_text(digest, "utf-8")
            remove_tree(destination)
            os.rename(folder, destination)
    return destination
