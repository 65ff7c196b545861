# SPDX-License-Identifier: Apache-2.0
"""Moves the series to another upstream version, patch by patch, and loses nothing.

The work is done in a repository of its own, build/rebase-VERSION. What is on disk of
either series changes only at the end, in one go, after the new patches were proved to
apply strictly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fork import (
    apply,
    fetch,
    rebase_again,
    rebase_conflict,
    rebase_end,
    rebase_state,
    releases,
    series,
    state,
)
from fork.config import Config, Upstream
from fork.errors import ForkError, shown
from fork.fetch import Say
from fork.files import exclusive, remove_tree, scratch
from fork.git import Repository
from fork.importer import import_sdist
from fork.message import PATCH_FILE, parse
from fork.paths import Layout
from fork.rebase_state import Item, Rebase
from fork.series import Series
from fork.transplant import Outcome, classify, content_digest, need_git, transplant

_BACKUP = "refs/backup/{version}"


class Stopped(ForkError):
    """A person has to decide on a patch; the sentence says how to go on."""


def begin(
    layout: Layout,
    settings: Config,
    to: str,
    *,
    source: str | None = None,
    offline: bool = False,
    say: Say = print,
) -> None:
    """Start a rebase of one version's series to another version, and carry it on."""
    old = settings.upstream(source)
    new = releases.target(layout, settings, to)
    if old.version == new.version:
        raise ForkError(
            f"The series already is that of vLLM {to}: name another version."
        )
    with exclusive(layout.build):
        if folder := rebase_state.unfinished(layout):
            raise ForkError(
                f"{shown(folder)} holds an unfinished rebase: go on with "
                "`scripts/rebase --continue`, or give it up with `scripts/rebase "
                "--abort`."
            )
        patches = series.read(layout.series_dir(old.version))
        apply.check_locked(layout, old, patches)
        earlier = _earlier(layout, new, old.version)
        for version in (old.version, new.version):
            apply.refuse_work(layout.tree(version), version)
        archives = [
            fetch.fetch(version.sdist, offline=offline, say=say)
            for version in (old, new)
        ]
        work = _set_up(layout, (old, new), archives, patches, earlier)
        say(
            f"Rebasing {len(work.items)} patches from vLLM {old.version} to "
            f"{new.version} in {shown(layout.rebase(new.version))}; "
            f"{_BACKUP.format(version=old.version)} there is the old series."
        )
        _advance(layout, settings, offline, say)
    rebase_end.check_result(layout, work, offline, say)


def _set_up(
    layout: Layout,
    versions: tuple[Upstream, Upstream],
    archives: list[Path],
    patches: Series,
    earlier: Series,
) -> Rebase:
    """Make the repository of the rebase: the old series, and the new base."""
    old, new = versions
    folder = layout.rebase(new.version)
    with scratch(layout.build, folder.name) as temporary:
        applied = apply.build(temporary, archives[0], old, patches, lambda _: None)
        apply.check_lock(old, applied)
        repository = Repository(temporary)
        need_git(repository)
        repository.run("update-ref", _BACKUP.format(version=old.version), applied.tip)
        base = import_sdist(repository, archives[1], new.sdist)
        made = _made_before(repository, base, new, earlier)
        then = rebase_again.earlier_source(layout, repository, applied.base, old, new)
        commits = repository.commits(applied.base, applied.tip)
        branch = state.branch_name(new.version)
        repository.run("checkout", "--quiet", "-B", branch, base)
        repository.run("branch", "-D", state.branch_name(old.version))
        work = Rebase(
            source=old.version,
            target=new.version,
            series=patches.digest,
            replaces=state.digests(earlier),
            base=base,
            tip=base,
            items=_items(patches, commits, made, then, new),
        )
        rebase_state.save(repository, work)
        os.rename(temporary, folder)
    return work


def resume(
    layout: Layout, settings: Config, *, offline: bool = False, say: Say = print
) -> None:
    """Take what a person made of the patch that stopped the rebase, and go on."""
    with exclusive(layout.build):
        repository, work = rebase_state.load(layout)
        if work.stopped:
            _take_resolution(repository, work, say)
        _advance(layout, settings, offline, say)
    rebase_end.check_result(layout, work, offline, say)


def skip(
    layout: Layout, settings: Config, *, offline: bool = False, say: Say = print
) -> None:
    """Drop the patch that stopped the rebase, and go on."""
    with exclusive(layout.build):
        repository, work = rebase_state.load(layout)
        item = work.next
        if not work.stopped or item is None:
            raise ForkError(
                "The rebase waits for no decision: go on with `scripts/rebase "
                "--continue`."
            )
        taken = work.stopped == Outcome.UPSTREAM.value
        say(f"{_number(work)} {item.name}: dropped from the series")
        work.settle(Outcome.UPSTREAM if taken else Outcome.DROPPED, work.tip)
        rebase_state.save(repository, work)
        _advance(layout, settings, offline, say)
    rebase_end.check_result(layout, work, offline, say)


def abort(layout: Layout, *, say: Say = print) -> None:
    """Throw the rebase away; the series on disk never was touched."""
    with exclusive(layout.build):
        _, work = rebase_state.load(layout)
        remove_tree(layout.rebase(work.target))
    say(f"The rebase from {work.source} to {work.target} is gone; no patch changed.")


def _take_resolution(repository: Repository, work: Rebase, say: Say) -> None:
    item = work.next
    assert item is not None  # it is what the rebase has stopped at
    tree = rebase_conflict.resolved(repository, work.tip)
    if tree == repository.tree_id(work.tip):
        if work.stopped == Outcome.UPSTREAM.value:
            raise _taken(item)
        raise Stopped(
            f"{item.name} as resolved changes nothing: drop it with `scripts/rebase "
            "--skip`, or put its change into the files."
        )
    say(f"{_number(work)} {item.name}: conflict, resolved by hand")
    work.settle(Outcome.CONFLICT, _commit(repository, item, work.tip, tree))
    rebase_state.save(repository, work)


def _number(work: Rebase) -> str:
    return f"[{work.position + 1}/{len(work.items)}]"


def _earlier(layout: Layout, new: Upstream, source: str) -> Series:
    """Return what patches/NEW holds from an earlier rebase, as it is locked."""
    folder = layout.series_dir(new.version)
    if not series.patch_files(folder):
        return Series({})
    patches = series.read(folder)
    apply.check_locked(layout, new, patches)
    if new.rebased is None or new.rebased.source != source:
        raise ForkError(
            f"{shown(folder)} holds a series that was not made from that of vLLM "
            f"{source} and would be lost: move it away, or choose another --from."
        )
    return patches


def _made_before(
    repository: Repository, base: str, new: Upstream, earlier: Series
) -> Mapping[str, str]:
    """Apply what an earlier rebase made, and map the patches to their commits."""
    if not earlier.names:
        return {}
    applied = apply.apply_series(repository, base, new.version, earlier, lambda _: None)
    repository.run("update-ref", _BACKUP.format(version=new.version), applied.tip)
    commits = repository.commits(base, applied.tip)
    return dict(zip(earlier.names, commits, strict=True))


def _items(
    patches: Series,
    commits: list[str],
    made: Mapping[str, str],
    then: Mapping[str, str],
    new: Upstream,
) -> list[Item]:
    """List what is to be done: the old series, then what only the target has."""
    sources = new.rebased.patches if new.rebased else {}
    names = {digest: name for name, digest in sources.items()}
    items = []
    for (name, patch), commit in zip(patches.patches.items(), commits, strict=True):
        known = names.get(content_digest(patch))
        before = made.get(known) if known else None
        dropped = known is not None and before is None
        item = Item(name, commit, before, dropped=dropped)
        if known is None and name in made and name in then:
            item = Item(name, commit, made[name], was=then[name])
        items.append(item)
    taken = {item.name for item in items} | sources.keys()
    own = [name for name in made if name not in taken]
    return items + [Item(name, made[name], made[name], own=True) for name in own]


def _advance(layout: Layout, settings: Config, offline: bool, say: Say) -> None:
    """Do patch after patch until one needs a person, or all are done."""
    repository, work = rebase_state.load(layout)
    while (item := work.next) is not None:
        number = _number(work)
        if item.dropped:
            say(f"{number} {item.name}: dropped, as before")
            work.settle(Outcome.DROPPED, work.tip)
            rebase_state.save(repository, work)
            continue
        onto = repository.tree_id(work.tip)
        result = None
        outcome = Outcome.KEPT if item.before else None
        if item.was:
            result = rebase_again.follow(repository, item, onto)
            outcome = Outcome.FOLLOWED if result else None
        if result is None:
            result = transplant(repository, item.source, onto)
        if result.conflicts:
            say(f"{number} {item.name}: conflict")
            _stop(repository, work, Outcome.CONFLICT)
            rebase_conflict.show(repository, item.commit, result, say)
            raise Stopped(
                f"{item.name} conflicts with vLLM {work.target} in "
                f"{', '.join(result.conflicts)}: edit in {shown(repository.path)}, "
                "`git add` there, then `scripts/rebase --continue` (or --skip to drop "
                "the patch, --abort to give up)."
            )
        if result.tree == onto:
            say(f"{number} {item.name}: taken upstream")
            _stop(repository, work, Outcome.UPSTREAM)
            raise _taken(item)
        tip = _commit(repository, item, work.tip, result.tree)
        if outcome is None:
            outcome = classify(repository.patch(item.commit), repository.patch(tip))
        work.settle(outcome, tip)
        rebase_state.save(repository, work)
        say(f"{number} {item.name}: {outcome.value}")
    rebase_end.finish(layout, settings, repository, work, offline, say)


def _taken(item: Item) -> Stopped:
    return Stopped(
        f"{item.name} changes nothing any more: upstream has it, so drop it with "
        "`scripts/rebase --skip` (or change files and --continue, or --abort)."
    )


def _stop(repository: Repository, work: Rebase, outcome: Outcome) -> None:
    """Put the work tree into the state that a person has to look at."""
    item = work.next
    assert item is not None
    repository.run("reset", "--quiet", "--hard", work.tip)
    if outcome is Outcome.CONFLICT:
        status, _ = repository.attempt("cherry-pick", "--no-commit", item.source)
        if not status:
            raise ForkError(f"{item.name} conflicts only sometimes: report this.")
    work.stopped = outcome.value
    rebase_state.save(repository, work)


def _commit(repository: Repository, item: Item, parent: str, tree: str) -> str:
    text = parse(repository.message(item.commit)).with_trailer(PATCH_FILE, item.name)
    return repository.recommit(item.commit, parent, text.text(), tree)
