# SPDX-License-Identifier: Apache-2.0
"""What is measured: a launch of ours and the torch code that does the same work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vllm_kunlun.kernels import PACKAGE, op_name


@dataclass(frozen=True)
class Size:
    """How large a step is."""

    requests: int
    vocabulary: int | None = None
    """None where a kernel does not pass over logits."""


@dataclass(frozen=True)
class Cell:
    """One launch of one size, with the memory that both sides work in."""

    grid: tuple[int, ...]
    arguments: dict[str, Any]
    baseline: Callable[[], object]
    writes: Sequence[torch.Tensor]
    """What both sides must leave alike."""
    restored: Sequence[torch.Tensor] = ()
    """What a call changes so that the next one would not be the same again."""
    finish: Callable[[], object] | None = None
    """What upstream does after the launch that the baseline does as a part of it."""
    tolerance: float = 0
    """How far floats may be apart, absolutely or relatively."""
    reads: Sequence[torch.Tensor] = ()
    """Large memory that ours reads."""
    changes: Sequence[torch.Tensor] = ()
    """Large memory that ours reads and writes."""


@dataclass(frozen=True)
class Case:
    """A kernel, or one way of using it."""

    module: str
    kernel: str
    variant: str
    baseline: str
    """What the torch code is, in a line."""
    matrices: int
    """How many [requests, vocabulary] matrices of f32 a cell needs at its peak, both
    sides and the check included; 0 where a kernel does not pass over logits."""
    build: Callable[[Size], Cell]

    @property
    def op(self) -> str:
        """The op that does the kernel's work."""
        name = op_name(self.module, self.kernel)
        assert name is not None
        return name

    @property
    def name(self) -> str:
        """The op, and how it is used if there are several ways."""
        return f"{self.op} ({self.variant})" if self.variant else self.op

    def memory(self, size: Size) -> int:
        """Return about how many bytes a cell needs."""
        return self.matrices * size.requests * (size.vocabulary or 0) * 4


CASES: list[Case] = []


def case(
    module: str, kernel: str, baseline: str, *, variant: str = "", matrices: int = 0
) -> Callable[[Callable[[Size], Cell]], Callable[[Size], Cell]]:
    """Enter a function that builds cells as a case."""

    def enter(build: Callable[[Size], Cell]) -> Callable[[Size], Cell]:
        full = PACKAGE + module
        CASES.append(Case(full, kernel, variant, baseline, matrices, build))
        return build

    return enter
