# SPDX-License-Identifier: Apache-2.0
"""Gives every test a project, a cache and a home of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import made_up


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
    (folder / ".gitconfig").write_text("[user]\nname = A\nemail = a@example.org\n")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> made_up.Project:
    """Return a project whose series is empty."""
    return made_up.project(tmp_path / "project")


@pytest.fixture
def patched(project: made_up.Project) -> made_up.Project:
    """Return a project with the patches a and b, applied and exported."""
    return made_up.with_two_patches(project)
