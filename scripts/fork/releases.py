# SPDX-License-Identifier: Apache-2.0
"""The releases of upstream that are pinned, whether or not they are maintained here.

upstream.toml says what is forked. This file beside it, written by scripts/pin, holds
what a rebase to any other release needs: its sdist, its donor wheel if the package
index has one, and the torch that it asks for.
"""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import tomlkit
from packaging.version import InvalidVersion, Version
from tomlkit.exceptions import TOMLKitError

from fork import fetch, sdist
from fork.config import Artifact, Config, Lock, Reader, Upstream
from fork.errors import ForkError, shown
from fork.fetch import Say
from fork.files import exclusive, scratch, sha256, write_atomically
from fork.paths import Layout

_HEADER = (
    "Releases that scripts/rebase can look at or go to. Written by scripts/pin alone."
)


@dataclass(frozen=True)
class Release:
    """One release as the package index has it; not every one has a donor wheel."""

    version: str
    torch: str
    sdist: Artifact
    donor: Artifact | None


def read(path: Path) -> dict[str, Release]:
    """Read the pinned releases; no file means none."""
    if not path.exists():
        return {}
    reader = Reader(path)
    try:
        data = tomlkit.parse(path.read_text("utf-8")).unwrap()
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ForkError(f"{shown(path)} is not valid TOML: {error}.") from None
    return {
        version: Release(
            version=version,
            torch=reader.text(table, "torch", version),
            sdist=reader.artifact(table, "sdist", version),
            donor=reader.artifact(table, "donor", version)
            if "donor" in table
            else None,
        )
        for version, table in reader.table(data, "release").items()
    }


def known(layout: Layout, config: Config) -> dict[str, Release]:
    """Return maintained and pinned releases together, oldest first."""
    found = read(layout.releases)
    for version, upstream in config.upstreams.items():
        found[version] = Release(
            version, upstream.torch, upstream.sdist, upstream.donor
        )
    return {version: found[version] for version in sorted(found, key=Version)}


def find(layout: Layout, config: Config, version: str) -> Release:
    """Return one release, or say how it is made known."""
    releases = known(layout, config)
    if version not in releases:
        raise ForkError(
            f"vLLM {version} is not pinned ({shown(layout.releases)} and "
            f"{shown(config.path)} have {', '.join(releases)}): run "
            f"`scripts/pin {version}` if there is such a release."
        )
    return releases[version]


def target(layout: Layout, config: Config, version: str) -> Upstream:
    """Return what a rebase goes to: a maintained version, or one that becomes it."""
    if version in config.upstreams:
        return config.upstreams[version]
    release = find(layout, config, version)
    if release.donor is None:
        raise ForkError(
            f"vLLM {version} has no donor wheel of compiled CPU kernels on the package "
            "index, so it could not be built here: choose another version, or look at "
            f"it with `scripts/rebase --check {version}`."
        )
    return Upstream(version, 1, release.torch, release.sdist, release.donor, Lock())


def newer(layout: Layout, config: Config) -> list[str]:
    """Ask the package index for releases newer than the newest pinned one."""
    newest = Version([*known(layout, config)][-1])
    project = config.upstream().sdist.project
    return [
        version
        for version in reversed(_on_index(project))
        if Version(version) > newest and not Version(version).is_prerelease
    ]


def pin(layout: Layout, config: Config, version: str, *, say: Say = print) -> Release:
    """Download a release through pip and record what it is."""
    if version in (releases := known(layout, config)):
        say(f"vLLM {version} is pinned already.")
        return releases[version]
    try:
        Version(version)
    except InvalidVersion:
        raise ForkError(
            f"{version!r} is not a version: name a release such as 0.26.0."
        ) from None
    upstream = config.upstream()
    source = _get(upstream.sdist.project, version, "--no-binary", say)
    if source is None:
        raise _no_sdist(upstream.sdist.project, version)
    torch = _torch(fetch.folder() / source.file, version)
    donor = _get(upstream.donor.project, version, "--only-binary", say)
    release = Release(version, torch, source, donor)
    write(layout.releases, read(layout.releases) | {version: release})
    say(
        f"vLLM {version} is pinned: {source.file}"
        + (f", {donor.file}." if donor else "; there is no donor wheel.")
    )
    return release


def _get(project: str, version: str, kind: str, say: Say) -> Artifact | None:
    """Download one file into the cache; None where the index has no such file."""
    cache = fetch.folder()
    say(f"Asking the package index for {project}=={version}.")
    with exclusive(cache, ".fetch.lock"), scratch(cache, "pin") as folder:
        result = fetch.pip_download(folder, kind, f"{project}=={version}")
        if result.returncode:
            if "No matching distribution found" in result.stdout:
                return None
            reason = fetch.last_error(result.stdout)
            raise ForkError(
                f"pip could not download {project}=={version} ({reason}): check the "
                "network and `pip config list`."
            )
        (path,) = folder.iterdir()
        size = path.stat().st_size
        found = Artifact(project, version, path.name, size, sha256(path))
        os.replace(path, cache / path.name)
    return found


def _no_sdist(project: str, version: str) -> ForkError:
    available = _on_index(project)
    if version in available:
        return ForkError(
            f"{project} {version} has no sdist on the package index, only wheels: the "
            "series needs sources, so choose another version."
        )
    newest = ", ".join(available[:3]) or "none"
    return ForkError(
        f"The package index has no {project} {version} (its newest are {newest}): "
        "name one that exists."
    )


def _on_index(project: str) -> list[str]:
    """List the versions that pip sees, newest first."""
    command = [sys.executable, "-m", "pip", "index", "versions", project]
    result = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False
    )
    if found := re.search(r"^Available versions: (.*)$", result.stdout, re.MULTILINE):
        return found[1].split(", ")
    if "No matching distribution found" in result.stderr:
        return []
    raise ForkError(
        f"pip could not list the versions of {project} "
        f"({fetch.last_error(result.stderr)}): check the network and `pip config list`."
    )


def _torch(archive: Path, version: str) -> str:
    """Read the exact torch that a release asks for out of its metadata."""
    found = (m.data for m in sdist.members(archive) if m.path == "PKG-INFO")
    fields = email.message_from_bytes(next(found, b""))
    if (own := fields["Version"]) != version:
        raise ForkError(
            f"{archive.name} holds version {own}, not {version}: pin it by that name."
        )
    for line in fields.get_all("Requires-Dist", []):
        if match := re.match(r"torch==([\d.]+)", line):
            return match[1]
    raise ForkError(
        f"{archive.name} does not say which torch it wants (no `Requires-Dist: "
        "torch==...` in PKG-INFO): choose another version."
    )


def write(path: Path, releases: Mapping[str, Release]) -> None:
    """Write the pinned releases, oldest first."""
    document = tomlkit.document()
    document.add(tomlkit.comment(_HEADER))
    document.add(tomlkit.nl())
    rows = tomlkit.table(is_super_table=True)
    for version in sorted(releases, key=Version):
        release = releases[version]
        table = tomlkit.table()
        table["torch"] = release.torch
        table["sdist"] = asdict(release.sdist)
        if release.donor is not None:
            table["donor"] = asdict(release.donor)
        rows[version] = table
    document["release"] = rows
    write_atomically(path, tomlkit.dumps(document).encode())
