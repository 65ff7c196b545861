# SPDX-License-Identifier: Apache-2.0
"""Logits as a sampler meets them, and worse."""

import math

import torch

from oracle.case import Arena


def make_logits(
    arena: Arena,
    shape: tuple[int, int],
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
    masked: float = 0.1,
    spare: int = 3,
) -> torch.Tensor:
    """Return rows of logits, in eighths so that there are ties.

    The fraction `masked` of them is -inf; there are zeros of both signs. The rows are
    part of a buffer that is wider by `spare` columns, which nobody may touch.
    """
    rows, vocab = shape
    values = (torch.randn(shape, generator=generator) * 32).round() / 8
    values[torch.rand(shape, generator=generator) < masked] = -math.inf
    wide = arena.blank("logits", (rows, vocab + spare), dtype)
    wide[:, :vocab] = values
    return wide[:, :vocab]


def make_rows(count: int, limit: int, generator: torch.Generator) -> torch.Tensor:
    """Return the requests that rows of logits belong to; several may share one."""
    return torch.randint(limit, (count,), generator=generator)
