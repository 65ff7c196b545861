# SPDX-License-Identifier: Apache-2.0
"""A review shows what changed between two states of a series, wherever they are."""

from __future__ import annotations

import subprocess

import made_up
import pytest
from fork import review
from fork.errors import ForkError
from made_up import LINES, Project, message


@pytest.fixture
def reviewed(patched: Project) -> Project:
    """Return a project with a commit, and after it b changed and c added."""
    made_up.commit_files(patched, "two patches")
    patched.git("reset", "-q", "--hard", "HEAD~1")
    patched.commit("pkg/lines.py", "line 11", "line eleven", message("2", "b.patch"))
    patched.commit("unix.txt", "first", "1st", message("third", "c.patch"))
    patched.export()
    return patched


def said(project: Project, old: str, new: str = ".", *, diff: bool = False) -> str:
    project.said.clear()
    review.review(
        project.layout,
        project.settings,
        old,
        new,
        diff=diff,
        offline=True,
        say=project.said.append,
    )
    return "\n".join(project.said)


def test_patches_trees_and_range_diff_are_shown(reviewed: Project) -> None:
    text = said(reviewed, "HEAD")
    tree = reviewed.upstream.lock.tree
    assert f".: vLLM 1.0, 3 patches, tree {tree}" in text
    for line in (
        "  1 a.patch: same",
        "  2 b.patch: changed, another message",
        "  3 c.patch: new",
        " 2 files changed, 2 insertions(+), 2 deletions(-)",
        "    -+line 11!",
        "    ++line eleven",
    ):
        assert line in text
    assert "diff --git" not in text
    assert "diff --git a/unix.txt" in said(reviewed, "HEAD", diff=True)
    assert "  - c.patch: gone" in said(reviewed, ".", "HEAD")


def test_the_same_state_is_said_to_be_the_same(reviewed: Project) -> None:
    made_up.commit_files(reviewed, "three patches")
    text = said(reviewed, "HEAD")
    assert "Both come out as the same tree." in text
    assert text.count(": same") == 3


def test_a_new_order_is_told(patched: Project) -> None:
    patched.commit("unix.txt", "first", "1st", message("third", "c.patch"))
    patched.export()
    made_up.commit_files(patched, "three patches")
    patched.git("rebase", "-q", "--onto", "HEAD~2", "HEAD~1")
    patched.git("cherry-pick", "ORIG_HEAD~1")
    patched.export()
    text = said(patched, "HEAD")
    assert "  2 c.patch: same, was number 3" in text
    assert "  3 b.patch: same, was number 2" in text


def test_two_releases_are_compared_by_their_patches(patched: Project) -> None:
    patched.release("1.1", {"pkg/lines.py": "new\n" + LINES})
    patched.rebase("1.1")
    text = said(patched, "1.0", "1.1")
    assert "  1 a.patch: moved" in text
    assert "The trees are those of different releases" in text
    made_up.commit_files(patched, "both")
    assert said(patched, "HEAD:1.1", "1.1").count(": same") == 2


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("no-such", "neither a maintained version .* nor a revision"),
        ("HEAD:9.9", r"vLLM 9\.9 is not maintained here: HEAD:upstream\.toml has 1\.0"),
        ("HEAD:1.1", r"HEAD:1\.1 has no complete series in patches/1\.1"),
        ("HEAD~1", "neither a maintained version"),
    ],
)
def test_a_state_that_does_not_exist_is_named(
    reviewed: Project, name: str, match: str
) -> None:
    with pytest.raises(ForkError, match=match) as error:
        said(reviewed, name)
    assert "\n" not in str(error.value)


def test_a_revision_from_before_the_fork_is_named(reviewed: Project) -> None:
    root = reviewed.layout.root
    for command in (
        ["rm", "-q", "--cached", "upstream.toml"],
        ["commit", "-q", "-m", "none"],
    ):
        subprocess.run(["git", *command], cwd=root, check=True)
    with pytest.raises(ForkError, match=r"HEAD of the project has no upstream\.toml"):
        said(reviewed, "HEAD")
