# SPDX-License-Identifier: Apache-2.0
"""Applying is strict, starts over after an interruption, and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fork import apply as applying
from fork.errors import ForkError
from made_up import SCRIPTS, Project, message


def refused(project: Project, match: str) -> None:
    with pytest.raises(ForkError, match=match) as error:
        project.apply()
    assert "\n" not in str(error.value)


def test_second_apply_has_nothing_to_do(patched: Project) -> None:
    inode = patched.tree.stat().st_ino
    patched.apply()
    assert patched.said[-1].endswith("nothing to do.")
    assert patched.tree.stat().st_ino == inode


def test_a_fresh_apply_gives_the_very_same_commits(patched: Project) -> None:
    tip = patched.git("rev-parse", "HEAD")
    subprocess.run(["rm", "-rf", str(patched.tree)], check=True)
    patched.apply()
    assert patched.git("rev-parse", "HEAD") == tip
    assert patched.git("symbolic-ref", "--short", "HEAD") == "kunlun/1.0"


def test_tampered_archive_is_refused(project: Project) -> None:
    from fork import fetch

    (fetch.folder() / "made_up-1.0.tar.gz").write_bytes(b"something else")
    refused(project, "is not in the cache")
    assert not project.tree.exists()


def test_tampered_patch_is_refused(patched: Project) -> None:
    patch = patched.patches / "a.patch"
    patch.write_bytes(patch.read_bytes().replace(b"line ten", b"line 10!"))
    refused(patched, r"has the digest .* but upstream.toml locks")
    with pytest.raises(ForkError, match="was edited by hand"):
        patched.verify(update=True)


def test_wrong_order_is_refused(patched: Project) -> None:
    (patched.patches / "series").write_text("b.patch\na.patch\n")
    refused(patched, "has the digest")
    with pytest.raises(ForkError, match=r"b\.patch does not apply to vLLM 1\.0 after"):
        patched.verify(update=True)


def test_an_offset_is_not_tolerated(patched: Project) -> None:
    patch = patched.patches / "a.patch"
    moved = patch.read_bytes().replace(b"@@ -7,7 +7,7 @@", b"@@ -5,7 +5,7 @@")
    assert moved != patch.read_bytes()
    patch.write_bytes(moved)
    with pytest.raises(ForkError, match="would be exported differently"):
        patched.verify(update=True)


def test_another_preimage_is_not_tolerated(patched: Project) -> None:
    patch = patched.patches / "a.patch"
    other = patch.read_bytes().replace(b"index ", b"index 0123456789", 1)
    patch.write_bytes(other)
    with pytest.raises(ForkError, match="was edited by hand"):
        patched.verify(update=True)


def test_missing_file_of_the_series_is_named(patched: Project) -> None:
    (patched.patches / "b.patch").unlink()
    refused(patched, r"lists b\.patch, which is not in the folder")


def test_extra_file_in_the_series_is_named(patched: Project) -> None:
    (patched.patches / "c.patch").write_text("x")
    refused(patched, r"holds c\.patch, which `series` does not list")


def test_name_listed_twice_is_named(patched: Project) -> None:
    (patched.patches / "series").write_text("a.patch\nb.patch\na.patch\n")
    refused(patched, r"lists a\.patch twice")


@pytest.mark.parametrize("name", ["../a.patch", "A.patch", "a.diff", "# remark", ""])
def test_bad_name_in_the_series_is_named(patched: Project, name: str) -> None:
    (patched.patches / "series").write_text(f"a.patch\n{name}\nb.patch\n")
    refused(patched, "line 2: .* is not a patch name")


def test_uncommitted_work_is_kept(patched: Project) -> None:
    (patched.tree / "unix.txt").write_text("my work\n")
    (patched.tree / "new.py").write_text("new\n")
    refused(patched, r"has uncommitted work \(unix\.txt, new\.py\)")
    assert (patched.tree / "unix.txt").read_text() == "my work\n"


def test_commits_that_were_not_exported_are_kept(patched: Project) -> None:
    patched.commit("unix.txt", "first", "1st", message("my work"))
    refused(patched, r"commits that were not exported \(.* my work\)")
    patched.apply(set_aside=True)
    aside = patched.tree.with_name(f"{patched.tree.name}.old-1")
    assert (aside / "unix.txt").read_text().startswith("1st")
    assert (patched.tree / "unix.txt").read_text().startswith("first")


def test_dropped_commits_are_noticed(patched: Project) -> None:
    patched.git("reset", "-q", "--hard", "HEAD~1")
    refused(patched, r"commits that were not exported \(commits were dropped\)")


def test_unfinished_rebase_is_named(patched: Project) -> None:
    patched.commit("pkg/lines.py", "line ten", "line 10.", message("conflicting"))
    subprocess.run(
        ["git", "-c", "sequence.editor=sed -i 2d", "rebase", "-i", "HEAD~2"],
        cwd=patched.tree,
        capture_output=True,
        check=False,
    )
    patched.git("checkout", "-q", "--detach")
    refused(patched, r"has no branch checked out instead of kunlun/1\.0")
    (patched.tree / ".git" / "CHERRY_PICK_HEAD").write_text(
        patched.git("rev-parse", "HEAD")
    )
    refused(patched, "in the middle of a git cherry-pick")


def test_foreign_folder_is_left_alone(project: Project) -> None:
    project.tree.mkdir(parents=True)
    (project.tree / "mine").touch()
    refused(project, r"was not made by scripts/apply: move it away")
    assert (project.tree / "mine").exists()


def test_changed_series_replaces_the_tree_but_not_its_branches(
    patched: Project,
) -> None:
    first = {p.name: p.read_bytes() for p in patched.patches.iterdir()}
    config = patched.layout.config.read_bytes()
    patched.git("branch", "experiment")
    patched.git("reset", "-q", "--hard", "HEAD~1")
    patched.export()
    for name, data in first.items():
        (patched.patches / name).write_bytes(data)
    patched.layout.config.write_bytes(config)
    patched.apply()
    assert "line 11!" in (patched.tree / "pkg" / "lines.py").read_text()
    aside = patched.tree.with_name(f"{patched.tree.name}.old-1")
    assert "refs/heads/experiment" in "".join(patched.said)
    assert aside.exists()


def test_a_tree_with_ignored_files_of_its_own_is_kept(patched: Project) -> None:
    (patched.tree / "notes.log").write_text("mine\n")
    (patched.tree / "pkg" / "__pycache__").mkdir()
    (patched.patches / "series").write_text("a.patch\n")
    (patched.patches / "b.patch").unlink()
    patched.verify(update=True)
    patched.apply()
    aside = patched.tree.with_name(f"{patched.tree.name}.old-1")
    assert (aside / "notes.log").read_text() == "mine\n"
    assert "line 11\n" in (patched.tree / "pkg" / "lines.py").read_text()


def test_failure_leaves_no_tree_and_no_rubbish(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(applying, "import_sdist", full)
        with pytest.raises(OSError, match="No space left"):
            project.apply()
    assert sorted(p.name for p in project.layout.build.iterdir()) == [".lock"]
    project.apply()


def test_killed_apply_starts_over(project: Project) -> None:
    code = (
        "import pathlib, time; from fork import apply, config; from fork.paths import "
        "Layout; l = Layout(pathlib.Path(__import__('sys').argv[1]));"
        "apply.check_lock = lambda *_: (print('now', flush=True), time.sleep(60));"
        "apply.apply(l, config.load(l.config).upstream(), offline=True)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(project.layout.root)],
        env=os.environ | {"PYTHONPATH": str(SCRIPTS)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"now\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not project.tree.exists()
    project.apply()
    left = {path.name for path in project.layout.build.iterdir()}
    assert left == {".lock", "vllm-1.0"}


def test_nothing_to_do_is_quick(patched: Project) -> None:
    begun = time.perf_counter()
    patched.apply()
    assert time.perf_counter() - begun < 1


def test_lock_of_another_base_is_refused(project: Project) -> None:
    project.verify(update=True)
    text = project.layout.config.read_text()
    base = project.upstream.lock.base
    project.layout.config.write_text(text.replace(base, "0" * 40))
    refused(project, "base commit of vLLM 1.0 came out as .* locks 0000")
    assert not project.tree.exists()


def test_command_line_says_one_sentence(tmp_path: Path) -> None:
    result = subprocess.run(
        [str(SCRIPTS / "apply"), "--upstream", "9.9"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHON": sys.executable},
        cwd=tmp_path,
        check=False,
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: vLLM 9.9 is not maintained here")
    assert result.stderr.count("\n") == 1
