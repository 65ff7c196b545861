# SPDX-License-Identifier: Apache-2.0
"""Verification finds every difference, and prints what would put it right."""

from __future__ import annotations

import subprocess
from pathlib import Path

import made_up
import pytest
from fork import status, verify
from fork.errors import ForkError
from made_up import Project


def test_sound_series_is_verified_without_touching_anything(patched: Project) -> None:
    before = patched.state()
    lock = patched.verify()
    assert lock.tree == patched.git("rev-parse", "HEAD^{tree}")
    assert patched.state() == before


def test_what_is_not_a_fixpoint_comes_with_its_fix(
    patched: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(patched.layout.root)
    patch = patched.patches / "b.patch"
    right = patch.read_bytes()
    patch.write_bytes(right.replace(b"\n\nForwarded", b"\n\n\nForwarded"))
    with pytest.raises(verify.NotAFixpoint) as error:
        patched.verify(update=True)
    fix = tmp_path / "fix.diff"
    fix.write_text(error.value.fix)
    subprocess.run(["patch", "-s", "-p1", "-i", str(fix)], check=True)
    assert patch.read_bytes() == right
    patched.verify()


def test_dashes_in_a_message_are_found_in_the_file(patched: Project) -> None:
    patch = patched.patches / "a.patch"
    body = patch.read_bytes().replace(b"wants it so.", b"wants it so.\n---\nAnd more.")
    patch.write_bytes(body)
    with pytest.raises(ForkError, match=r"a\.patch: the message has the line '---'"):
        patched.verify()


def test_every_missing_trailer_is_named_at_once(patched: Project) -> None:
    for name in ("a.patch", "b.patch"):
        patch = patched.patches / name
        patch.write_bytes(patch.read_bytes().replace(b"Origin: vendor\n", b""))
    with pytest.raises(ForkError) as error:
        patched.verify()
    lines = str(error.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["a.patch", "b.patch"]


def test_file_name_and_trailer_must_agree(patched: Project) -> None:
    (patched.patches / "a.patch").rename(patched.patches / "c.patch")
    (patched.patches / "series").write_text("c.patch\nb.patch\n")
    with pytest.raises(ForkError, match=r"c\.patch: the trailer `Patch-File:` says a"):
        patched.verify()


def test_stale_lock_is_named_and_updated_on_request(patched: Project) -> None:
    good = patched.layout.config.read_text()
    tree = patched.upstream.lock.tree
    patched.layout.config.write_text(good.replace(tree, "1" * 40))
    with pytest.raises(ForkError, match=f"locks the tree 1111.* but it is {tree}"):
        patched.verify()
    patched.verify(update=True)
    assert patched.layout.config.read_text() == good


def test_status_tells_the_states_apart(patched: Project) -> None:
    def notes() -> str:
        return " ".join(status.status(patched.layout, patched.upstream).notes)

    found = status.status(patched.layout, patched.upstream).rows
    assert [(r.name, r.subject, r.files, r.added, r.removed) for r in found] == [
        ("a.patch", "first", 1, 1, 1),
        ("b.patch", "second", 1, 1, 1),
    ]
    assert found[0].forwarded == "no"
    assert found[0].drop_when == "upstream does the same"
    assert "with nothing to export" in notes()
    patched.commit("unix.txt", "first", "1st", made_up.message("third"))
    assert "has commits to export" in notes()
    (patched.tree / "unix.txt").write_text("x")
    assert "has uncommitted work" in notes()
    (patched.patches / "series").write_text("b.patch\na.patch\n")
    assert "is not the one that upstream.toml locks" in notes()
