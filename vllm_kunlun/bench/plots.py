# SPDX-License-Identifier: Apache-2.0
"""Plots, where matplotlib is installed."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vllm_kunlun.files import write_whole

FORMATS = ("pdf", "png", "svg")


def check_plot(path: Path) -> None:
    """Find out before the work whether a plot can be drawn.

    Raises:
        ImportError: there is no matplotlib.
        ValueError: the file is of no kind that can be written.
    """
    if path.suffix.removeprefix(".") not in FORMATS:
        raise ValueError(
            f"--plot must end in {', '.join('.' + f for f in FORMATS)}, but is {path}."
        )
    if find_spec("matplotlib") is None:
        raise ImportError(
            "--plot needs matplotlib, which is not installed: run pip install "
            "'vllm-kunlun[bench]', or leave --plot out."
        )


def axes(number: int) -> tuple[Any, Sequence[Any]]:
    """Return a figure with so many panes side by side."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * number, 4.5), layout="constrained")
    panes = figure.subplots(1, number, squeeze=False)[0]
    for pane in panes:
        # As many as there are lines.
        pane.set_prop_cycle(color=colormaps["tab20"](range(20)))
    return figure, panes


def save(figure: Any, path: Path) -> None:
    """Write a figure in one piece."""
    kind = path.suffix.removeprefix(".")
    write_whole(path, lambda scratch: figure.savefig(scratch, format=kind, dpi=150))
