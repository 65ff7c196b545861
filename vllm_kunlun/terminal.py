# SPDX-License-Identifier: Apache-2.0
"""What the commands show: how far they are, and tables."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


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
