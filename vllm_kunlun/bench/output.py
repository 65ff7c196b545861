# SPDX-License-Identifier: Apache-2.0
"""What all benchmarks do to report their findings."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch


def environment() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def number(value: float | None) -> str:
    """Return three digits of a number, or a dash."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def markdown(
    headings: Sequence[str], lines: Iterable[Sequence[str]], rest: str = "---:"
) -> Iterable[str]:
    """Yield the lines of a table; `rest` aligns all columns but the first."""
    yield "| " + " | ".join(headings) + " |"
    yield "|".join(["", "---", *[rest] * (len(headings) - 1), ""])
    for line in lines:
        yield "| " + " | ".join(line) + " |"


def check_targets(*paths: Path | None) -> None:
    """Find out before the work whether reports can be written; None is no report.

    Raises:
        ValueError: one cannot.
    """
    for path in paths:
        if path is not None:
            _check_target(path)


def _check_target(path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path} is in no existing folder: make the folder first.")
    if not os.access(path.absolute().parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: its folder is read-only.")
