# SPDX-License-Identifier: Apache-2.0
"""Our sources as another upstream version wants them: its version, its torch."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomlkit

_TORCH = re.compile(r"torch==[\d.]+")


def version_of(root: Path) -> str:
    """Return the version that the project's own pyproject.toml builds."""
    data: Any = tomlkit.parse((root / "pyproject.toml").read_text("utf-8"))
    return str(data["project"]["version"])


def stage(
    root: Path, sources: Sequence[Path], folder: Path, version: str, torch: str
) -> Path:
    """Copy the sources into `folder`, for another version; return where they are.

    pyproject.toml names the version that is the default here. The pair check compares
    wheels by version, and the kernels are compiled against one torch: for another
    upstream both are written into the copy.
    """
    for source in sources:
        target = folder / source.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy2(source, target)
    path = folder / "pyproject.toml"
    data: Any = tomlkit.parse(path.read_text("utf-8"))
    data["project"]["version"] = version
    for table, key in (("build-system", "requires"), ("project", "dependencies")):
        asked = data[table][key]
        for number, requirement in enumerate(asked):
            if _TORCH.fullmatch(requirement):
                asked[number] = f"torch=={torch}"
    path.write_text(tomlkit.dumps(data), "utf-8")
    return folder
