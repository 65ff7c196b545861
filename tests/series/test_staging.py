# SPDX-License-Identifier: Apache-2.0
"""Our sources are copied for another upstream version, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

from fork.build import staging
from fork.paths import PROJECT_ROOT


def test_version_and_torch_are_those_of_the_other_upstream(tmp_path: Path) -> None:
    sources = [PROJECT_ROOT / name for name in ("pyproject.toml", "LICENSE", "csrc")]
    folder = tmp_path / "sources"
    staging.stage(PROJECT_ROOT, sources, folder, "9.9+kunlun.2", "2.99.0")
    assert staging.version_of(folder) == "9.9+kunlun.2"
    ours = (PROJECT_ROOT / "pyproject.toml").read_text().splitlines()
    theirs = (folder / "pyproject.toml").read_text().splitlines()
    changed = [(old, new) for old, new in zip(ours, theirs, strict=True) if old != new]
    assert len(changed) == 3
    for old, new in changed:
        assert "torch==2.99.0" in new or new == 'version = "9.9+kunlun.2"'
        # What else the line says stays.
        assert old.partition("#")[2] == new.partition("#")[2]
    for file in (PROJECT_ROOT / "csrc").rglob("*.cpp"):
        copy = folder / file.relative_to(PROJECT_ROOT)
        assert copy.read_bytes() == file.read_bytes()


def test_the_default_version_is_built_in_place() -> None:
    from fork import config
    from fork.paths import Layout

    upstream = config.load(Layout().config).upstream()
    expected = f"{upstream.version}+kunlun.{upstream.revision}"
    assert staging.version_of(PROJECT_ROOT) == expected
