# SPDX-License-Identifier: Apache-2.0
"""Shows what changed between two states of the series, for whoever reviews it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fork import config, message, series, upstreams
from fork.config import Config, Upstream
from fork.errors import ForkError
from fork.fetch import Say
from fork.git import Repository
from fork.hermetic import GitError
from fork.paths import Layout
from fork.series import Series
from fork.transplant import classify
from fork.upstreams import Tips


@dataclass(frozen=True)
class State:
    """A series as it is or was, and the upstream it belongs to."""

    name: str
    upstream: Upstream
    series: Series


def find(layout: Layout, settings: Config, name: str) -> State:
    """Find the state that a user has named.

    Args:
        layout: where the project is.
        settings: its upstream.toml.
        name: ``.`` or a maintained version for the files as they are now, a revision
            of the project's git, or ``REVISION:VERSION``.
    """
    if name == "." or name in settings.upstreams:
        upstream = settings.upstream(None if name == "." else name)
        return State(name, upstream, series.read(layout.series_dir(upstream.version)))
    revision, _, version = name.partition(":")
    project = Repository(layout.root)
    commit = project.commit_id(revision)
    if commit is None:
        raise ForkError(
            f"{revision!r} is neither a maintained version "
            f"({', '.join(settings.upstreams)}) nor a revision of the project's git: "
            "name one, or `REVISION:VERSION`."
        )
    try:
        then = project.run_bytes("show", f"{commit}:./{layout.config.name}")
    except GitError:
        raise ForkError(
            f"{revision} of the project has no {layout.config.name}: name a later one."
        ) from None
    upstream = config.parse(then, Path(f"{revision}:{layout.config.name}")).upstream(
        version or None
    )
    folder = layout.series_dir(upstream.version).relative_to(layout.root).as_posix()
    files = project.files(commit, folder)
    return State(name, upstream, _series(name, folder, files))


def review(
    layout: Layout,
    settings: Config,
    old: str,
    new: str,
    *,
    diff: bool = False,
    offline: bool = False,
    say: Say = print,
) -> None:
    """Print which patches changed, how the trees differ, and the range-diff."""
    states = find(layout, settings, old), find(layout, settings, new)
    tips = [
        upstreams.applied(state.upstream, state.series, offline=offline, say=say)
        for state in states
    ]
    with upstreams.workshop() as repository:
        for state, tip in zip(states, tips, strict=True):
            tree = repository.tree_id(tip.tip)
            count = len(state.series.names)
            version = state.upstream.version
            say(f"{state.name}: vLLM {version}, {count} patches, tree {tree}")
        for line in _patches(states[0].series, states[1].series):
            say(line)
        for line in _trees(repository, tips[0], tips[1], diff):
            say(line)
        say("")
        ranges = [f"{tip.base}..{tip.tip}" for tip in tips]
        say(repository.run("range-diff", "--no-color", "--abbrev=10", *ranges))


def _series(name: str, folder: str, files: dict[str, bytes]) -> Series:
    """Build a series from files of git; the tools have checked it when it was new."""
    index = files.get(f"{folder}/{series.SERIES_FILE}", b"").decode().split()
    patches = {n: files[f"{folder}/{n}"] for n in index if f"{folder}/{n}" in files}
    if not patches or [*patches] != index:
        raise ForkError(f"{name} has no complete series in {folder}: name another.")
    return Series(patches)


def _patches(old: Series, new: Series) -> Iterator[str]:
    """Say of every patch in one word what happened to it."""
    places = {name: number for number, name in enumerate(old.names, 1)}
    for number, (name, content) in enumerate(new.patches.items(), 1):
        if name not in old.patches:
            yield f"{number:3} {name}: new"
            continue
        word = _word(old.patches[name], content)
        place = "" if places[name] == number else f", was number {places[name]}"
        yield f"{number:3} {name}: {word}{place}"
    for name in old.names:
        if name not in new.patches:
            yield f"  - {name}: gone"


def _word(old: bytes, new: bytes) -> str:
    if old == new:
        return "same"
    if message.of_patch(old) != message.of_patch(new):
        same = classify(old, new).value == "clean"
        return "another message" if same else "changed, another message"
    return {"clean": "same change", "moved": "moved"}.get(
        classify(old, new).value, "changed"
    )


def _trees(repository: Repository, old: Tips, new: Tips, diff: bool) -> Iterator[str]:
    yield ""
    if old.base != new.base:
        yield "The trees are those of different releases: see the range-diff."
        return
    if repository.tree_id(old.tip) == repository.tree_id(new.tip):
        yield "Both come out as the same tree."
        return
    how = ["--stat=88"] if not diff else []
    yield repository.run("diff", "--no-color", *how, old.tip, new.tip)
