# SPDX-License-Identifier: Apache-2.0
"""Binding a launch to an op by argument names."""

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_kunlun.launch import KunlunKernels, make_launcher


class FakeOp:
    """An op that notes its arguments, with a schema of the given names."""

    def __init__(self, *names: str) -> None:
        self._schema = SimpleNamespace(
            arguments=[SimpleNamespace(name=n) for n in names]
        )
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any) -> None:
        self.calls.append(arguments)


def test_arguments_go_by_name_and_the_rest_is_ignored() -> None:
    """The schema's order counts, not the launch's."""
    op = FakeOp("b", "a")
    make_launcher(op, ("a", "b", "BLOCK_SIZE"))((1,), {"a": 1, "b": 2, "BLOCK_SIZE": 3})
    assert op.calls == [(2, 1)]


@pytest.mark.parametrize(("grid", "expected"), [((5,), (5, 1)), ((5, 7), (5, 7))])
def test_the_grid_is_an_argument_where_asked_for(
    grid: tuple[int, ...], expected: tuple[int, int]
) -> None:
    """Some kernels know the number of requests only from their grid."""
    op = FakeOp("grid_x", "grid_y")
    make_launcher(op, ("a",))(grid, {"a": 1})
    assert op.calls == [expected]


def test_an_op_that_wants_more_than_the_kernel_has() -> None:
    """A pair of different builds is found at the first launch."""
    with pytest.raises(RuntimeError, match="takes c, which the kernel does not have"):
        make_launcher(FakeOp("a", "c"), ("a", "b"))


def test_a_kernel_without_op_is_not_bound() -> None:
    """The seam then names it."""
    assert KunlunKernels().bind("vllm.v1.worker.gpu.x", "_no_such_kernel", ()) is None
