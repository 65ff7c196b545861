# SPDX-License-Identifier: Apache-2.0
"""What is fetched is what was pinned, or nothing is kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import made_up
import pytest
from fork import fetch
from fork.config import Artifact
from fork.errors import ForkError
from made_up import Project


@pytest.fixture
def sdist(project: Project) -> Artifact:
    """Return a pinned sdist that the cache does not have."""
    artifact = project.upstream.sdist
    (fetch.folder() / artifact.file).unlink()
    return artifact


def cached(artifact: Artifact) -> Path:
    return fetch.folder() / artifact.file


def test_pip_downloads_without_running_the_archive(
    index: Path, sdist: Artifact
) -> None:
    data = made_up.pack("1.0")
    (index / sdist.file).write_bytes(data)
    said: list[str] = []
    assert fetch.fetch(sdist, say=said.append).read_bytes() == data
    assert said == [f"Downloading {sdist.file} (0 MB) with pip."]
    assert sorted(p.name for p in fetch.folder().iterdir() if p.name[0] != ".") == [
        "made_up-1.0.tar.gz",
        "made_up-1.1.tar.gz",
        "made_up-1.2.tar.gz",
    ]


def test_another_file_of_the_same_name_is_not_kept(
    index: Path, sdist: Artifact
) -> None:
    changed = made_up.files("1.0") | {"unix.txt": (0o664, b"changed\n")}
    (index / sdist.file).write_bytes(made_up.pack("1.0", changed))
    with pytest.raises(ForkError, match=f"sha256 is not {sdist.sha256}"):
        fetch.fetch(sdist)
    assert not cached(sdist).exists()


def test_wrong_size_is_not_kept(index: Path, sdist: Artifact) -> None:
    (index / sdist.file).write_bytes(made_up.pack("1.0"))
    wrong = dataclasses.replace(sdist, size=5)
    with pytest.raises(ForkError, match=r"has \d+ bytes instead of 5"):
        fetch.fetch(wrong)
    assert not cached(sdist).exists()


def test_pip_finding_nothing_is_one_sentence(index: Path, sdist: Artifact) -> None:
    with pytest.raises(ForkError) as error:
        fetch.fetch(sdist)
    text = str(error.value)
    assert "\n" not in text
    assert "pip could not download made-up==1.0" in text
    assert str(fetch.folder()) in text


def test_truncated_cache_file_is_put_aside_and_fetched_again(
    index: Path, project: Project
) -> None:
    artifact = project.upstream.sdist
    whole = cached(artifact).read_bytes()
    cached(artifact).write_bytes(whole[:100])
    (index / artifact.file).write_bytes(whole)
    said: list[str] = []
    assert fetch.fetch(artifact, say=said.append).read_bytes() == whole
    assert "has 100 bytes instead of" in said[0]
    assert cached(artifact).with_name(f"{artifact.file}.bad").stat().st_size == 100


def test_changed_cache_file_of_the_same_size_is_found(project: Project) -> None:
    artifact = project.upstream.sdist
    whole = bytearray(cached(artifact).read_bytes())
    whole[-1] ^= 1
    cached(artifact).write_bytes(whole)
    with pytest.raises(ForkError, match="run once without --offline"):
        fetch.fetch(artifact, offline=True)


def test_offline_with_an_empty_cache_says_what_is_missing(sdist: Artifact) -> None:
    with pytest.raises(ForkError) as error:
        fetch.fetch(sdist, offline=True)
    assert str(error.value) == (
        f"made_up-1.0.tar.gz is not in the cache {fetch.folder()}: run once without "
        "--offline, or copy the file there."
    )


def test_unknown_version_is_named(project: Project) -> None:
    from fork import config

    with pytest.raises(ForkError, match=r"vLLM 9\.9 is not maintained here"):
        config.load(project.layout.config).upstream("9.9")
