# SPDX-License-Identifier: Apache-2.0
"""Makes the build tree: upstream as one commit, then one commit per patch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fork import fetch, series, state
from fork.config import Upstream
from fork.errors import ForkError, shown, tool
from fork.fetch import Say
from fork.files import exclusive, remove_tree, scratch
from fork.git import Repository
from fork.hermetic import GitError
from fork.importer import import_sdist
from fork.paths import Layout
from fork.series import Series


@dataclass(frozen=True)
class Applied:
    """What a series comes out as."""

    base: str
    tip: str
    tree: str


def apply(
    layout: Layout,
    upstream: Upstream,
    *,
    offline: bool = False,
    set_aside: bool = False,
    say: Say = print,
) -> Path:
    """Bring the build tree to the series on disk, and never lose work in it."""
    version = upstream.version
    tree = layout.tree(version)
    with exclusive(layout.build):
        current = series.read(layout.series_dir(version))
        check_locked(layout, upstream, current)
        if set_aside and tree.exists():
            say(f"The old tree is now {shown(_move_aside(tree))}.")
        if tree.exists():
            repository, known = state.open_tree(tree, version)
            state.refuse_uncommitted(repository)
            refuse_unexported(repository, known, version)
            base = upstream.lock.base or known.base
            if known == state.State.of(base, known.tip, current):
                say(
                    f"{shown(tree)} already holds the series ({len(current.names)}): "
                    "nothing to do."
                )
                return tree
        archive = fetch.fetch(upstream.sdist, offline=offline, say=say)
        with scratch(layout.build, tree.name) as folder:
            applied = build(folder, archive, upstream, current, say)
            check_lock(upstream, applied)
            repository = Repository(folder)
            state.save(repository, state.State.of(applied.base, applied.tip, current))
            if tree.exists():
                replace(tree, version, say)
            os.rename(folder, tree)
    say(f"{shown(tree)} is vLLM {version} with the series ({len(current.names)}).")
    return tree


def build(
    folder: Path, archive: Path, upstream: Upstream, patches: Series, say: Say
) -> Applied:
    """Import and apply into an empty folder, strictly."""
    repository = Repository.create(folder, state.branch_name(upstream.version))
    base = import_sdist(repository, archive, upstream.sdist)
    return apply_series(repository, base, upstream.version, patches, say)


def apply_series(
    repository: Repository, base: str, version: str, patches: Series, say: Say
) -> Applied:
    """Put the work tree on the base, and one commit per patch on top of it."""
    repository.run("reset", "--quiet", "--hard", base)
    count = len(patches.names)
    for number, (name, content) in enumerate(patches.patches.items(), 1):
        say(f"[{number}/{count}] {name}")
        mail = repository.git_dir / "next.patch"
        mail.write_bytes(content)
        try:
            repository.apply_mail(mail)
        except GitError as error:
            raise ForkError(
                f"{name} does not apply to vLLM {version} after the {number - 1} "
                f"patches before it ({error}): check the order in the series file, or "
                "take the patch back from git."
            ) from None
        finally:
            mail.unlink()
        if _blob_lines(repository.patch("HEAD")) != _blob_lines(content):
            raise ForkError(
                f"{name} applies only at other places or to other content than it was "
                "made from: it was edited by hand or is out of order; take it back "
                "from git and edit in the build tree."
            )
    tip = repository.commit_id("HEAD")
    assert tip is not None
    return Applied(base, tip, repository.tree_id("HEAD"))


def check_lock(upstream: Upstream, applied: Applied) -> None:
    """Compare what came out with what upstream.toml locks."""
    lock = upstream.lock
    for what, found, locked in (
        ("base commit", applied.base, lock.base),
        ("tree", applied.tree, lock.tree),
    ):
        if locked and found != locked:
            raise ForkError(
                f"The {what} of vLLM {upstream.version} came out as {found}, but "
                f"upstream.toml locks {locked}: take upstream.toml and the patches "
                "back from git, or accept the change with "
                f"{tool('verify', upstream.version)} --update."
            )


def check_locked(layout: Layout, upstream: Upstream, patches: Series) -> None:
    """Compare the patches on disk with the digest that upstream.toml locks."""
    locked = upstream.lock.series
    if locked and patches.digest != locked:
        raise ForkError(
            f"{shown(layout.series_dir(upstream.version))} has the digest "
            f"{patches.digest}, but upstream.toml locks {locked}: take the patches "
            "back from git, or accept the change with "
            f"{tool('verify', upstream.version)} --update."
        )


def refuse_work(tree: Path, version: str) -> None:
    """Refuse a build tree that holds anything which its series does not."""
    if tree.exists():
        repository, known = state.open_tree(tree, version)
        state.refuse_uncommitted(repository)
        refuse_unexported(repository, known, version)


def refuse_unexported(repository: Repository, known: state.State, version: str) -> None:
    """Refuse where commits were made, or dropped, since the tools were here."""
    tip = repository.commit_id("HEAD")
    if tip == known.tip:
        return
    where = shown(repository.path)
    log = repository.run(
        "log", "--format=%h %s", "--abbrev=10", "-3", f"{known.tip}..HEAD"
    )
    listed = "; ".join(log.splitlines()) or "commits were dropped"
    raise ForkError(
        f"{where} has commits that were not exported ({listed}): run "
        f"{tool('export', version)}, or keep them out of the way with "
        f"{tool('apply', version)} --set-aside."
    )


def _blob_lines(patch: bytes) -> list[bytes]:
    """Return the lines that name a file's blob before and after."""
    return [line for line in patch.splitlines() if line.startswith(b"index ")]


def replace(tree: Path, version: str, say: Say) -> None:
    """Make room for a new tree; the old one stays if it holds anything of its own."""
    repository = Repository(tree)
    own = f"refs/heads/{state.branch_name(version)}"
    refs = repository.run("for-each-ref", "--format=%(refname)").splitlines()
    tools = ("refs/upstream/", "refs/backup/")
    others = [ref for ref in refs if ref != own and not ref.startswith(tools)]
    others += repository.ignored_files()
    aside = _move_aside(tree)
    if others:
        say(f"The old tree is now {shown(aside)}: it holds {', '.join(others[:3])}.")
    else:
        remove_tree(aside)


def _move_aside(tree: Path) -> Path:
    number = 1
    while (aside := tree.with_name(f"{tree.name}.old-{number}")).exists():
        number += 1
    os.rename(tree, aside)
    return aside
