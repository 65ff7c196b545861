# SPDX-License-Identifier: Apache-2.0
"""Releases and series as commits, kept in the cache so that each is imported once."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fork import apply, fetch, paths
from fork.config import Artifact, Upstream
from fork.fetch import Say
from fork.files import exclusive, scratch
from fork.git import Repository
from fork.importer import import_sdist
from fork.series import Series


@dataclass(frozen=True)
class Tips:
    """A series as commits: the release, and the last patch on top of it."""

    base: str
    tip: str


@contextlib.contextmanager
def workshop() -> Iterator[Repository]:
    """Give a repository that sees all of the cache; what is written there is gone."""
    cache = Repository.bare(paths.upstreams())
    with tempfile.TemporaryDirectory(prefix="vllm-kunlun-") as folder:
        repository = Repository.bare(Path(folder) / "workshop.git")
        alternates = repository.git_dir / "objects" / "info" / "alternates"
        alternates.parent.mkdir(exist_ok=True)
        alternates.write_text(f"{cache.git_dir / 'objects'}\n", "utf-8")
        yield repository


def base(sdist: Artifact, *, offline: bool, say: Say) -> str:
    """Return the commit of a release, importing it if the cache lacks it."""
    with _cache() as repository:
        ref = f"refs/upstream/{sdist.version}"
        known = repository.commit_id(ref)
        # The message names the archive; another one may have been pinned before.
        if known and f"sha256 {sdist.sha256}" in repository.message(known):
            return known
        archive = fetch.fetch(sdist, offline=offline, say=say)
        if known:
            repository.run("update-ref", "-d", ref)
        say(f"Importing {sdist.file}.")
        return import_sdist(repository, archive, sdist)


def applied(upstream: Upstream, series: Series, *, offline: bool, say: Say) -> Tips:
    """Return a series as commits, applying it strictly if the cache lacks it."""
    commit = base(upstream.sdist, offline=offline, say=say)
    ref = f"refs/series/{commit}-{series.digest}"
    with _cache() as repository:
        if known := repository.commit_id(ref):
            return Tips(commit, known)
        archive = fetch.fetch(upstream.sdist, offline=offline, say=say)
        say(f"Applying {len(series.names)} patches to vLLM {upstream.version}.")
        with scratch(paths.cache_dir(), "series") as folder:
            made = apply.build(folder, archive, upstream, series, lambda _: None)
            repository.run("fetch", "--quiet", str(folder), f"{made.tip}:{ref}")
    return Tips(made.base, made.tip)


@contextlib.contextmanager
def _cache() -> Iterator[Repository]:
    with exclusive(paths.cache_dir(), ".upstreams.lock"):
        yield Repository.bare(paths.upstreams())
