# SPDX-License-Identifier: Apache-2.0
"""Remembers every Triton kernel of an upstream version, and says what has drifted.

A new upstream may add kernels, drop them, give them other parameters or another
body. Each of these is a decision for a person: is our op still right? The lock holds
what was last decided upon.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import tomlkit

from fork.errors import ForkError, shown
from fork.files import write_atomically
from fork.paths import Layout
from fork.triton_kernels import Kernel

Key = tuple[str, str]

_HEADER = (
    "What scripts/verify compares upstream's Triton kernels with. Written by\n"
    "`scripts/verify --update`; review every change: is our op still right?"
)


class Change(str, Enum):
    """What can happen to a kernel between two upstreams."""

    NEW = "new"
    GONE = "gone"
    MOVED = "moved"
    MOVED_AND_CHANGED = "moved and changed"
    SIGNATURE = "signature changed"
    BODY = "body changed"


@dataclass(frozen=True)
class Drift:
    """One kernel that is not as the lock has it, and what of ours it concerns."""

    change: Change
    module: str
    name: str
    op: str

    def __str__(self) -> str:
        concerns = f"our op {self.op}" if self.op else "no op of ours"
        return f"{self.change.value}: {self.name} of {self.module} ({concerns})"


@dataclass(frozen=True)
class Ours:
    """What vllm_kunlun/kernels.py says of upstream's kernels.

    Attributes:
        ops: the op that does a kernel's work.
        reasons: why a launched kernel needs no op.
    """

    ops: Mapping[Key, str]
    reasons: Mapping[Key, str]


def ours(layout: Layout) -> Ours:
    """Read our table without importing the package, which wants its vLLM."""
    table = runpy.run_path(str(layout.root / "vllm_kunlun" / "kernels.py"))
    return Ours(table["KERNELS"], table["WITHOUT_OP"])


def check_complete(kernels: Iterable[Kernel], table: Ours) -> None:
    """Refuse a launched kernel that has neither an op nor a reason to have none."""
    for kernel in kernels:
        if kernel.launched and kernel.key not in {**table.ops, **table.reasons}:
            raise ForkError(
                f"Kernel {kernel.name} of {kernel.module} has no op: add one, or the "
                "reason why it needs none, to vllm_kunlun/kernels.py."
            )


def read(path: Path) -> dict[Key, Kernel]:
    """Read a lock."""
    if not path.exists():
        raise ForkError(
            f"{shown(path)} is missing: scripts/verify --update writes it anew."
        )
    rows: list[dict[str, Any]] = tomlkit.parse(path.read_text("utf-8")).unwrap()[
        "kernel"
    ]
    kernels = [
        Kernel(
            module=row["module"],
            name=row["name"],
            parameters=tuple(row["parameters"]),
            constexprs=tuple(row["constexprs"]),
            launched=row["launched"],
            body=row["body"],
        )
        for row in rows
    ]
    return {kernel.key: kernel for kernel in kernels}


def write(path: Path, kernels: Iterable[Kernel], table: Ours) -> bool:
    """Write a lock and return whether that changed anything."""
    document = tomlkit.document()
    for line in _HEADER.splitlines():
        document.add(tomlkit.comment(line))
    rows = tomlkit.aot()
    for kernel in kernels:
        row = tomlkit.table()
        row["module"] = kernel.module
        row["name"] = kernel.name
        row["launched"] = kernel.launched
        if op := table.ops.get(kernel.key):
            row["op"] = op
        if reason := table.reasons.get(kernel.key):
            row["without_op"] = reason
        row["parameters"] = list(kernel.parameters)
        row["constexprs"] = list(kernel.constexprs)
        row["body"] = kernel.body
        rows.append(row)
    document["kernel"] = rows
    new = tomlkit.dumps(document).encode()
    if path.exists() and path.read_bytes() == new:
        return False
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, new)
    return True


def drift(
    locked: Mapping[Key, Kernel], found: Iterable[Kernel], ops: Mapping[Key, str]
) -> list[Drift]:
    """Compare a tree's kernels with the lock."""
    present = {kernel.key: kernel for kernel in found}
    changes: dict[Key, Change] = {}
    ops = dict(ops)
    for key in locked.keys() | present.keys():
        if key not in present:
            changes[key] = Change.GONE
        elif key not in locked:
            changes[key] = Change.NEW
        elif _signature(locked[key]) != _signature(present[key]):
            changes[key] = Change.SIGNATURE
        elif locked[key].body != present[key].body:
            changes[key] = Change.BODY
    for key in sorted(key for key, change in changes.items() if change is Change.GONE):
        others = [k for k, change in changes.items() if change is Change.NEW]
        if place := _new_place(locked[key], [present[k] for k in sorted(others)]):
            same = locked[key].body == place.body
            del changes[key]
            changes[place.key] = Change.MOVED if same else Change.MOVED_AND_CHANGED
            ops[place.key] = ops.get(key, "")
    return [Drift(changes[key], *key, ops.get(key, "")) for key in sorted(changes)]


def _new_place(gone: Kernel, others: Iterable[Kernel]) -> Kernel | None:
    """Return the kernel of the same name in another module that is most like `gone`."""
    found = [kernel for kernel in others if kernel.name == gone.name]
    found.sort(
        key=lambda k: (k.body == gone.body, _signature(k) == _signature(gone)),
        reverse=True,
    )
    return found[0] if found else None


def _signature(kernel: Kernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return kernel.parameters, kernel.constexprs
