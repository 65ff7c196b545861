# SPDX-License-Identifier: Apache-2.0
"""The end of a rebase: the new series is proved, written and verified."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from fork import (
    apply,
    config,
    export,
    kernel_lock,
    rebase_state,
    releases,
    series,
    state,
    triton_kernels,
    verify,
)
from fork.config import Config, Lock, Rebased
from fork.errors import shown
from fork.export import Formatted
from fork.fetch import Say
from fork.git import Repository
from fork.paths import Layout
from fork.rebase_state import Rebase
from fork.transplant import Outcome, content_digest


def finish(
    layout: Layout,
    settings: Config,
    repository: Repository,
    work: Rebase,
    offline: bool,
    say: Say,
) -> None:
    """Prove the new series, write it with its lock, and leave it as a build tree."""
    new = releases.target(layout, settings, work.target)
    folder = layout.series_dir(work.target)
    tree = layout.tree(work.target)
    apply.refuse_work(tree, work.target)
    repository.run("reset", "--quiet", "--hard", work.tip)
    formatted = export.format_commits(repository, work.base)
    export.refuse_foreign_changes(
        folder, work.replaces, formatted.series, "the rebase began"
    )
    export.prove(layout, new, formatted, offline, say)
    old = _originals(repository, work)
    export.write(folder, formatted.series, _before(folder))
    new = dataclasses.replace(
        new,
        lock=Lock(work.base, formatted.series.digest, repository.tree_id("HEAD")),
        rebased=Rebased(work.source, old),
    )
    config.write_upstream(layout.config, new)
    _become_build_tree(layout, repository, work, formatted, say)
    say(_summary(work))


def _before(folder: Path) -> dict[str, bytes]:
    return export.read_files(folder) if folder.is_dir() else {}


def _originals(repository: Repository, work: Rebase) -> dict[str, str]:
    """Digest the patches that were taken over or dropped."""
    return {
        item.name: content_digest(repository.patch(item.commit))
        for item in work.items
        if not item.own
    }


def _become_build_tree(
    layout: Layout,
    repository: Repository,
    work: Rebase,
    formatted: Formatted,
    say: Say,
) -> None:
    tree = layout.tree(work.target)
    repository.run("update-ref", "HEAD", formatted.tip)
    state.save(repository, state.State.of(work.base, formatted.tip, formatted.series))
    if tree.exists():
        apply.replace(tree, work.target, say)
    os.rename(repository.path, tree)
    rebase_state.forget(Repository(tree))
    say(f"{shown(tree)} is vLLM {work.target} with the series that came out.")


def _summary(work: Rebase) -> str:
    outcomes = [str(item.outcome) for item in work.items]
    counted = ", ".join(
        f"{outcomes.count(one.value)} {one.value}"
        for one in Outcome
        if one.value in outcomes
    )
    return f"vLLM {work.source} to {work.target}: {counted or 'no patches'}."


def check_result(layout: Layout, work: Rebase, offline: bool, say: Say) -> None:
    """Verify what was written, and say what is left for a person."""
    version = work.target
    upstream = config.load(layout.config).upstream(version)
    verify.verify(layout, upstream, offline=offline, kernels=False, say=lambda _: None)
    say(f"{shown(layout.series_dir(version))} and its lock are written and verified.")
    current = series.read(layout.series_dir(work.source))
    if current.digest != work.series:
        say(
            f"{shown(layout.series_dir(work.source))} changed meanwhile: run "
            f"`scripts/rebase --to {version}` again, it keeps what was resolved."
        )
    kernels = triton_kernels.scan(layout.tree(version))
    lock = layout.kernel_lock(version)
    known = lock if lock.exists() else layout.kernel_lock(work.source)
    if kernels and known.exists():
        table = kernel_lock.ours(layout)
        drifts = kernel_lock.drift(kernel_lock.read(known), kernels, table.ops)
        for drift in drifts:
            say(str(drift))
        if drifts or known != lock:
            say(
                f"{len(drifts)} kernels are not as {shown(known)} has them: look at "
                f"our ops, then run `scripts/verify --upstream {version} --update`."
            )
