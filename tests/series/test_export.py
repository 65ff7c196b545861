# SPDX-License-Identifier: Apache-2.0
"""The editing flow: apply, change, commit, export; all of it or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fork.errors import ForkError
from made_up import TRAILERS, Project, message


def names(project: Project) -> list[str]:
    return (project.patches / "series").read_text().split()


def refused(project: Project, match: str) -> None:
    """Expect a refusal that changes nothing."""
    before = project.state()
    with pytest.raises(ForkError, match=match):
        project.export()
    assert project.state() == before


def test_export_of_nothing_new_changes_nothing(patched: Project) -> None:
    before = project_times(patched)
    assert not patched.export()
    assert patched.said[-1].endswith("nothing to do.")
    assert project_times(patched) == before


def project_times(project: Project) -> dict[str, int]:
    paths = [*project.patches.iterdir(), project.layout.config]
    return {path.name: path.stat().st_mtime_ns for path in paths}


def test_only_what_changed_is_written(patched: Project) -> None:
    before = project_times(patched)
    patched.commit("unix.txt", "first", "1st", message("third"))
    patched.export()
    after = project_times(patched)
    assert names(patched) == ["a.patch", "b.patch", "third.patch"]
    assert after["a.patch"] == before["a.patch"]
    assert patched.said == ["new      third.patch"]
    patched.verify()


def test_a_new_commit_is_named_after_its_subject(patched: Project) -> None:
    patched.commit("unix.txt", "first", "1st", message("core: Do it, at Last!"))
    patched.export()
    assert names(patched)[-1] == "core-do-it-at-last.patch"
    last = patched.git("log", "-1", "--format=%B")
    assert last.endswith("Patch-File: core-do-it-at-last.patch")
    assert patched.git("status", "--porcelain") == ""
    patched.apply()
    assert "nothing to do" in patched.said[-1]


def test_author_and_date_are_the_commits_own(patched: Project) -> None:
    patched.commit("unix.txt", "first", "1st", message("third"))
    patched.git(
        "commit",
        "-q",
        "--amend",
        "--no-edit",
        "--author=Zoë Müller <z@example.org>",
        "--date=2024-02-03T04:05:06+0800",
    )
    patched.export()
    patched.verify()
    log = patched.git("log", "-1", "--format=%an|%ae|%ad|%cd|%cn", "--date=iso")
    date = "2024-02-03 04:05:06 +0800"
    assert log == f"Zoë Müller|z@example.org|{date}|{date}|vllm-kunlun"


def test_removed_renamed_and_reordered(patched: Project) -> None:
    patched.commit("unix.txt", "first", "1st", message("third", "c.patch"))
    patched.export()
    todo = patched.layout.root / "todo.sh"
    # Drops b, puts c first, and gives a another name.
    todo.write_text(
        '#!/bin/sh\n{ sed -n 3p "$1"; sed -n 1p "$1"; } >"$1.new"\n'
        "echo 'exec git commit -q --amend -m \"$(git log -1 --format=%B | "
        'sed s/a.patch/z.patch/)"\' >>"$1.new"\nmv "$1.new" "$1"\n'
    )
    todo.chmod(0o755)
    patched.git("-c", f"sequence.editor={todo}", "rebase", "-q", "-i", "HEAD~3")
    patched.said.clear()
    patched.export()
    assert names(patched) == ["c.patch", "z.patch"]
    assert sorted(patched.said) == [
        "new      z.patch",
        "removed  a.patch",
        "removed  b.patch",
    ]
    assert {p.name for p in patched.patches.iterdir()} == {
        "c.patch",
        "z.patch",
        "series",
    }
    patched.verify()


def test_crlf_binary_modes_and_ignored_files_in_patches(patched: Project) -> None:
    tree = patched.tree
    (tree / "dos.txt").write_bytes(b"first\r\n2nd\r\nthird\r\n")
    (tree / "blob.bin").write_bytes(bytes(range(256)))
    (tree / "new.sh").write_text("#!/bin/sh\n")
    (tree / "new.sh").chmod(0o755)
    (tree / "unix.txt").chmod(0o755)
    (tree / "kept.log").write_text("ignored, but wanted\n")
    patched.git("add", "--force", "kept.log")
    patched.git("mv", "pkg/other.py", "pkg/moved.py")
    patched.git("add", "--all")
    patched.git("commit", "-q", "-m", message("everything odd"))
    tree_id = patched.git("rev-parse", "HEAD^{tree}")
    patched.export()
    assert patched.verify().tree == tree_id
    assert (
        b"rename to pkg/moved.py"
        in (patched.patches / "everything-odd.patch").read_bytes()
    )


def test_uncommitted_work_is_refused(patched: Project) -> None:
    (patched.tree / "unix.txt").write_text("x")
    refused(patched, r"has uncommitted work \(unix\.txt\)")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("no body\n\n" + TRAILERS, "does not say what the patch does and why"),
        (
            message("x", trailers="Origin: vendor\nDrop-When: y"),
            "`Forwarded:` is missing",
        ),
        (message("x", trailers="Forwarded: no\nDrop-When: y"), "`Origin:` is missing"),
        (
            message("x", trailers="Forwarded: no\nOrigin: vendor"),
            "`Drop-When:` is missing",
        ),
        (message("x", trailers=TRAILERS.replace("no", "perhaps")), "not understood"),
        (f"x\n\nBody\n---\nmore\n\n{TRAILERS}", "git would cut it off"),
        (f"x\n\nBody\n\ndiff -u a b\n\n{TRAILERS}", "git would cut it off"),
        (f"x\n\nFrom: me\nand more\n\n{TRAILERS}", "take for a mail header"),
        (message("x" * 77, "x.patch"), "has 77 characters"),
        (message("[PATCH] x"), r"starts with \[PATCH"),
        (message("x", "X.patch"), "is not a patch name"),
        (message("x", "a.patch"), r"the name a\.patch is taken"),
    ],
)
def test_bad_messages_are_refused(patched: Project, text: str, match: str) -> None:
    patched.commit("unix.txt", "first", "1st", text)
    refused(patched, match)


def test_empty_patch_is_refused(patched: Project) -> None:
    patched.git("commit", "-q", "--allow-empty", "-m", message("empty"))
    refused(patched, "changes nothing")


def test_merge_is_refused(patched: Project) -> None:
    patched.git("switch", "-q", "-c", "side", "HEAD~1")
    patched.commit("unix.txt", "first", "1st", message("on the side"))
    patched.git("switch", "-q", "kunlun/1.0")
    patched.git("merge", "-q", "--no-ff", "-m", message("merged"), "side")
    refused(patched, "it is a merge")


def test_another_base_is_refused(patched: Project) -> None:
    patched.git("checkout", "-q", "--orphan", "other")
    patched.git("commit", "-q", "-m", message("orphan"))
    patched.git("branch", "-q", "-M", "other", "kunlun/1.0")
    refused(patched, "no longer stands on upstream's commit")


def test_a_file_that_is_not_ours_is_not_overwritten(patched: Project) -> None:
    (patched.patches / "third.patch").write_text("somebody's\n")
    patched.commit("unix.txt", "first", "1st", message("third"))
    refused(patched, r"third\.patch was changed or added since")


def test_patches_that_changed_on_disk_are_not_overwritten(patched: Project) -> None:
    patch = patched.patches / "a.patch"
    patch.write_bytes(patch.read_bytes().replace(b"wants it so", b"wants it thus"))
    patched.commit("unix.txt", "first", "1st", message("third"))
    refused(patched, r"a\.patch was changed or added since")


@pytest.mark.parametrize("fail_at", range(1, 6))
def test_interrupted_export_is_finished_by_the_next(
    patched: Project, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    patched.commit("unix.txt", "first", "1st", message("third"))
    patched.commit("unix.txt", "second", "2nd", message("fourth"))
    calls = 0

    def replace(source: Path, target: Path, real=os.replace) -> None:  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            patched.export()
    patched.export()
    assert names(patched) == ["a.patch", "b.patch", "third.patch", "fourth.patch"]
    patched.verify()
    patched.apply()
    assert patched.said[-1].endswith("nothing to do.")


def test_full_disk_while_writing_changes_nothing(
    patched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched.commit("unix.txt", "first", "1st", message("third"))
    before = patched.state()
    real = Path.write_bytes

    def write(self: Path, data: bytes) -> int:
        if ".export" in str(self):
            raise OSError(28, "No space left on device", str(self))
        return real(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write)
        with pytest.raises(OSError, match="No space left"):
            patched.export()
    assert patched.state() == before


def test_export_without_a_tree_says_so(project: Project) -> None:
    with pytest.raises(ForkError, match=r"run scripts/apply --upstream \S+ first"):
        project.export()


def test_remarks_in_the_configuration_stay(patched: Project) -> None:
    assert patched.layout.config.read_text().count("# a remark that must stay") == 3
