# SPDX-License-Identifier: Apache-2.0
"""Git as if it were freshly installed: no user's settings, hooks or signing.

GitPython drives the `git` program. What a user or the machine has configured must
not show in the commits or in the patches, so every call starts from an environment
without any of git's variables, and what matters to the output is given explicitly.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fork.errors import ForkError, explain_os_error

# GitPython looks for the program when imported, and would say so in a page of text.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import git as gitpython

# Whoever applies the series commits as this, so that commits are equal everywhere.
NAME = "vllm-kunlun"
EMAIL = "vllm-kunlun@localhost"
EPOCH = "946684800 +0000"

_NOWHERE = "/dev/null"
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": _NOWHERE,
    "GIT_CONFIG_GLOBAL": _NOWHERE,
    # Git before 2.32 knows only these for the user's settings.
    "HOME": _NOWHERE,
    "XDG_CONFIG_HOME": _NOWHERE,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_COMMITTER_NAME": NAME,
    "GIT_COMMITTER_EMAIL": EMAIL,
    "TZ": "UTC",
}

# Given on the command line, where they also win over the repository's own settings.
_SETTINGS = {
    "am.keepcr": "true",
    "am.threeWay": "false",
    "apply.ignoreWhitespace": "no",
    "apply.whitespace": "nowarn",
    "commit.gpgSign": "false",
    "core.abbrev": "40",
    "core.attributesFile": _NOWHERE,
    "core.autocrlf": "false",
    # Speed: git would spend most of an import on compressing.
    "core.compression": "1",
    "core.excludesFile": _NOWHERE,
    "core.fileMode": "true",
    "core.fsmonitor": "false",
    "core.hooksPath": _NOWHERE,
    "core.quotePath": "true",
    "core.safecrlf": "false",
    "diff.suppressBlankEmpty": "false",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
}

# Upstream's own attributes must neither convert files nor choose hunk headers.
_ATTRIBUTES = "* -text !diff !eol !filter !ident !merge !working-tree-encoding\n"

_LOCAL_CONFIG = """[core]
\tautocrlf = false
\tsafecrlf = false
\tfileMode = true
[gc]
\tauto = 0
"""

_FORMAT = ["--keep-subject", "--zero-commit", "--no-signature", "--no-stat"]
_FORMAT += ["--full-index", "--binary", "--unified=3", "--inter-hunk-context=0"]
_FORMAT += ["--diff-algorithm=myers", "--indent-heuristic", "--find-renames=50%"]
_FORMAT += ["--src-prefix=a/", "--dst-prefix=b/", "--no-ext-diff", "--no-textconv"]
_FORMAT += ["--no-color", "--no-attach", "--no-thread", "--no-cover-letter"]
_FORMAT += ["--no-encode-email-headers", "--no-notes", "--no-relative"]
_FORMAT += ["--submodule=short", "-O/dev/null"]


class GitError(Exception):
    """Git has failed; the message is git's own."""


def explain_git_error(error: GitError) -> str:
    """Say what a failure that no tool foresaw means to the user."""
    if os.strerror(errno.ENOSPC) in str(error):
        return explain_os_error(OSError(errno.ENOSPC, "", "git's folder"))
    return f"git failed: {error}."


class _Hermetic(gitpython.Git):
    """GitPython's driver, started without git's variables of the outside."""

    def execute(self, *arguments: Any, **options: Any) -> Any:
        with _without_git_variables():
            return super().execute(*arguments, **options)


@contextlib.contextmanager
def _without_git_variables() -> Iterator[None]:
    saved = {key: os.environ.pop(key) for key in [*os.environ] if key[:4] == "GIT_"}
    try:
        yield
    finally:
        os.environ.update(saved)


class Repository:
    """The few things that the tools ask of one git work tree."""

    def __init__(self, path: Path) -> None:
        if shutil.which("git") is None:
            raise ForkError("git is not installed: install it (`apt install git`).")
        self.path = path
        self.git_dir = path / ".git"
        self._git = _Hermetic(str(path))
        self._git.update_environment(**_ENVIRONMENT)

    @classmethod
    def create(cls, path: Path, branch: str) -> Repository:
        """Make an empty repository whose checkouts change no byte of a file."""
        repository = cls(path)
        # The branch is named afterwards: `init --initial-branch` is too new.
        repository.run("init", "--quiet", "--template=", ".")
        repository.run("symbolic-ref", "HEAD", f"refs/heads/{branch}")
        info = repository.git_dir / "info"
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(_ATTRIBUTES, "utf-8")
        # For the person who edits here with settings of their own.
        with (repository.git_dir / "config").open("a", encoding="utf-8") as stream:
            stream.write(_LOCAL_CONFIG)
        return repository

    def run(self, *arguments: str, **options: Any) -> str:
        """Run a git command and return what it prints, without the last newline."""
        return self.run_bytes(*arguments, **options).decode("utf-8").removesuffix("\n")

    def run_bytes(self, *arguments: str, **options: Any) -> bytes:
        """Run a git command and return exactly what it prints."""
        settings: list[str] = []
        for key, value in _SETTINGS.items():
            settings += ["-c", f"{key}={value}"]
        try:
            output = self._git.execute(
                ["git", *settings, *arguments],
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                **options,
            )
        except gitpython.GitCommandError as error:
            raise GitError(_own_words(error)) from None
        assert isinstance(output, bytes)
        return output

    def commit_id(self, revision: str) -> str | None:
        """Return the commit that a name stands for, or None."""
        try:
            return self.run(
                "rev-parse", "--quiet", "--verify", f"{revision}^{{commit}}"
            )
        except GitError:
            return None

    def is_ancestor(self, base: str, tip: str) -> bool:
        """Whether `tip` was made on top of `base`."""
        try:
            self.run("merge-base", "--is-ancestor", base, tip)
        except GitError:
            return False
        return True

    def tree_id(self, revision: str) -> str:
        """Return the id of a commit's tree."""
        return self.run("rev-parse", f"{revision}^{{tree}}")

    def branch(self) -> str | None:
        """Return the branch that is checked out, if one is."""
        try:
            return self.run("symbolic-ref", "--quiet", "--short", "HEAD")
        except GitError:
            return None

    def message(self, commit: str) -> str:
        """Return a commit's message."""
        return self.run("show", "--no-patch", "--format=%B", commit)

    def changed_paths(self) -> list[str]:
        """List what is not committed, new files included, ignored ones not."""
        output = self.run_bytes(
            "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"
        )
        return [entry[3:] for entry in output.decode("utf-8").split("\0") if entry]

    def ignored_files(self) -> list[str]:
        """List what lies here beside git's files, caches of Python left out."""
        output = self.run_bytes(
            "ls-files", "--others", "--ignored", "--exclude-standard", "-z"
        )
        paths = output.decode("utf-8").split("\0")
        return [path for path in paths if path and "__pycache__/" not in path]

    def unfinished_operation(self) -> str | None:
        """Name the git command that was begun here and not ended."""
        markers = {
            "rebase-apply": "git am or git rebase",
            "rebase-merge": "git rebase",
            "CHERRY_PICK_HEAD": "git cherry-pick",
            "MERGE_HEAD": "git merge",
            "REVERT_HEAD": "git revert",
        }
        for marker, command in markers.items():
            if (self.git_dir / marker).exists():
                return command
        return None

    def commits(self, base: str, tip: str = "HEAD") -> list[str]:
        """List the commits after `base` up to `tip`, oldest first."""
        output = self.run("rev-list", "--reverse", "--topo-order", f"{base}..{tip}")
        return output.split()

    def recommit(self, commit: str, parent: str, message: str) -> str:
        """Make the commit again on another parent, as applying its patch would."""
        fields = self.run(
            "show", "--no-patch", "--format=%an%n%ae%n%ad", "--date=raw", commit
        )
        name, email, date = fields.split("\n")
        author = {
            "GIT_AUTHOR_NAME": name,
            "GIT_AUTHOR_EMAIL": email,
            "GIT_AUTHOR_DATE": f"@{date}",
            "GIT_COMMITTER_DATE": f"@{date}",
        }
        # A real file: GitPython gives the stream to git as its standard input.
        with tempfile.TemporaryFile(dir=self.git_dir) as stream:
            stream.write(message.encode("utf-8"))
            stream.seek(0)
            tree = self.tree_id(commit)
            return self.run(
                "commit-tree", tree, "-p", parent, "-F", "-", istream=stream, env=author
            )

    def patch(self, commit: str) -> bytes:
        """Write one commit as a patch, the same bytes on every machine."""
        return self.run_bytes("format-patch", "--stdout", "-1", *_FORMAT, commit)

    def apply_mail(self, patch: Path) -> None:
        """Commit one patch where its context fits exactly, or change nothing."""
        try:
            self.run(
                "am",
                "--quiet",
                "--no-3way",
                "--keep-non-patch",
                "--keep-cr",
                "--no-scissors",
                "--committer-date-is-author-date",
                str(patch),
            )
        except GitError:
            with contextlib.suppress(GitError):
                self.run("am", "--abort")
            raise


def _own_words(error: gitpython.GitCommandError) -> str:
    """Take git's message out of GitPython's account of it."""
    text = error.stderr or error.stdout or str(error)
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = text.strip().removeprefix("stderr: ").removeprefix("stdout: ").strip("'\n ")
    lines = [line.strip() for line in text.splitlines()]
    telling = [
        line
        for line in lines
        if line and not line.startswith(("hint:", "Applying:", "When you have"))
    ]
    return "; ".join(telling[:3]) or "git failed without saying why"
