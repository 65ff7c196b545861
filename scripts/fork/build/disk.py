# SPDX-License-Identifier: Apache-2.0
"""How much disk a build takes, where, and whether it is free."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fork.errors import ForkError
from fork.paths import cache_dir, user_cache_dir

_GIGABYTE = 1_000_000_000
# Measured with torch's CUDA build, from empty caches, the whole suite included: 6.2
# (and 0.7 for archives that are being unpacked), 0.95 and 0.78.
_ENVIRONMENT_SIZE = 7 * _GIGABYTE
_BUILD_SIZE = _GIGABYTE
_CACHE_SIZE = _GIGABYTE
# What pip keeps of 3.0 GB of archives, for the next environment.
_COPIES_SIZE = 3 * _GIGABYTE


def check_disk(env: Path, build: Path) -> str:
    """Refuse where what is still to be written would not fit."""
    needs = _needs(_wanted(env, build))
    for place, size in needs:
        free = shutil.disk_usage(place).free
        if free < size:
            raise ForkError(
                f"{place} has {free / _GIGABYTE:.1f} GB free, but "
                f"{size / _GIGABYTE:.1f} GB are needed: free some space, or choose "
                "other places with --env and VLLM_KUNLUN_CACHE."
            )
    total = sum(size for _, size in needs)
    found = f"{total / _GIGABYTE:.1f} GB of disk needed, and free"
    if not pip_may_keep_copies(env, build):
        found += "; pip keeps no copies of what it downloads, which take 3 GB more"
    return found


def pip_may_keep_copies(env: Path, build: Path) -> bool:
    """Return whether pip's cache of downloads fits beside what is to be written."""
    own = os.environ.get("PIP_CACHE_DIR")
    copies = Path(own).expanduser() if own else user_cache_dir() / "pip"
    needs = _needs([*_wanted(env, build), (copies, _COPIES_SIZE)])
    return all(shutil.disk_usage(place).free >= size for place, size in needs)


def _wanted(env: Path, build: Path) -> list[tuple[Path, int]]:
    has_torch = any(env.glob("lib/python3.*/site-packages/torch/version.py"))
    return [
        (env, 0 if has_torch else _ENVIRONMENT_SIZE),
        (build, _BUILD_SIZE),
        (cache_dir(), _CACHE_SIZE),
    ]


def _needs(wanted: list[tuple[Path, int]]) -> list[tuple[Path, int]]:
    """Return a place on each device, and what is needed there."""
    needs: dict[int, tuple[Path, int]] = {}
    for path, size in wanted:
        place = _existing(path.absolute())
        device = place.stat().st_dev
        first, total = needs.get(device, (place, 0))
        needs[device] = (first, total + size)
    return list(needs.values())


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
