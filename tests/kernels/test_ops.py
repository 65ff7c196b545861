# SPDX-License-Identifier: Apache-2.0
"""The table of kernels, and the library that has them."""

from pathlib import Path

import pytest
from oracle import kernel_of

from vllm_kunlun import ops
from vllm_kunlun.kernels import KERNELS


@pytest.mark.parametrize(("module", "kernel"), KERNELS)
def test_op_takes_what_the_kernel_has(module: str, kernel: str) -> None:
    """Each argument of an op is a parameter of upstream's kernel, or the grid."""
    op = ops.find_op(module, kernel)
    assert op is not None
    flags = ops.flagged_overloads(op)
    parameters = {*kernel_of(module, kernel).arg_names, "grid_x", "grid_y"}
    assert set(flags) <= parameters
    for overload in (op, *flags.values()):
        assert {a.name for a in overload._schema.arguments} <= parameters


def test_unknown_kernel() -> None:
    """A kernel that nobody wrote has no op."""
    assert ops.find_op("vllm.v1.worker.gpu.input_batch", "_of_tomorrow_kernel") is None


def test_older_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that lacks an op of the table is named as too old."""
    monkeypatch.setattr(ops, "op_name", lambda *_: "op_of_tomorrow")
    with pytest.raises(
        ImportError, match=r"has no op op_of_tomorrow, .*build it again"
    ):
        ops.find_op("vllm.v1.worker.gpu.input_batch", "_of_tomorrow_kernel")


def test_missing_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package without its library says where that should be."""
    monkeypatch.setattr(ops, "LIBRARY", tmp_path / "none.so")
    with pytest.raises(ImportError, match=r"none\.so is missing, .*dist/\.$"):
        ops.load.__wrapped__()


def test_foreign_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A library that does not load says why, and what to do."""
    library = tmp_path / "foreign.so"
    library.write_bytes(b"no ELF at all, but long enough to have a header" * 9)
    monkeypatch.setattr(ops, "LIBRARY", library)
    with pytest.raises(ImportError, match=r"does not load with torch .*build it again"):
        ops.load.__wrapped__()
