# SPDX-License-Identifier: Apache-2.0
"""Proves that the series on disk is exactly what it comes out as."""

from __future__ import annotations

import difflib

from fork import apply, config, fetch, kernel_lock, message, series, triton_kernels
from fork.config import Lock, Upstream
from fork.errors import ForkError, ForkErrors, shown, tool
from fork.export import format_commits
from fork.fetch import Say
from fork.files import exclusive, scratch
from fork.git import Repository
from fork.message import PATCH_FILE
from fork.paths import Layout
from fork.series import Series


class NotAFixpoint(ForkError):
    """The series would be written differently; `fix` is the difference as a diff."""

    def __init__(self, sentence: str, fix: str) -> None:
        super().__init__(sentence)
        self.fix = fix


def verify(
    layout: Layout,
    upstream: Upstream,
    *,
    offline: bool = False,
    update: bool = False,
    kernels: bool = True,
    say: Say = print,
) -> Lock:
    """Apply strictly, export again, compare every byte, then compare the lock.

    Without `kernels`, the lock of upstream's kernels is left to a later run.
    """
    version = upstream.version
    folder = layout.series_dir(version)
    patches = series.read(folder)
    _lint(patches)
    archive = fetch.fetch(upstream.sdist, offline=offline, say=say)
    with exclusive(layout.build), scratch(layout.build, "verify") as temporary:
        applied = apply.build(temporary, archive, upstream, patches, say)
        again = format_commits(Repository(temporary), applied.base)
        found = triton_kernels.scan(temporary)
    if again.series.files != patches.files:
        place = shown(folder)
        raise NotAFixpoint(
            f"{place} would be exported differently: apply the difference below, or "
            "edit in the build tree and run scripts/export.",
            _difference(patches, again.series, place),
        )
    lock = Lock(applied.base, patches.digest, applied.tree)
    if update:
        if config.write_lock(layout.config, version, lock):
            say(f"{shown(layout.config)}: the lock of {version} was updated.")
    else:
        _compare(upstream, lock)
    if kernels:
        _verify_kernels(layout, version, found, update=update, say=say)
    say(f"vLLM {version}: {len(patches.names)} patches, tree {applied.tree}, verified.")
    return lock


def _verify_kernels(
    layout: Layout,
    version: str,
    kernels: list[triton_kernels.Kernel],
    *,
    update: bool,
    say: Say,
) -> None:
    """Compare the tree's Triton kernels with those that were last looked at."""
    path = layout.kernel_lock(version)
    if not kernels and not path.exists():
        return
    table = kernel_lock.ours(layout)
    kernel_lock.check_complete(kernels, table)
    if update:
        if kernel_lock.write(path, kernels, table):
            say(f"{shown(path)}: written anew; review what changed in it.")
        return
    drifts = kernel_lock.drift(kernel_lock.read(path), kernels, table.ops)
    if drifts:
        raise ForkErrors([f"{shown(path)}: {drift}." for drift in drifts])


def _lint(patches: Series) -> None:
    """Check the messages as the files have them, before git has cut anything off."""
    findings = []
    for name, content in patches.patches.items():
        parsed = message.of_patch(content)
        findings += message.lint(parsed, name)
        if (own := parsed.trailer(PATCH_FILE)) != name:
            findings.append(
                f"{name}: the trailer `{PATCH_FILE}:` says {own or 'nothing'}; it must "
                "be the file's name."
            )
    if findings:
        raise ForkErrors(findings)


def _difference(found: Series, expected: Series, folder: str) -> str:
    lines: list[str] = []
    for name in sorted(found.files.keys() | expected.files.keys()):
        old, new = (
            side.files.get(name, b"").decode("utf-8", "replace").splitlines(True)
            for side in (found, expected)
        )
        lines += difflib.unified_diff(
            old, new, f"a/{folder}/{name}", f"b/{folder}/{name}"
        )
    return "".join(lines)


def _compare(upstream: Upstream, lock: Lock) -> None:
    findings = [
        f"upstream.toml locks the {what} {locked or '(nothing)'} for "
        f"{upstream.version}, but it is {found}: take the change back, or accept it "
        f"with {tool('verify', upstream.version)} --update."
        for what, locked, found in (
            ("base commit", upstream.lock.base, lock.base),
            ("series digest", upstream.lock.series, lock.series),
            ("tree", upstream.lock.tree, lock.tree),
        )
        if locked != found
    ]
    if findings:
        raise ForkErrors(findings)
