# SPDX-License-Identifier: Apache-2.0
"""A rebase tells what became of each patch, can be taken up, and loses nothing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fork import config, export, rebase_state, releases, status, transplant
from fork import rebase as rebasing
from fork.errors import ForkError
from fork.rebase import Stopped
from made_up import LINES, SCRIPTS, Project, commit_files, message

# What version 1.1 can be, seen from the patches a (line 10) and b (line 11).
MOVED = "a new first line\n" + LINES
NEARBY = LINES.replace("line 8\n", "line eight\n")
IN_THE_WAY = LINES.replace("line 10\n", "line 10 of upstream\n")
HAS_A = LINES.replace("line 10\n", "line ten\n")


def rows(project: Project) -> list[str]:
    """Return what was said of each patch."""
    return [line for line in project.said if line.startswith("[")]


def work_tree(project: Project) -> Path:
    return project.layout.rebase("1.1")


def git(project: Project, *arguments: str) -> str:
    """Run git where the rebase is, as the user."""
    return subprocess.run(
        ["git", *arguments],
        cwd=work_tree(project),
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def stopped(project: Project, match: str) -> None:
    """Rebase to 1.1 and be stopped, with nothing changed on disk."""
    before = project.state()
    with pytest.raises(Stopped, match=match) as error:
        project.rebase("1.1")
    assert "\n" not in str(error.value)
    assert project.state() == before
    assert not project.layout.series_dir("1.1").exists()


def refused(project: Project, match: str, to: str = "1.1") -> None:
    """Be refused a rebase by one sentence, with nothing begun."""
    with pytest.raises(ForkError, match=match) as error:
        project.rebase(to)
    assert "\n" not in str(error.value)
    assert not project.layout.rebase(to).exists()


def resolve(project: Project, text: str = "line X\n") -> None:
    """Settle patch a's conflict in favour of one line."""
    lines = LINES.replace("line 10\n", text)
    (work_tree(project) / "pkg/lines.py").write_text(lines)
    git(project, "add", "pkg/lines.py")


@pytest.mark.parametrize(
    ("lines", "outcomes"),
    [
        (LINES, ("clean", "clean")),
        (MOVED, ("moved", "moved")),
        (NEARBY, ("3-way", "3-way")),
    ],
)
def test_each_patch_has_an_outcome(
    patched: Project, lines: str, outcomes: tuple[str, str]
) -> None:
    patched.release("1.1", {"pkg/lines.py": lines})
    before = patched.state()
    patched.rebase("1.1")
    a, b = outcomes
    assert rows(patched) == [f"[1/2] a.patch: {a}", f"[2/2] b.patch: {b}"]
    after = patched.state()
    assert {k: v for k, v in after.items() if k != "upstream.toml"} == {
        k: v for k, v in before.items() if k != "upstream.toml"
    }
    assert not work_tree(patched).exists()
    text = (patched.layout.tree("1.1") / "pkg/lines.py").read_text()
    assert text == lines.replace("10\n", "ten\n").replace("line 11\n", "line 11!\n")


def test_what_comes_out_is_locked_and_a_build_tree(patched: Project) -> None:
    patched.rebase("1.1")
    new = patched.settings.upstream("1.1")
    patched.layout.config.write_text(
        patched.layout.config.read_text().replace('default = "1.0"', 'default = "1.1"')
    )
    assert patched.verify() == new.lock
    patched.apply()
    assert patched.said[-1].endswith("nothing to do.")
    assert "a remark that must stay" in patched.layout.config.read_text()
    assert patched.git("branch", "--format=%(refname:short)") == "kunlun/1.1"


def test_a_conflict_stops_with_files_hunks_and_the_next_command(
    patched: Project,
) -> None:
    patched.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    stopped(
        patched,
        r"a\.patch conflicts with vLLM 1\.1 in pkg/lines\.py: edit in .*"
        r"rebase-1\.1, `git add` there, then `scripts/rebase --continue`",
    )
    said = "\n".join(patched.said)
    assert "refs/backup/1.0 there is the old series" in said
    assert "pkg/lines.py, conflicting hunks: 1" in said
    for part in ("line 10 of upstream", "line 10\n=======", "line ten\n>>>>>>>"):
        assert part in said
    assert git(patched, "status", "--short") == "UU pkg/lines.py"
    assert git(patched, "rev-parse", "refs/backup/1.0") == patched.git(
        "rev-parse", "HEAD"
    )


def test_a_resolved_conflict_goes_on(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    stopped(patched, "conflicts with")
    resolve(patched)
    with pytest.raises(Stopped, match=r"b\.patch conflicts"):
        patched.go_on()
    lines = LINES.replace("line 10\nline 11\n", "line X\nline 11!\n")
    (work_tree(patched) / "pkg/lines.py").write_text(lines)
    git(patched, "add", "--all")
    patched.go_on()
    assert rows(patched)[-1] == "[2/2] b.patch: conflict, resolved by hand"
    assert "vLLM 1.0 to 1.1: 2 conflict." in patched.said
    assert (patched.layout.tree("1.1") / "pkg/lines.py").read_text() == lines
    patch = (patched.layout.series_dir("1.1") / "a.patch").read_text()
    assert "Subject: first" in patch
    assert "+line X" in patch
    assert "Patch-File: a.patch" in patch


def test_a_resolution_that_was_committed_counts(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    stopped(patched, "conflicts with")
    resolve(patched)
    git(patched, "commit", "-q", "-m", "as git users do")
    with pytest.raises(Stopped, match=r"b\.patch conflicts"):
        patched.go_on()
    assert "a.patch: conflict, resolved by hand" in rows(patched)[1]


def test_markers_that_are_left_are_refused(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    stopped(patched, "conflicts with")
    with pytest.raises(ForkError, match=r"conflict markers in pkg/lines\.py"):
        patched.go_on()
    (work_tree(patched) / "left.over").write_text("x")
    resolve(patched)
    with pytest.raises(ForkError, match=r"does not know \(left\.over\)"):
        patched.go_on()


def test_other_commits_are_refused(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    stopped(patched, "conflicts with")
    resolve(patched)
    git(patched, "commit", "-q", "-m", "one")
    git(patched, "commit", "-q", "--allow-empty", "-m", "two")
    with pytest.raises(ForkError, match="has other commits than the rebase made"):
        patched.go_on()


def test_a_patch_that_upstream_took_waits_for_a_decision(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": HAS_A})
    stopped(patched, r"a\.patch changes nothing any more: upstream has it")
    with pytest.raises(ForkError, match="changes nothing any more"):
        patched.go_on()
    patched.skip()
    assert rows(patched)[:3] == [
        "[1/2] a.patch: taken upstream",
        "[1/2] a.patch: dropped from the series",
        "[2/2] b.patch: clean",
    ]
    index = patched.layout.series_dir("1.1") / "series"
    assert index.read_text() == "b.patch\n"
    assert (patched.patches / "series").read_text() == "a.patch\nb.patch\n"
    patched.said.clear()
    patched.rebase("1.1")
    assert rows(patched) == [
        "[1/2] a.patch: dropped, as before",
        "[2/2] b.patch: as before",
    ]


def test_a_resolution_without_a_change_is_refused(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    stopped(patched, "conflicts with")
    resolve(patched, "line 10 of upstream\n")
    with pytest.raises(ForkError, match="as resolved changes nothing: drop it"):
        patched.go_on()


def test_a_conflict_can_be_skipped(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    stopped(patched, "conflicts with")
    with pytest.raises(Stopped, match=r"b\.patch conflicts"):
        patched.skip()
    patched.skip()
    assert "vLLM 1.0 to 1.1: 2 dropped." in patched.said
    assert (patched.layout.series_dir("1.1") / "series").read_text() == ""


def test_a_deleted_file_is_a_conflict(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": None})
    stopped(patched, "a.patch conflicts")
    assert any("upstream has deleted or renamed" in line for line in patched.said)


def test_a_renamed_file_is_followed(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": None, "pkg/renamed.py": LINES})
    patched.rebase("1.1")
    assert rows(patched) == ["[1/2] a.patch: 3-way", "[2/2] b.patch: 3-way"]
    assert "line ten" in (patched.layout.tree("1.1") / "pkg/renamed.py").read_text()


def test_abort_leaves_nothing(patched: Project) -> None:
    before = patched.state()
    patched.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    pinned = patched.state()
    stopped(patched, "conflicts with")
    rebasing.abort(patched.layout, say=patched.said.append)
    assert patched.state() == pinned
    assert before.keys() == pinned.keys()
    assert not work_tree(patched).exists()
    for call in (patched.go_on, patched.skip):
        with pytest.raises(ForkError, match="There is no unfinished rebase"):
            call()


def test_nothing_waits_to_be_skipped(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    stopped(patched, "conflicts with")
    repository, work = rebase_state.load(patched.layout)
    work.stopped = None
    rebase_state.save(repository, work)
    with pytest.raises(ForkError, match="waits for no decision"):
        patched.skip()
    # An interruption has left it so: going on finds the conflict again.
    with pytest.raises(Stopped, match=r"a\.patch conflicts"):
        patched.go_on()


def test_a_rebase_over_an_unfinished_one_is_refused(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    stopped(patched, "conflicts with")
    tip = git(patched, "rev-parse", "HEAD")
    for version in ("1.1", "1.2"):
        with pytest.raises(ForkError, match="holds an unfinished rebase"):
            patched.rebase(version)
    assert git(patched, "rev-parse", "HEAD") == tip


def test_unknown_versions_are_named(patched: Project) -> None:
    refused(patched, r"vLLM 9\.9 is not pinned .*run `scripts/pin 9\.9`", "9.9")
    refused(patched, "already is that of vLLM 1.0", "1.0")


def test_a_series_that_is_not_the_locked_one_is_refused(patched: Project) -> None:
    (patched.patches / "c.patch").write_text("x")
    refused(patched, r"holds c\.patch, which `series` does not list")
    (patched.patches / "c.patch").unlink()
    (patched.patches / "b.patch").unlink()
    refused(patched, r"lists b\.patch, which is not in the folder")
    (patched.patches / "series").write_text("a.patch\n")
    refused(patched, "but upstream.toml locks")


def test_work_in_the_build_tree_is_kept(patched: Project) -> None:
    (patched.tree / "unix.txt").write_text("my work\n")
    refused(patched, r"has uncommitted work \(unix\.txt\)")
    patched.git("commit", "-q", "-a", "-m", message("mine"))
    refused(patched, "commits that were not exported")


def test_work_in_the_new_build_tree_is_kept(patched: Project) -> None:
    patched.rebase("1.1")
    (patched.layout.tree("1.1") / "unix.txt").write_text("my work\n")
    refused(patched, r"vllm-1\.1 has uncommitted work")


def test_a_second_rebase_keeps_what_was_resolved(patched: Project) -> None:
    lines = resolve_both(patched)
    patched.commit("unix.txt", "first", "1st", message("third", "c.patch"))
    patched.export()
    patched.said.clear()
    patched.rebase("1.1")
    assert rows(patched) == [
        "[1/3] a.patch: as before",
        "[2/3] b.patch: as before",
        "[3/3] c.patch: clean",
    ]
    assert (patched.layout.tree("1.1") / "pkg/lines.py").read_text() == lines


def resolve_both(project: Project) -> str:
    """Rebase to a 1.1 that is in the way of both patches; return what came out."""
    project.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    stopped(project, "conflicts with")
    resolve(project)
    with pytest.raises(Stopped):
        project.go_on()
    lines = LINES.replace("line 10\nline 11\n", "line X\nline 11!\n")
    (work_tree(project) / "pkg/lines.py").write_text(lines)
    git(project, "add", "--all")
    project.go_on()
    return lines


def test_a_change_follows_into_what_was_resolved(patched: Project) -> None:
    commit_files(patched, "two patches")
    lines = resolve_both(patched)
    # Into the first patch, as a fixup.
    patched.git("reset", "-q", "--hard", "HEAD~1")
    patched.commit("pkg/lines.py", "line 20", "line twenty", "x")
    patched.git("reset", "-q", "--soft", "HEAD~2")
    patched.git("commit", "-q", "-m", message("first", "a.patch"))
    patched.commit("pkg/lines.py", "line 11\n", "line 11!\n", message("2", "b.patch"))
    patched.export()
    patched.said.clear()
    patched.rebase("1.1")
    assert rows(patched) == [
        "[1/2] a.patch: as before, with its change",
        "[2/2] b.patch: as before",
    ]
    text = (patched.layout.tree("1.1") / "pkg/lines.py").read_text()
    assert text == lines.replace("line 20", "line twenty")


def test_a_change_of_what_was_resolved_is_asked_for(patched: Project) -> None:
    commit_files(patched, "two patches")
    resolve_both(patched)
    patched.git("reset", "-q", "--hard", "HEAD~1")
    patched.commit("pkg/lines.py", "line ten", "line 10!", "x")
    patched.git("reset", "-q", "--soft", "HEAD~2")
    patched.git("commit", "-q", "-m", message("first", "a.patch"))
    patched.commit("pkg/lines.py", "line 11\n", "line 11!\n", message("2", "b.patch"))
    patched.export()
    with pytest.raises(Stopped, match=r"a\.patch conflicts"):
        patched.rebase("1.1")
    assert git(patched, "status", "--short") == "UU pkg/lines.py"


def test_status_says_whether_the_source_has_changed(patched: Project) -> None:
    def notes() -> str:
        upstream = patched.settings.upstream("1.1")
        return " ".join(status.status(patched.layout, upstream).notes)

    patched.rebase("1.1")
    assert "patches/1.0 as that is now" in notes()
    patched.commit("unix.txt", "first", "1st", message("third", "c.patch"))
    patched.export()
    assert "(now other: c.patch): run scripts/rebase --to 1.1." in notes()
    patched.rebase("1.1")
    assert "patches/1.0 as that is now" in notes()


def test_a_patch_of_the_target_alone_is_kept(patched: Project) -> None:
    patched.rebase("1.1")
    tree = patched.layout.tree("1.1")
    (tree / "unix.txt").write_text("mine\n")
    for command in (["add", "-A"], ["commit", "-q", "-m", message("own", "z.patch")]):
        subprocess.run(["git", *command], cwd=tree, check=True)
    upstream = patched.settings.upstream("1.1")
    export.export(patched.layout, upstream, offline=True, say=patched.said.append)
    for _ in range(2):
        patched.said.clear()
        patched.rebase("1.1")
        assert rows(patched)[2:] == ["[3/3] z.patch: as before"]
    assert (patched.layout.tree("1.1") / "unix.txt").read_text() == "mine\n"


def test_a_series_of_other_origin_is_not_overwritten(patched: Project) -> None:
    patched.rebase("1.1")
    text = patched.layout.config.read_text()
    patched.layout.config.write_text(text.replace('source = "1.0"', 'source = "0.9"'))
    refused(patched, "holds a series that was not made from that of vLLM 1.0")


def test_a_changed_patch_is_not_kept_as_it_was(patched: Project) -> None:
    patched.rebase("1.1")
    patched.commit("pkg/lines.py", "line 11!", "line 11?", message("more", "c.patch"))
    patched.git("reset", "-q", "--soft", "HEAD~2")
    patched.git("commit", "-q", "-m", message("second", "b.patch"))
    patched.export()
    patched.said.clear()
    patched.rebase("1.1")
    assert rows(patched) == ["[1/2] a.patch: as before", "[2/2] b.patch: clean"]
    assert "line 11?" in (patched.layout.tree("1.1") / "pkg/lines.py").read_text()


def test_a_target_that_changes_meanwhile_is_not_overwritten(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": HAS_A})
    stopped(patched, "changes nothing any more")
    folder = patched.layout.series_dir("1.1")
    folder.mkdir()
    (folder / "b.patch").write_text("somebody's work")
    with pytest.raises(ForkError, match=r"b\.patch was changed .* the rebase began"):
        patched.skip()
    assert (folder / "b.patch").read_text() == "somebody's work"
    (folder / "b.patch").unlink()
    patched.go_on()
    assert (folder / "series").read_text() == "b.patch\n"


def test_a_series_that_changes_meanwhile_is_said(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": HAS_A})
    stopped(patched, "changes nothing any more")
    patched.commit("unix.txt", "first", "1st", message("third", "c.patch"))
    patched.export()
    patched.skip()
    assert any("changed meanwhile" in line for line in patched.said)


def test_a_pinned_release_becomes_a_maintained_version(patched: Project) -> None:
    text = patched.layout.config.read_text()
    begin, end = text.index('[upstream."1.1"]'), text.index('[upstream."1.2"]')
    release = patched.settings.upstream("1.1")
    # What stands before a later table belongs to that one.
    later = '\n# On weights.\n[weights.x]\nfile = "x"\n'
    later += 'project = "x"\nversion = "1"\nsize = 1\n'
    later += f'sha256 = "{release.sdist.sha256}"\n'
    before = text[:begin] + text[end:].rstrip() + "\n"
    patched.layout.config.write_text(before + later)
    pinned = releases.Release("1.1", "2.12.0", release.sdist, None)
    releases.write(patched.layout.releases, {"1.1": pinned})
    refused(patched, r"vLLM 1\.1 has no donor wheel")
    pinned = releases.Release("1.1", "2.12.0", release.sdist, release.donor)
    releases.write(patched.layout.releases, {"1.1": pinned})
    assert releases.read(patched.layout.releases) == {"1.1": pinned}
    patched.rebase("1.1")
    new = patched.settings.upstream("1.1")
    assert (new.revision, new.torch, new.sdist) == (1, "2.12.0", release.sdist)
    assert new.rebased is not None
    assert [*new.rebased.patches] == ["a.patch", "b.patch"]
    written = patched.layout.config.read_text()
    assert written.startswith(f'{before}\n[upstream."1.1"]\nrevision = 1\n')
    assert written.endswith(later)
    table = written[len(before) : -len(later)]
    patched.rebase("1.1")
    assert patched.layout.config.read_text() == before + table + later


def test_an_interrupted_end_is_taken_up(
    patched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(config, "write_upstream", full)
        with pytest.raises(OSError, match="full"):
            patched.rebase("1.1")
    assert patched.settings.upstream("1.1").lock.series == ""
    patched.go_on()
    new = patched.settings.upstream("1.1")
    assert new.lock.series
    assert patched.layout.tree("1.1").exists()


def test_an_old_git_is_refused(
    patched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transplant, "_GIT", (99, 1))
    refused(patched, r"needs git 99\.1 or newer, but this is git version")


@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.4, 0.6, 0.8])
def test_a_killed_rebase_is_taken_up(patched: Project, seconds: float) -> None:
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from fork import config, rebase\nfrom fork.paths import Layout\n"
        "layout = Layout(Path(sys.argv[1]))\n"
        "print('ready', flush=True)\n"
        "rebase.begin(layout, config.load(layout.config), '1.1', offline=True)\n"
    )
    root = str(patched.layout.root)
    process = subprocess.Popen(
        [sys.executable, "-c", program, root],
        env=os.environ | {"PYTHONPATH": str(SCRIPTS)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()  # importing does not count
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    if rebase_state.unfinished(patched.layout):
        patched.go_on()
    elif not patched.layout.tree("1.1").exists():
        patched.rebase("1.1")
    assert (patched.layout.series_dir("1.1") / "series").read_bytes() == (
        b"a.patch\nb.patch\n"
    )
    patched.rebase("1.2")
