# SPDX-License-Identifier: Apache-2.0
"""What is remembered of upstream's Triton kernels, and what is said of changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from fork import kernel_lock
from fork.errors import ForkError
from fork.kernel_lock import Change, Ours
from fork.paths import Layout
from fork.triton_kernels import Kernel, scan

MODULE = "vllm.v1.worker.gpu.steps"
SOURCE = '''
from vllm.triton_utils import tl, triton


@triton.jit
def helper(x):
    return x + 1


@triton.jit(do_not_specialize=["n"])
def _step_kernel(x_ptr, n, BLOCK: tl.constexpr):
    """Takes a step."""
    x = tl.load(x_ptr + n)
    tl.store(x_ptr + n, helper(x))


def step(x, n):
    _step_kernel[(n,)](x, n, BLOCK=4)
'''
SAME_BODY = SOURCE.replace('"""Takes a step."""', "# no docstring").replace(
    "x = tl.load(x_ptr + n)", "x = tl.load(\n        x_ptr + n\n    )"
)
OPS = {(MODULE, "_step_kernel"): "step"}


def tree_of(folder: Path, source: str) -> Path:
    """Write a tree whose only V2 module is `source`."""
    file = folder / "vllm/v1/worker/gpu/steps.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return folder


def kernels_of(folder: Path, source: str) -> list[Kernel]:
    """Scan such a tree."""
    return scan(tree_of(folder, source))


def test_scan(tmp_path: Path) -> None:
    """Kernels and device functions are told apart."""
    kernel, helper = kernels_of(tmp_path, SOURCE)
    assert kernel.key == (MODULE, "_step_kernel")
    assert kernel.parameters == ("x_ptr", "n", "BLOCK")
    assert kernel.constexprs == ("BLOCK",)
    assert kernel.launched
    assert helper.name == "helper"
    assert not helper.launched


def test_a_launch_over_several_lines_is_seen(tmp_path: Path) -> None:
    """As formatters write long ones."""
    source = SOURCE.replace(
        "_step_kernel[(n,)](", "_step_kernel[\n        (n,)\n    ]("
    )
    assert kernels_of(tmp_path, source)[0].launched


def test_comments_docstring_and_layout_do_not_count(tmp_path: Path) -> None:
    """Only what a kernel does counts."""
    assert kernels_of(tmp_path, SAME_BODY) == kernels_of(tmp_path, SOURCE)


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("x + 1", "x + 2", Change.BODY),
        ("def helper(x)", "def helper(x, y)", Change.SIGNATURE),
        ("BLOCK: tl.constexpr", "BLOCK", Change.SIGNATURE),
        ("_step_kernel", "_stride_kernel", Change.NEW),
    ],
)
def test_drift(tmp_path: Path, old: str, new: str, change: Change) -> None:
    """Each kind of change is named, with the op it concerns."""
    locked = {k.key: k for k in kernels_of(tmp_path, SOURCE)}
    assert kernel_lock.drift(locked, kernels_of(tmp_path, SOURCE), OPS) == []
    drifts = kernel_lock.drift(
        locked, kernels_of(tmp_path, SOURCE.replace(old, new)), OPS
    )
    assert change in {d.change for d in drifts}
    if change is Change.NEW:
        assert [str(d) for d in drifts] == [
            f"gone: _step_kernel of {MODULE} (our op step)",
            f"new: _stride_kernel of {MODULE} (no op of ours)",
        ]


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("Takes a step", "Steps", Change.MOVED),
        ("x_ptr + n)", "x_ptr - n)", Change.MOVED_AND_CHANGED),
    ],
)
def test_a_kernel_in_another_module_has_moved(
    tmp_path: Path, old: str, new: str, change: Change
) -> None:
    """It keeps its op; what is new beside it stays new."""
    locked = {k.key: k for k in kernels_of(tmp_path / "old", SOURCE)}
    file = tree_of(tmp_path / "new", SOURCE.replace("_step_kernel", "_other_kernel"))
    moved = file / "vllm/v1/worker/gpu/more/steps.py"
    moved.parent.mkdir()
    moved.write_text(SOURCE.replace(old, new).replace("def helper", "def helper2"))
    found = kernel_lock.drift(locked, scan(file), OPS)
    elsewhere = "vllm.v1.worker.gpu.more.steps"
    assert [str(drift) for drift in found] == [
        f"{change.value}: _step_kernel of {elsewhere} (our op step)",
        f"new: helper2 of {elsewhere} (no op of ours)",
        f"new: _other_kernel of {MODULE} (no op of ours)",
    ]


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    """And writing the same again changes nothing."""
    kernels = kernels_of(tmp_path, SOURCE)
    path = tmp_path / "locks" / "1.0.toml"
    table = Ours(OPS, {})
    assert kernel_lock.write(path, kernels, table)
    assert not kernel_lock.write(path, kernels, table)
    assert list(kernel_lock.read(path).values()) == kernels
    assert 'op = "step"' in path.read_text()


def test_a_launched_kernel_needs_an_op_or_a_reason(tmp_path: Path) -> None:
    """Device functions need neither."""
    kernels = kernels_of(tmp_path, SOURCE)
    kernel_lock.check_complete(kernels, Ours(OPS, {}))
    kernel_lock.check_complete(kernels, Ours({}, dict.fromkeys(OPS, "V1's alone")))
    with pytest.raises(ForkError, match=f"_step_kernel of {MODULE} has no op: add one"):
        kernel_lock.check_complete(kernels, Ours({}, {}))


def test_a_missing_lock_is_named(tmp_path: Path) -> None:
    """With the command that writes it."""
    with pytest.raises(ForkError, match=r"1\.0\.toml is missing: .* --update"):
        kernel_lock.read(tmp_path / "1.0.toml")


def test_our_table_names_only_kernels_that_exist() -> None:
    """Every entry of vllm_kunlun/kernels.py stands in the lock of a version."""
    layout = Layout()
    table = kernel_lock.ours(layout)
    locked: set[tuple[str, str]] = set()
    for lock in layout.kernel_lock("*").parent.glob("*.toml"):
        locked |= kernel_lock.read(lock).keys()
    assert {*table.ops, *table.reasons} <= locked
