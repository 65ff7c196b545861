# SPDX-License-Identifier: Apache-2.0
"""Gives every test a project, a cache and a home of its own."""

from __future__ import annotations

import os
import shutil
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import made_up
from fork.paths import Layout

GITCONFIG = "[user]\nname = A\nemail = a@example.org\n"
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's settings, cache and network out of the tests."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in [key for key in os.environ if key.startswith(("GIT_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("VLLM_KUNLUN_CACHE", str(tmp_path / "cache"))
    (folder / ".gitconfig").write_text(GITCONFIG)
    return folder


@pytest.fixture
def leave_free(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what leaves so many gigabytes free on every disk."""

    def leave(gigabytes: float) -> None:
        usage = Usage(0, 0, int(gigabytes * 10**9))
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    return leave


@pytest.fixture
def project(tmp_path: Path) -> made_up.Project:
    """Return a project whose series is empty."""
    return made_up.project(tmp_path / "project")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a patched project once; copies are cheaper than commits."""
    folder = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("VLLM_KUNLUN_CACHE", str(folder / "cache"))
        (folder / ".gitconfig").write_text(GITCONFIG)
        made_up.with_two_patches(made_up.project(folder / "project"))
    return folder


@pytest.fixture
def patched(template: Path, tmp_path: Path) -> made_up.Project:
    """Return a project with the patches a and b, applied and exported."""
    shutil.copytree(template / "cache", tmp_path / "cache")
    shutil.copytree(template / "project", tmp_path / "project")
    return made_up.Project(Layout(tmp_path / "project"), [])


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the whole of pip's world."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder
