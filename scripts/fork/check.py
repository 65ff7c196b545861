# SPDX-License-Identifier: Apache-2.0
"""Says what other releases of upstream would do to the series, touching nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fork import (
    apply,
    interfaces,
    kernel_lock,
    releases,
    series,
    triton_kernels,
    upstreams,
)
from fork.config import Config
from fork.errors import ForkError
from fork.fetch import Say
from fork.git import Repository
from fork.interfaces import Name
from fork.kernel_lock import Drift
from fork.paths import Layout
from fork.releases import Release
from fork.symbols import Sources
from fork.transplant import Outcome, classify, need_git, transplant
from fork.upstreams import Tips

_PACKAGE = "vllm"


@dataclass(frozen=True)
class Patch:
    """What became of one patch; per file in conflict the number of hunks, 0 if all."""

    name: str
    outcome: Outcome
    conflicts: Mapping[str, int]


@dataclass(frozen=True)
class Result:
    """What one release does to us."""

    release: Release
    patches: Sequence[Patch]
    kernels: Sequence[Drift]
    kernel_count: int
    names: Sequence[interfaces.Change]
    seconds: float

    @property
    def needs_work(self) -> bool:
        """Whether a person has to decide anything."""
        by_hand = (Outcome.CONFLICT, Outcome.UPSTREAM)
        patches = any(patch.outcome in by_hand for patch in self.patches)
        return patches or bool(self.kernels or self.names)

    def count(self, outcome: Outcome) -> int:
        """How many patches came out so."""
        return sum(patch.outcome is outcome for patch in self.patches)


@dataclass(frozen=True)
class Report:
    """The whole answer."""

    source: str
    digest: str
    results: Sequence[Result]
    seconds: float


def check(
    layout: Layout,
    settings: Config,
    versions: Sequence[str] = (),
    *,
    source: str | None = None,
    offline: bool = False,
    say: Say = print,
) -> Report:
    """Carry the series over to each version, and compare what else we build on."""
    begun = time.monotonic()
    old = settings.upstream(source)
    known = releases.known(layout, settings)
    wanted = [releases.find(layout, settings, version) for version in versions]
    wanted = wanted or [r for v, r in known.items() if v != old.version]
    patches = series.read(layout.series_dir(old.version))
    apply.check_locked(layout, old, patches)
    tips = upstreams.applied(old, patches, offline=offline, say=say)
    bases = [upstreams.base(r.sdist, offline=offline, say=say) for r in wanted]
    results: list[Result] = []
    with upstreams.workshop() as repository:
        need_git(repository)
        look = _Look(layout, repository, old.version, tips, patches.names)
        for number, (release, base) in enumerate(zip(wanted, bases, strict=True), 1):
            say(f"[{number}/{len(wanted)}] vLLM {release.version}")
            try:
                results.append(look.at(release, base))
            except SyntaxError as error:
                raise ForkError(
                    f"vLLM {release.version} has Python that {sys.executable} cannot "
                    f"read ({error.msg}): run with a newer Python (PYTHON=...)."
                ) from None
    return Report(old.version, patches.digest, results, time.monotonic() - begun)


class _Look:
    """Looks at one release after another with what it knows of the old one."""

    def __init__(
        self,
        layout: Layout,
        repository: Repository,
        version: str,
        tips: Tips,
        names: Sequence[str],
    ) -> None:
        self._repository = repository
        commits = repository.commits(tips.base, tips.tip)
        self._patches = [
            (name, commit, repository.patch(commit))
            for name, commit in zip(names, commits, strict=True)
        ]
        self._table = kernel_lock.ours(layout)
        lock = layout.kernel_lock(version)
        self._lock = kernel_lock.read(lock) if lock.exists() else {}
        self._old = Sources(_texts(repository, tips.base))
        self._used = _used_names(layout, repository, tips, self._old)

    def at(self, release: Release, base: str) -> Result:
        """Look at one release."""
        begun = time.monotonic()
        tree = self._repository.tree_id(base)
        patches: list[Patch] = []
        for name, commit, patch in self._patches:
            onto = tree
            result = transplant(self._repository, commit, onto)
            tree = result.tree
            outcome = Outcome.CONFLICT
            if not result.conflicts:
                outcome = Outcome.UPSTREAM
                if tree != onto:
                    again = self._patch(name, commit, onto, tree)
                    outcome = classify(patch, again)
            hunks = {path: len(found) for path, found in result.conflicts.items()}
            patches.append(Patch(name, outcome, hunks))
        files = _texts(self._repository, tree, *triton_kernels.PLACES)
        kernels = triton_kernels.scan_sources(files)
        drifts = kernel_lock.drift(self._lock, kernels, self._table.ops)
        # Upstream's own files: a conflict must not look like a change of theirs.
        new = Sources(_texts(self._repository, base))
        changes = interfaces.compare(self._used, self._old, new)
        return Result(
            release=release,
            patches=patches,
            kernels=drifts if self._lock else [],
            kernel_count=len(kernels),
            names=changes,
            seconds=time.monotonic() - begun,
        )

    def _patch(self, name: str, commit: str, onto: str, tree: str) -> bytes:
        """Write a patch as it would be exported."""
        text = self._repository.message(commit)
        parent = self._repository.recommit(commit, commit, text, onto)
        made = self._repository.recommit(commit, parent, text, tree)
        return self._repository.patch(made)


def _texts(repository: Repository, revision: str, *places: str) -> dict[str, str]:
    files = repository.files(revision, *(places or [_PACKAGE]))
    return {
        path: data.decode("utf-8", "replace")
        for path, data in files.items()
        if path.endswith(".py")
    }


def _used_names(
    layout: Layout, repository: Repository, tips: Tips, old: Sources
) -> dict[Name, list[str]]:
    """Collect the names of upstream that our package and the series use."""
    package = layout.root / "vllm_kunlun"
    ours = {
        file.relative_to(layout.root).as_posix(): file.read_text("utf-8")
        for file in sorted(package.rglob("*.py"))
    }
    used = interfaces.uses(ours, old)
    for path, before, after in _touched(repository, tips):
        known = interfaces.uses({path: before}, old)
        for name in interfaces.uses({path: after}, old).keys() - known.keys():
            used.setdefault(name, []).append(f"{path} (patched)")
    return used


def _touched(repository: Repository, tips: Tips) -> Iterator[tuple[str, str, str]]:
    """Yield the Python files that the series changes or adds, before and after."""
    listing = repository.run(
        *("diff-tree", "-r", "-z", "--name-only", "--no-renames"),
        *(tips.base, tips.tip, "--", _PACKAGE),
    )
    paths = [path for path in listing.split("\0") if path.endswith(".py")]
    if paths:
        before = repository.files(tips.base, *paths)
        after = repository.files(tips.tip, *paths)
        for path in sorted(after):
            yield path, before.get(path, b"").decode(), after[path].decode()
