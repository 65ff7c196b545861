# SPDX-License-Identifier: Apache-2.0
"""An sdist becomes the same commit whatever the machine is set to."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import made_up
import pytest
from fork import sdist
from fork.errors import ForkError
from made_up import Project


def test_every_byte_and_mode_survives(project: Project) -> None:
    tree = project.apply()
    for path, (mode, data) in made_up.files("1.0").items():
        assert (tree / path).read_bytes() == data
        executable = bool((tree / path).stat().st_mode & stat.S_IXUSR)
        assert executable == (mode == 0o775)
    assert project.git("status", "--porcelain") == ""
    tracked = project.git("ls-files", "-z").split("\0")
    assert sorted(filter(None, tracked)) == sorted(made_up.files("1.0"))


def test_hostile_settings_and_umask_change_nothing(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = made_up.with_two_patches(made_up.project(tmp_path / "plain"))
    expected = plain.git("rev-parse", "HEAD"), plain.state()

    other = made_up.project(tmp_path / "other")
    for name in ("a.patch", "b.patch", "series"):
        (other.patches / name).write_bytes((plain.patches / name).read_bytes())
    made_up.hostile_settings(home)
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Intruder")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2001-01-01T00:00:00")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    before = os.umask(0o077)
    try:
        other.verify(update=True)
        other.apply()
        other.export()
    finally:
        os.umask(before)
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert (other.git("rev-parse", "HEAD"), other.state()) == expected
    # The user's own git sees a clean tree too.
    assert other.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    "name",
    ["../x", "made_up-1.0/../../x", "/etc/x", "made_up-1.0/.git/config", "elsewhere/x"],
)
def test_members_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "made_up-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for member in ("made_up-1.0/a", name):
            tar.addfile(tarfile.TarInfo(member), io.BytesIO())
    with pytest.raises(ForkError, match="is refused because its member"):
        list(sdist.members(archive))


def test_links_are_refused(tmp_path: Path) -> None:
    archive = tmp_path / "made_up-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        link = tarfile.TarInfo("made_up-1.0/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(ForkError, match="neither a file nor a folder"):
        list(sdist.members(archive))


def test_unpacking_is_idempotent_and_replaces_another_archive(tmp_path: Path) -> None:
    archive = tmp_path / "made_up-1.0.tar.gz"
    archive.write_bytes(made_up.pack("1.0"))
    folder = sdist.unpack(archive, "digest", tmp_path / "build" / "upstream")
    assert (folder / "dos.txt").read_bytes() == b"first\r\nsecond\r\nthird\r\n"
    before = (folder / "dos.txt").stat().st_mtime_ns
    sdist.unpack(archive, "digest", folder)
    assert (folder / "dos.txt").stat().st_mtime_ns == before
    (folder / "left-over").touch()
    sdist.unpack(archive, "another digest", folder)
    assert not (folder / "left-over").exists()
