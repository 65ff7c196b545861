# SPDX-License-Identifier: Apache-2.0
"""Gets pinned files through pip into a cache, and checks them at every use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fork.config import Artifact
from fork.errors import ForkError
from fork.files import exclusive, scratch, sha256
from fork.paths import cache_dir

_BACKEND = Path(__file__).with_name("pip_backend")
Say = Callable[[str], None]


def _silent(message: str) -> None:
    """Say nothing."""


def folder() -> Path:
    """Return the folder of the cached files."""
    return cache_dir() / "downloads"


def fetch(artifact: Artifact, *, offline: bool = False, say: Say = _silent) -> Path:
    """Return the verified file, downloading it if the cache has none that is good."""
    cache = folder()
    path = cache / artifact.file
    with exclusive(cache, ".fetch.lock"):
        if path.exists():
            fault = _fault(path, artifact)
            if fault is None:
                return path
            aside = path.with_name(f"{path.name}.bad")
            os.replace(path, aside)
            say(f"The cached {artifact.file} {fault}; it was put aside as {aside}.")
        if offline:
            raise ForkError(
                f"{artifact.file} is not in the cache {cache}: run once without "
                "--offline, or copy the file there."
            )
        say(f"Downloading {artifact.file} ({artifact.size / 1e6:.0f} MB) with pip.")
        with scratch(cache, artifact.file) as temporary:
            downloaded = _download(artifact, temporary, cache)
            fault = _fault(downloaded, artifact)
            if fault is not None:
                raise ForkError(
                    f"The downloaded {artifact.file} {fault}: it is not the file that "
                    "upstream.toml pins, so it was thrown away; check the package "
                    "index that pip uses."
                )
            os.replace(downloaded, path)
    return path


def _fault(path: Path, artifact: Artifact) -> str | None:
    """Say what is wrong with a file, if anything is."""
    size = path.stat().st_size
    if size != artifact.size:
        return f"has {size} bytes instead of {artifact.size}"
    digest = sha256(path)
    if digest != artifact.sha256:
        return f"has sha256 {digest} instead of {artifact.sha256}"
    return None


def _download(artifact: Artifact, folder: Path, cache: Path) -> Path:
    requirement = f"{artifact.project}=={artifact.version}"
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{requirement} --hash=sha256:{artifact.sha256}\n", "utf-8")
    kind = "--only-binary" if artifact.file.endswith(".whl") else "--no-binary"
    result = pip_download(folder, kind, "--require-hashes", "-r", str(requirements))
    downloaded = folder / artifact.file
    if result.returncode or not downloaded.exists():
        raise ForkError(_explain(artifact, requirement, result.stdout, cache))
    return downloaded


def pip_download(
    folder: Path, kind: str, *what: str
) -> subprocess.CompletedProcess[str]:
    """Let pip put one sdist or wheel into a folder, without running anything in it."""
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--no-deps"]
    command += ["--no-build-isolation", kind, ":all:", "--dest", str(folder), *what]
    return subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(_BACKEND)},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def last_error(output: str) -> str:
    """Return the line in which pip says what was wrong."""
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    lines = errors or output.strip().splitlines()[-1:] or ["no output"]
    return lines[-1].removeprefix("ERROR:").strip().rstrip(".")


def _explain(artifact: Artifact, requirement: str, output: str, cache: Path) -> str:
    """Turn pip's output into one sentence."""
    if "No space left on device" in output:
        return (
            f"The disk is full: {artifact.file} needs {artifact.size / 1e6:.0f} MB in "
            f"{cache}, so free some space and run the same command again."
        )
    if "DO NOT MATCH THE HASHES" in output:
        return (
            f"pip found a {requirement} whose sha256 is not {artifact.sha256}: it is "
            "not the file that upstream.toml pins; check the package index that pip "
            "uses."
        )
    reason = last_error(output)
    return (
        f"pip could not download {requirement} ({reason}): check the network and "
        f"`pip config list`, or copy {artifact.file} to {cache}."
    )
