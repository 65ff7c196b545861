# SPDX-License-Identifier: Apache-2.0
"""Where things are: the project, what is built in it, and the download cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]


def user_cache_dir() -> Path:
    """Return where the user's programs keep what they could fetch again."""
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative values ignored.
    return Path(xdg) if Path(xdg).is_absolute() else Path.home() / ".cache"


def cache_dir() -> Path:
    """Return the download cache, shared by every clone of the project."""
    if own := os.environ.get("VLLM_KUNLUN_CACHE"):
        return Path(own).expanduser().absolute()
    return user_cache_dir() / "vllm-kunlun"


def upstreams() -> Path:
    """Return the git repository that keeps imported releases, shared likewise."""
    return cache_dir() / "upstreams.git"


@dataclass(frozen=True)
class Layout:
    """The places inside one clone of the project."""

    root: Path = PROJECT_ROOT

    @property
    def config(self) -> Path:
        """The file that says what is forked."""
        return self.root / "upstream.toml"

    @property
    def releases(self) -> Path:
        """The file that pins further releases, for rebases."""
        return self.root / "upstream-releases.toml"

    @property
    def build(self) -> Path:
        """Everything that can be made again."""
        return self.root / "build"

    def series_dir(self, version: str) -> Path:
        """Return the folder of the patches for one upstream version."""
        return self.root / "patches" / version

    def kernel_lock(self, version: str) -> Path:
        """Return the file that remembers the kernels of one upstream version."""
        return self.root / "kernel-locks" / f"{version}.toml"

    def tree(self, version: str) -> Path:
        """Return the git work tree in which the patches are edited."""
        return self.build / f"vllm-{version}"

    def rebase(self, version: str) -> Path:
        """Return the git work tree of a rebase to a version, while it lasts."""
        return self.build / f"rebase-{version}"

    def pristine(self, version: str) -> Path:
        """Return the folder of the unpatched sources."""
        return self.build / f"upstream-{version}"
