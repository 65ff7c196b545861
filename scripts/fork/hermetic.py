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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fork.errors import explain_os_error

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
    # Remembered resolutions would apply where nobody looks.
    "rerere.enabled": "false",
    "merge.conflictStyle": "diff3",
    "merge.renames": "true",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
}

# Upstream's own attributes must neither convert files nor choose hunk headers.
ATTRIBUTES = "* -text !diff !eol !filter !ident !merge !working-tree-encoding\n"

LOCAL_CONFIG = """[core]
\tautocrlf = false
\tsafecrlf = false
\tfileMode = true
[gc]
\tauto = 0
"""

FORMAT = ["--keep-subject", "--zero-commit", "--no-signature", "--no-stat"]
FORMAT += ["--full-index", "--binary", "--unified=3", "--inter-hunk-context=0"]
FORMAT += ["--diff-algorithm=myers", "--indent-heuristic", "--find-renames=50%"]
FORMAT += ["--src-prefix=a/", "--dst-prefix=b/", "--no-ext-diff", "--no-textconv"]
FORMAT += ["--no-color", "--no-attach", "--no-thread", "--no-cover-letter"]
FORMAT += ["--no-encode-email-headers", "--no-notes", "--no-relative"]
FORMAT += ["--submodule=short", "-O/dev/null"]


class GitError(Exception):
    """Git has failed; the message is git's own."""


def explain_git_error(error: GitError) -> str:
    """Say what a failure that no tool foresaw means to the user."""
    if os.strerror(errno.ENOSPC) in str(error):
        return explain_os_error(OSError(errno.ENOSPC, "", "git's folder"))
    return f"git failed: {error}."


class Hermetic(gitpython.Git):
    """GitPython's driver, started without git's variables of the outside."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.update_environment(**_ENVIRONMENT)

    def output(self, *arguments: str, **options: Any) -> bytes:
        """Run a git command and return exactly what it prints."""
        try:
            printed = self.execute(
                ["git", *_settings(), *arguments],
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                **options,
            )
        except gitpython.GitCommandError as error:
            raise GitError(_own_words(error)) from None
        assert isinstance(printed, bytes)
        return printed

    def attempt(self, *arguments: str, **options: Any) -> tuple[int, bytes]:
        """Run a git command whose failure is an answer: status and output."""
        status, printed, _ = self.execute(
            ["git", *_settings(), *arguments],
            stdout_as_string=False,
            strip_newline_in_stdout=False,
            with_extended_output=True,
            with_exceptions=False,
            **options,
        )
        return status, printed

    def execute(self, *arguments: Any, **options: Any) -> Any:
        """Start git as GitPython does, but from a clean environment."""
        with _without_git_variables():
            return super().execute(*arguments, **options)


def _settings() -> list[str]:
    return [part for item in _SETTINGS.items() for part in ("-c", "=".join(item))]


@contextlib.contextmanager
def _without_git_variables() -> Iterator[None]:
    saved = {key: os.environ.pop(key) for key in [*os.environ] if key[:4] == "GIT_"}
    try:
        yield
    finally:
        os.environ.update(saved)


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
