# SPDX-License-Identifier: Apache-2.0
"""Releases are pinned through pip, or it is said why not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import made_up
import pytest
from fork import fetch, releases
from fork.errors import ForkError
from fork.files import sha256
from fork.releases import Release
from made_up import Project

METADATA = "Metadata-Version: 2.1\nName: made-up\nVersion: {}\n{}"
TORCH = "Requires-Dist: torch==2.13.0\n"


def publish(index: Path, version: str, more: str = TORCH) -> None:
    """Put an sdist on the index."""
    info = METADATA.format(version, more).encode()
    content = made_up.files(version) | {"PKG-INFO": (0o644, info)}
    (index / f"made_up-{version}.tar.gz").write_bytes(made_up.pack(version, content))


def publish_wheel(index: Path, version: str) -> None:
    """Put a wheel on the index; the made-up upstream is its own donor."""
    with zipfile.ZipFile(index / f"made_up-{version}-py3-none-any.whl", "w") as wheel:
        folder = f"made_up-{version}.dist-info"
        wheel.writestr(f"{folder}/METADATA", METADATA.format(version, ""))
        wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\n")


def pin(project: Project, version: str) -> Release:
    return releases.pin(
        project.layout, project.settings, version, say=project.said.append
    )


def refused(project: Project, version: str, match: str) -> None:
    with pytest.raises(ForkError, match=match) as error:
        pin(project, version)
    assert "\n" not in str(error.value)
    assert not project.layout.releases.exists()


def test_a_release_is_pinned_by_what_pip_downloads(
    index: Path, project: Project
) -> None:
    publish(index, "2.0")
    publish_wheel(index, "2.0")
    release = pin(project, "2.0")
    assert release.torch == "2.13.0"
    assert release.sdist.sha256 == sha256(index / release.sdist.file)
    assert release.donor is not None
    assert release.donor.size == (index / release.donor.file).stat().st_size
    assert releases.read(project.layout.releases) == {"2.0": release}
    assert fetch.fetch(release.sdist, offline=True).exists()
    pin(project, "2.0")
    assert project.said[-1] == "vLLM 2.0 is pinned already."


def test_a_donor_wheel_may_be_missing(index: Path, project: Project) -> None:
    publish(index, "2.0")
    assert pin(project, "2.0").donor is None
    assert project.said[-1].endswith("there is no donor wheel.")


def test_an_unknown_version_is_named(index: Path, project: Project) -> None:
    publish(index, "2.0")
    refused(project, "9.9", r"has no made-up 9\.9 \(its newest are 2\.0\)")
    refused(project, "newest", "'newest' is not a version")


def test_a_version_without_an_sdist_is_named(index: Path, project: Project) -> None:
    publish_wheel(index, "2.0")
    refused(project, "2.0", r"made-up 2\.0 has no sdist on the package index")


def test_an_empty_index_is_named(index: Path, project: Project) -> None:
    refused(project, "2.0", r"has no made-up 2\.0 \(its newest are none\)")


def test_another_spelling_is_refused(index: Path, project: Project) -> None:
    publish(index, "2.0.0")
    refused(project, "2.0", r"made_up-2\.0\.0\.tar\.gz holds version 2\.0\.0, not 2\.0")


def test_a_release_must_name_its_torch(index: Path, project: Project) -> None:
    publish(index, "2.0", "Requires-Dist: torch>=2.0\n")
    refused(project, "2.0", "does not say which torch it wants")


def test_newer_releases_are_found(index: Path, project: Project) -> None:
    for version in ("0.9", "1.2", "1.3", "2.0rc1", "2.0"):
        publish(index, version)
    found = releases.newer(project.layout, project.settings)
    assert found == ["1.3", "2.0"]


def test_a_broken_file_is_named(project: Project) -> None:
    project.layout.releases.write_text("not TOML")
    with pytest.raises(ForkError, match=r"upstream-releases\.toml is not valid TOML"):
        releases.read(project.layout.releases)
