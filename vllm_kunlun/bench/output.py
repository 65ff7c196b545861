# SPDX-License-Identifier: Apache-2.0
"""What all benchmarks do to report their findings."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


def environment() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def make_table(
    headings: Sequence[str], lines: Iterable[Sequence[str]], title: str | None = None
) -> Table:
    """Return a table as wide as its cells: half a figure is none.

    Print it with `soft_wrap`, so that it is not cut off.
    """
    table = Table(title=title, title_justify="left")
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left")
    for line in lines:
        table.add_row(*line)
    console = Console()
    wide = console.options.update(width=sys.maxsize)
    table.width = Measurement.get(console, wide, table).maximum
    return table


def number(value: float | None) -> str:
    """Return three digits of a number, or a dash."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yield what tells the user how far the work is.

    On a terminal it is one line that changes, in a log a line each time.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
            yield status.update
    else:
        yield partial(print, file=sys.stderr, flush=True)


def markdown(
    headings: Sequence[str], lines: Iterable[Sequence[str]], rest: str = "---:"
) -> Iterable[str]:
    """Yield the lines of a table; `rest` aligns all columns but the first."""
    yield "| " + " | ".join(headings) + " |"
    yield "|".join(["", "---", *[rest] * (len(headings) - 1), ""])
    for line in lines:
        yield "| " + " | ".join(line) + " |"


def check_target(path: Path) -> None:
    """Find out before the work whether a report can be written.

    Raises:
        ValueError: it cannot.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path} is in no existing folder: make the folder first.")
    if not os.access(path.absolute().parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: its folder is read-only.")
