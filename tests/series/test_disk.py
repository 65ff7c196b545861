# SPDX-License-Identifier: Apache-2.0
"""What would not fit is refused, and what is only convenient left out, beforehand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fork.build import disk, environment
from fork.build.steps import Command
from fork.errors import ForkError

Leave = Callable[[float], None]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return an environment and a build folder, on one device with pip's cache."""
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip"))
    return tmp_path / "env", tmp_path / "build"


def install_torch(env: Path) -> None:
    torch = env / "lib" / "python3.11" / "site-packages" / "torch"
    torch.mkdir(parents=True)
    (torch / "version.py").touch()


def test_too_little(places: tuple[Path, Path], leave_free: Leave) -> None:
    leave_free(3)
    with pytest.raises(ForkError, match=r"has 3\.0 GB free, but 9\.0 GB are needed"):
        disk.check_disk(*places)
    # What is already installed is not asked for again.
    install_torch(places[0])
    assert disk.check_disk(*places).startswith("2.0 GB of disk needed, and free")


def test_little_is_enough_without_pips_copies(
    places: tuple[Path, Path], leave_free: Leave
) -> None:
    leave_free(10.2)
    assert "pip keeps no copies" in disk.check_disk(*places)
    leave_free(12)
    assert "pip" not in disk.check_disk(*places)
    # An installed torch leaves its room to others.
    leave_free(5)
    install_torch(places[0])
    assert disk.pip_may_keep_copies(*places)


@pytest.mark.parametrize(("gigabytes", "kept"), [(10.2, False), (12, True)])
def test_pip_is_told(
    places: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    leave_free: Leave,
    gigabytes: float,
    kept: bool,
) -> None:
    commands: list[Command] = []
    monkeypatch.setattr(environment, "run", commands.append)
    leave_free(gigabytes)
    env, build = places
    environment.install(env, ["packaging"], build / "log", "failed", offline=False)
    (command,) = commands
    assert ("--no-cache-dir" in command.arguments) is not kept
