# SPDX-License-Identifier: Apache-2.0
"""A second rebase to the same version: what a person has resolved stays resolved.

A patch that makes the same change as then is taken as it came out then. Of one that has
changed, the change is merged into what came out then; for that, the source as it was is
looked for in the history of the project.
"""

from __future__ import annotations

from collections.abc import Mapping

from fork import apply
from fork.config import Upstream
from fork.git import Repository
from fork.hermetic import GitError
from fork.paths import Layout
from fork.rebase_state import Item
from fork.series import SERIES_FILE, Series
from fork.transplant import Transplant, content_digest, merge, transplant


def earlier_source(
    layout: Layout,
    repository: Repository,
    base: str,
    old: Upstream,
    new: Upstream,
) -> Mapping[str, str]:
    """Apply the series that a rebase was made from, and map patches to commits.

    Nothing where it is not in the project's history, or is what it still is.
    """
    if new.rebased is None:
        return {}
    found = _in_history(layout, old.version, new.rebased.patches)
    if found is None or found.digest == old.lock.series:
        return {}
    applied = apply.apply_series(repository, base, old.version, found, lambda _: None)
    commits = repository.commits(base, applied.tip)
    return dict(zip(found.names, commits, strict=True))


def follow(repository: Repository, item: Item, onto: str) -> Transplant | None:
    """Merge a patch's own change into what came out of it before, if that can be."""
    assert item.before is not None
    assert item.was is not None
    kept = transplant(repository, item.before, onto)
    was = transplant(repository, item.was, repository.tree_id(f"{item.commit}^"))
    if kept.conflicts or was.conflicts:
        return None
    tree = repository.tree_id(item.commit)
    result = merge(repository, was.tree, kept.tree, tree)
    return None if result.conflicts else result


def _in_history(
    layout: Layout, version: str, digests: Mapping[str, str]
) -> Series | None:
    project = Repository(layout.root)
    folder = layout.series_dir(version).relative_to(layout.root).as_posix()
    try:
        revisions = project.run("rev-list", "--max-count=200", "HEAD", "--", folder)
    except GitError:
        return None  # The project is not a clone, but an archive of one.
    for revision in revisions.split():
        files = project.files(revision, folder)
        names = files.get(f"{folder}/{SERIES_FILE}", b"").decode().split()
        patches = {name: files.get(f"{folder}/{name}", b"") for name in names}
        if {n: content_digest(patch) for n, patch in patches.items()} == digests:
            return Series(patches)
    return None
