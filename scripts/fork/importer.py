# SPDX-License-Identifier: Apache-2.0
"""Turns an sdist into one commit that has the same id on every machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO

from fork import sdist
from fork.config import Artifact
from fork.git import Repository
from fork.hermetic import EMAIL, EPOCH, NAME

_REF = "refs/upstream/{version}"


def import_sdist(repository: Repository, archive: Path, artifact: Artifact) -> str:
    """Write the archive as a parentless commit and return its id.

    The archive is taken as verified. The commit is kept under refs/upstream/, so that
    one repository can hold the bases of several versions.
    """
    ref = _REF.format(version=artifact.version)
    # A real file: GitPython gives the stream to git as its standard input.
    with tempfile.TemporaryFile(dir=repository.git_dir) as stream:
        _write_stream(stream, archive, artifact, ref)
        stream.seek(0)
        repository.run("fast-import", "--quiet", "--done", "--depth=0", istream=stream)
    commit = repository.commit_id(ref)
    assert commit is not None  # fast-import has just made it
    return commit


def _write_stream(
    stream: IO[bytes], archive: Path, artifact: Artifact, ref: str
) -> None:
    message = (
        f"{artifact.project} {artifact.version} as published\n\n"
        f"{artifact.file}\nsha256 {artifact.sha256}\n"
    ).encode()
    stream.write(f"commit {ref}\n".encode())
    stream.write(f"author {NAME} <{EMAIL}> {EPOCH}\n".encode())
    stream.write(f"committer {NAME} <{EMAIL}> {EPOCH}\n".encode())
    stream.write(b"data %d\n%s\n" % (len(message), message))
    for member in sdist.members(archive):
        mode = b"100755" if member.executable else b"100644"
        stream.write(b"M %s inline %s\n" % (mode, _quoted(member.path)))
        stream.write(b"data %d\n%s\n" % (len(member.data), member.data))
    stream.write(b"done\n")


def _quoted(path: str) -> bytes:
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}
    return b'"%s"' % "".join(escapes.get(char, char) for char in path).encode()
