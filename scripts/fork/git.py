# SPDX-License-Identifier: Apache-2.0
"""The few things that the tools ask of a git work tree."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from fork.errors import ForkError
from fork.hermetic import ATTRIBUTES, FORMAT, LOCAL_CONFIG, GitError, Hermetic


class Repository:
    """One git work tree."""

    def __init__(self, path: Path) -> None:
        if shutil.which("git") is None:
            raise ForkError("git is not installed: install it (`apt install git`).")
        self.path = path
        self.git_dir = path / ".git"
        self._git = Hermetic(path)

    @classmethod
    def bare(cls, path: Path) -> Repository:
        """Open or make a repository that holds objects alone."""
        repository = cls(path)
        repository.git_dir = path
        if not (path / "HEAD").exists():
            path.mkdir(parents=True, exist_ok=True)
            repository.run("init", "--quiet", "--bare", "--template=", ".")
        return repository

    @classmethod
    def create(cls, path: Path, branch: str) -> Repository:
        """Make an empty repository whose checkouts change no byte of a file."""
        repository = cls(path)
        # The branch is named afterwards: `init --initial-branch` is too new.
        repository.run("init", "--quiet", "--template=", ".")
        repository.run("symbolic-ref", "HEAD", f"refs/heads/{branch}")
        info = repository.git_dir / "info"
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(ATTRIBUTES, "utf-8")
        # For the person who edits here with settings of their own.
        with (repository.git_dir / "config").open("a", encoding="utf-8") as stream:
            stream.write(LOCAL_CONFIG)
        return repository

    def run(self, *arguments: str, **options: Any) -> str:
        """Run a git command and return what it prints, without the last newline."""
        return self.run_bytes(*arguments, **options).decode("utf-8").removesuffix("\n")

    def run_bytes(self, *arguments: str, **options: Any) -> bytes:
        """Run a git command and return exactly what it prints."""
        return self._git.output(*arguments, **options)

    def attempt(self, *arguments: str, **options: Any) -> tuple[int, str]:
        """Run a git command whose failure is an answer."""
        status, printed = self._git.attempt(*arguments, **options)
        return status, printed.decode("utf-8", "replace")

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

    def files(self, revision: str, *places: str) -> dict[str, bytes]:
        """Read the files of a commit below some paths, without a work tree."""
        listing = self.run("ls-tree", "-r", "-z", revision, "--", *places)
        entries = [entry.split("\t", 1) for entry in listing.split("\0") if entry]
        blobs = [fields.split()[2] for fields, _ in entries]
        with tempfile.TemporaryFile() as stream:
            stream.write("".join(f"{blob}\n" for blob in blobs).encode())
            stream.seek(0)
            data = self.run_bytes("cat-file", "--batch", istream=stream)
        found: dict[str, bytes] = {}
        start = 0
        for _, path in entries:
            head = data.index(b"\n", start)
            size = int(data[start:head].split()[2])
            found[path] = data[head + 1 : head + 1 + size]
            start = head + size + 2
        return found

    def commits(self, base: str, tip: str = "HEAD") -> list[str]:
        """List the commits after `base` up to `tip`, oldest first."""
        output = self.run("rev-list", "--reverse", "--topo-order", f"{base}..{tip}")
        return output.split()

    def recommit(
        self, commit: str, parent: str, message: str, tree: str | None = None
    ) -> str:
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
            return self.run(
                "commit-tree",
                tree or self.tree_id(commit),
                *("-p", parent, "-F", "-"),
                istream=stream,
                env=author,
            )

    def patch(self, commit: str) -> bytes:
        """Write one commit as a patch, the same bytes on every machine."""
        return self.run_bytes("format-patch", "--stdout", "-1", *FORMAT, commit)

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
