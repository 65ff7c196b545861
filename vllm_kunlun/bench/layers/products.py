# SPDX-License-Identifier: Apache-2.0
"""A model's matrix products, upstream's and ours in turns, layer after layer.

Each call reads another layer's weight, as in a step, so that caches help neither.
"""

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from vllm_kunlun.step.layers import Change

ROWS = (1, 8, 32, 208)
"""One request, its drafts, a batch, a batch with drafts."""
LEAST = 3


@dataclass(frozen=True)
class Product:
    """Rows times the weights of one size; times of a call in microseconds, medians."""

    columns: int
    depth: int
    rows: int
    upstream: float
    ours: float

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.upstream / self.ours


def measure(changes: list["Change"], seconds: float) -> list[Product]:
    """Measure each size of weight with each number of rows, so long each.

    Args:
        changes: of a model, of which those of products count.
        seconds: for a size and a number of rows, of which three products at least are
            made in each form.
    """
    sizes: dict[tuple[int, int], list[Change]] = defaultdict(list)
    for change in changes:
        if change.attribute == "cpu_linear":
            sizes[change.ours.size_of(change.layer.weight)].append(change)
    return [
        _measured(same, *size, rows, seconds)
        for size, same in sizes.items()
        for rows in ROWS
    ]


def _measured(
    changes: list["Change"], columns: int, depth: int, rows: int, seconds: float
) -> Product:
    x = torch.randn(rows, depth).to(changes[0].layer.weight.dtype)
    times: tuple[list[float], list[float]] = ([], [])
    limit = time.perf_counter() + seconds
    while time.perf_counter() < limit or len(times[0]) < LEAST:
        for change in changes:
            weight = change.layer.weight
            for linear, took in zip((change.upstream, change.ours), times, strict=True):
                started = time.perf_counter()
                linear(x, weight, None)
                took.append((time.perf_counter() - started) * 1e6)
    return Product(columns, depth, rows, *map(statistics.median, times))
