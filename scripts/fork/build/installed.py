# SPDX-License-Identifier: Apache-2.0
"""Asks the running environment what is really installed in it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

from packaging.requirements import Requirement


def missing(requirements: Iterable[str]) -> list[str]:
    """Return the requirements that the environment does not satisfy."""
    return [text for text in requirements if not _satisfied(Requirement(text))]


def is_installed(name: str, sha256: str) -> bool:
    """Whether this very wheel file is what is installed under a name."""
    try:
        record = Distribution.from_name(name).read_text("direct_url.json")
        info = json.loads(record or "{}")["archive_info"]
        return bool(info["hashes"]["sha256"] == sha256)
    except (PackageNotFoundError, ValueError, KeyError, TypeError):
        return False


def unsatisfied_by(name: str) -> list[str]:
    """Return what an installed distribution asks for and does not find."""
    asked = Distribution.from_name(name).requires or []
    return [
        text
        for text, requirement in ((text, Requirement(text)) for text in asked)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if not _satisfied(requirement)
    ]


def read_requirements(path: Path) -> list[str]:
    """Read a requirements file of upstream: one requirement a line, and comments."""
    lines = (
        line.partition("#")[0].strip() for line in path.read_text("utf-8").split("\n")
    )
    found = [line for line in lines if line and not line.startswith("-")]
    return [
        text
        for text in found
        if (marker := Requirement(text).marker) is None or marker.evaluate()
    ]


def _satisfied(requirement: Requirement) -> bool:
    try:
        version = Distribution.from_name(requirement.name).version
    except PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)
