# SPDX-License-Identifier: Apache-2.0
"""The one kind of error that a user of the fork tools is meant to read."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path


class ForkError(Exception):
    """A sentence that names the thing, its value and the remedy."""


class ForkErrors(ForkError):
    """Several independent findings, reported together, one sentence each."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__("\n".join(findings))
        self.findings = findings


def not_maintained(version: str, known: Iterable[str], config: Path) -> ForkError:
    """Say that there is no series for a version."""
    return ForkError(
        f"vLLM {version} is not maintained here: {shown(config)} has "
        f"{', '.join(known)}; name one of them, or carry the series over with "
        f"`scripts/rebase --to {version}`."
    )


def tool(name: str, version: str) -> str:
    """Return the command line of a tool for one version, whichever is the default."""
    return f"scripts/{name} --upstream {version}"


def explain_os_error(error: OSError) -> str:
    """Say what an operating-system error means to somebody who runs a tool."""
    where = error.filename or "a temporary file"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk is full ({where}): free some space and run the same command "
            "again, it continues where it stopped."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{where} cannot be written ({error.strerror}): change its permissions."
    return f"{where}: {error.strerror or error}."


def shown(path: Path) -> str:
    """A path as the user would type it: relative where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
