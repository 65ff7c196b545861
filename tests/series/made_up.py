# SPDX-License-Identifier: Apache-2.0
"""A made-up upstream of three tiny releases, and a project that forks it."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fork import apply as applying
from fork import config, export, fetch, verify
from fork import rebase as rebasing
from fork.paths import PROJECT_ROOT, Layout

SCRIPTS = PROJECT_ROOT / "scripts"
VERSIONS = ("1.0", "1.1", "1.2")
LINES = "".join(f"line {number}\n" for number in range(1, 21))
TRAILERS = "Forwarded: no\nOrigin: vendor\nDrop-When: upstream does the same"


def files(version: str) -> dict[str, tuple[int, bytes]]:
    """Return what a release holds, with the modes that real sdists have."""
    generated = f'__version__ = "{version}"\n'.encode()
    return {
        "PKG-INFO": (
            0o644,
            b"Metadata-Version: 2.1\nName: made-up\n"
            + f"Version: {version}\n".encode(),
        ),
        "pyproject.toml": (
            0o664,
            b'[build-system]\nrequires = ["setuptools"]\n'
            b'build-backend = "setuptools.build_meta"\n',
        ),
        "setup.py": (0o664, b'raise SystemExit("the archive must not be run")\n'),
        ".gitignore": (0o664, b"/pkg/_version.py\n*.log\n"),
        ".gitattributes": (0o664, b"*.txt text eol=crlf\n*.py filter=no-such\n"),
        "pkg/_version.py": (0o664, generated),
        "pkg/lines.py": (0o664, LINES.replace("line 3\n", f"{version}\n").encode()),
        "pkg/other.py": (0o664, LINES.encode()),
        "dos.txt": (0o664, b"first\r\nsecond\r\nthird\r\n"),
        "unix.txt": (0o664, b"first\nsecond\n"),
        "tool.sh": (0o775, b"#!/bin/sh\n"),
        "odd name \xc3\xa9.md".encode("latin-1").decode(): (0o664, b"x\n"),
    }


def pack(version: str, content: Mapping[str, tuple[int, bytes]] | None = None) -> bytes:
    """Write a release as an sdist."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, (mode, data) in (content or files(version)).items():
            info = tarfile.TarInfo(f"made_up-{version}/{path}")
            info.size, info.mode, info.mtime = len(data), mode, 1_700_000_000
            tar.addfile(info, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), mtime=0)


@dataclass
class Project:
    """A project of its own below a temporary folder, with everything in the cache."""

    layout: Layout
    said: list[str]

    @property
    def upstream(self) -> config.Upstream:
        """The default version, as upstream.toml has it now."""
        return self.settings.upstream()

    @property
    def settings(self) -> config.Config:
        """The whole of upstream.toml."""
        return config.load(self.layout.config)

    @property
    def tree(self) -> Path:
        """The build tree."""
        return self.layout.tree(self.upstream.version)

    @property
    def patches(self) -> Path:
        """The folder of the series."""
        return self.layout.series_dir(self.upstream.version)

    def apply(self, *, set_aside: bool = False) -> Path:
        """Run scripts/apply."""
        return applying.apply(
            self.layout,
            self.upstream,
            offline=True,
            set_aside=set_aside,
            say=self.said.append,
        )

    def export(self) -> bool:
        """Run scripts/export."""
        return export.export(
            self.layout, self.upstream, offline=True, say=self.said.append
        )

    def verify(self, *, update: bool = False) -> config.Lock:
        """Run scripts/verify."""
        return verify.verify(
            self.layout,
            self.upstream,
            offline=True,
            update=update,
            say=self.said.append,
        )

    def rebase(self, to: str) -> None:
        """Run scripts/rebase --to."""
        rebasing.begin(
            self.layout, self.settings, to, offline=True, say=self.said.append
        )

    def go_on(self) -> None:
        """Run scripts/rebase --continue."""
        rebasing.resume(self.layout, self.settings, offline=True, say=self.said.append)

    def skip(self) -> None:
        """Run scripts/rebase --skip."""
        rebasing.skip(self.layout, self.settings, offline=True, say=self.said.append)

    def release(self, version: str, changes: Mapping[str, str | None]) -> None:
        """Publish a version again, with other files than the made-up ones."""
        content = files(version)
        for path, text in changes.items():
            content.pop(path, None)
            if text is not None:
                content[path] = (0o664, text.encode())
        pinned = self.settings.upstream(version).sdist
        data = pack(version, content)
        (fetch.folder() / pinned.file).write_bytes(data)
        text = self.layout.config.read_text()
        text = text.replace(pinned.sha256, hashlib.sha256(data).hexdigest())
        begin = text.index(f'file = "{pinned.file}"')
        size = f"size = {pinned.size}"
        self.layout.config.write_text(
            text[:begin] + text[begin:].replace(size, f"size = {len(data)}", 2)
        )

    def commit(self, path: str, old: str, new: str, message: str) -> None:
        """Edit a file of the build tree and commit, as a maintainer does."""
        file = self.tree / path
        text = file.read_bytes().decode()
        assert old in text
        file.write_bytes(text.replace(old, new).encode())
        self.git("add", "--all")
        self.git("commit", "-q", "-m", message)

    def git(self, *arguments: str) -> str:
        """Run git in the build tree as the user, with the user's settings."""
        return subprocess.run(
            ["git", *arguments],
            cwd=self.tree,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    def state(self) -> dict[str, bytes]:
        """Return every byte that export may change."""
        found = {p.name: p.read_bytes() for p in self.patches.iterdir()}
        return found | {"upstream.toml": self.layout.config.read_bytes()}


def message(subject: str, name: str | None = None, trailers: str = TRAILERS) -> str:
    """Write a good commit message."""
    last = f"\nPatch-File: {name}" if name else ""
    return f"{subject}\n\nBecause the test wants it so.\n\n{trailers}{last}\n"


def project(root: Path) -> Project:
    """Make a project with an empty series, its sdists lying in the cache."""
    layout = Layout(root)
    cache = fetch.folder()
    cache.mkdir(parents=True, exist_ok=True)
    text = 'default = "1.0"\n'
    for version in VERSIONS:
        data = pack(version)
        (cache / f"made_up-{version}.tar.gz").write_bytes(data)
        text += _table(version, data)
    root.mkdir(parents=True, exist_ok=True)
    layout.config.write_text(text)
    layout.series_dir("1.0").mkdir(parents=True)
    (layout.series_dir("1.0") / "series").write_bytes(b"")
    return Project(layout, [])


def _table(version: str, data: bytes) -> str:
    pinned = f"""project = "made-up"
version = "{version}"
file = "made_up-{version}.tar.gz"
size = {len(data)}
sha256 = "{hashlib.sha256(data).hexdigest()}"
"""
    return f"""
[upstream."{version}"]  # a remark that must stay
revision = 1
torch = "2.11.0"

[upstream."{version}".sdist]
{pinned}
[upstream."{version}".donor]
{pinned}
[upstream."{version}".lock]
base = ""
series = ""
tree = ""
"""


def with_two_patches(made: Project) -> Project:
    """Give the project two exported patches."""
    made.verify(update=True)
    made.apply()
    made.commit("pkg/lines.py", "line 10\n", "line ten\n", message("first", "a.patch"))
    made.commit("pkg/lines.py", "line 11\n", "line 11!\n", message("second", "b.patch"))
    made.export()
    made.said.clear()
    return made


def commit_files(project: Project, subject: str) -> None:
    """Commit the project's own files, as a maintainer does after an export."""
    for command in (
        ["init", "--quiet"],
        ["add", "patches", "upstream.toml"],
        ["commit", "--quiet", "-m", subject],
    ):
        subprocess.run(["git", *command], cwd=project.layout.root, check=True)


def hostile_settings(home: Path) -> None:
    """Write user settings that would change commits and patches, if asked."""
    hooks = home / "hooks"
    hooks.mkdir(parents=True)
    for name in ("pre-commit", "applypatch-msg", "pre-applypatch", "commit-msg"):
        (hooks / name).write_text("#!/bin/sh\nexit 1\n")
        os.chmod(hooks / name, 0o755)
    (home / "attributes").write_text("* text eol=crlf\n*.py diff=python\n")
    (home / ".gitconfig").write_text(
        f"""[core]
autocrlf = true
hooksPath = {hooks}
attributesFile = {home}/attributes
abbrev = 7
[commit]
gpgSign = true
[user]
name = Somebody Else
email = else@example.org
[diff]
algorithm = patience
noprefix = true
context = 7
renames = copies
external = false
[format]
signature = hostile
numbered = true
attach = true
subjectPrefix = HOSTILE
[am]
threeWay = true
[apply]
whitespace = fix
[i18n]
commitEncoding = ISO-8859-1
[init]
defaultBranch = other
templateDir = {home}/no-such
[merge]
conflictStyle = diff3
"""
    )
