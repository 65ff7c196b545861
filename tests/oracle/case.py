# SPDX-License-Identifier: Apache-2.0
"""One launch, built twice from the same recipe: for upstream's kernel and for ours."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from oracle.upstream import full_name, kernel_of
from vllm_kunlun.launch import KunlunKernels
from vllm_kunlun.ops import find_op, flagged_overloads

GUARD = 64
"""Elements of sentinel on both sides of every tensor."""

SENTINELS: dict[torch.dtype, float] = {
    torch.bool: 0,
    torch.int32: -77_777,
    torch.int64: -7_777_777_777,
    torch.uint64: 0,
    torch.float16: -7.75,
    torch.bfloat16: -7.75,
    torch.float32: -7777.75,
    torch.float64: -7777.75,
}


class Arena:
    """Makes a launch's tensors inside guarded buffers, and remembers the buffers."""

    def __init__(self) -> None:
        self.buffers: dict[str, torch.Tensor] = {}

    def tensor(
        self, name: str, values: Any, dtype: torch.dtype = torch.int32
    ) -> torch.Tensor:
        """Return `values` as a tensor with a guard around it."""
        values = torch.as_tensor(values, dtype=dtype)
        inner = self.blank(name, tuple(values.shape), dtype)
        return inner.copy_(values)

    def blank(
        self, name: str, shape: Sequence[int], dtype: torch.dtype = torch.int32
    ) -> torch.Tensor:
        """Return a tensor that holds nothing but sentinels."""
        numel = torch.Size(shape).numel()
        buffer = torch.full((numel + 2 * GUARD,), SENTINELS[dtype], dtype=dtype)
        assert name not in self.buffers
        self.buffers[name] = buffer
        return buffer[GUARD : GUARD + numel].view(tuple(shape))

    def addresses(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the table of addresses that stands for `tensors`."""
        return torch.tensor([t.data_ptr() for t in tensors], dtype=torch.uint64)


@dataclass(frozen=True)
class Case:
    """A launch and all the memory it may touch."""

    module: str
    kernel: str
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    arena: Arena = field(repr=False)

    def replace(self, argument: str, value: Any) -> "Case":
        """Return the same launch with another value for one argument."""
        return replace(self, arguments={**self.arguments, argument: value})

    def run_upstream(self) -> None:
        """Launch upstream's kernel in the interpreter."""
        if 0 not in self.grid:  # the interpreter does not take an empty grid
            kernel_of(self.module, self.kernel)[self.grid](**self.arguments)

    def run_ours(self) -> None:
        """Launch ours as the patched vLLM does."""
        launch = KunlunKernels().bind(
            full_name(self.module), self.kernel, tuple(self.arguments)
        )
        assert launch is not None, f"no op for {self.kernel}"
        launch(self.grid, self.arguments)


Close = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Which elements of (upstream's, ours) are close enough."""


def run_both(make: Callable[[], Case]) -> tuple[Case, Case]:
    """Launch a case on both sides; return upstream's and ours."""
    theirs, ours = make(), make()
    theirs.run_upstream()
    ours.run_ours()
    return theirs, ours


def assert_same(
    theirs: Case, ours: Case, close: Mapping[str, Close] | None = None
) -> None:
    """Compare all memory of both sides, guards included.

    Buffers are equal to the bit, but for those that `close` names.
    """
    for name, expected in theirs.arena.buffers.items():
        found = ours.arena.buffers[name]
        same = (close or {}).get(name, same_bits)(expected, found)
        if not bool(same.all()):
            i = int((~same).nonzero()[0])
            raise AssertionError(
                f"{ours.kernel}: {name}[{i - GUARD}] is {found[i].item()}, "
                f"upstream's is {expected[i].item()}"
            )


def compare(make: Callable[[], Case]) -> None:
    """Launch a case on both sides and compare all of their memory to the bit."""
    assert_same(*run_both(make))


def opcheck(case: Case) -> None:
    """Check that the op of a launch keeps PyTorch's rules for custom ops."""
    op = find_op(full_name(case.module), case.kernel)
    assert op is not None, f"no op for {case.kernel}"
    for flag, overload in flagged_overloads(op).items():
        if case.arguments[flag]:
            op = overload
    grid = dict(zip(("grid_x", "grid_y"), case.grid, strict=False))
    arguments = {**case.arguments, **grid}
    names = [argument.name for argument in op._schema.arguments]
    torch.library.opcheck(op, tuple(arguments[name] for name in names))


def same_bits(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Where a NaN equals only the same NaN, and -0.0 is not 0.0."""
    size = expected.element_size()
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return expected.view(bits) == found.view(bits)


def same_bits_or_nan(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """To the bit, except that the sign and payload of a NaN mean nothing."""
    return same_bits(expected, found) | (expected.isnan() & found.isnan())
