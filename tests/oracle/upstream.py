# SPDX-License-Identifier: Apache-2.0
"""Pristine upstream, imported with its Triton kernels alive on a CPU machine."""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

TREE_VARIABLE = "VLLM_KUNLUN_UPSTREAM_TREE"
PACKAGE = "vllm.v1.worker.gpu."


class _CpuDriver:
    """The one active driver that upstream asks for before it uses Triton."""

    @classmethod
    def is_active(cls) -> bool:
        return True


def prepare() -> None:
    """Make ``import vllm`` mean the unpacked upstream, with interpreted kernels.

    Raises:
        RuntimeError: the tree is not named, or another vllm was imported before.
    """
    tree = os.environ.get(TREE_VARIABLE, "")
    if not (Path(tree) / "vllm" / "v1" / "worker" / "gpu").is_dir():
        raise RuntimeError(
            f"{TREE_VARIABLE} must name an unpacked vLLM source tree, whose kernels "
            f"are the oracle, but is {tree!r}."
        )
    if "vllm" in sys.modules:
        raise RuntimeError(
            "vllm is imported already, but the oracle needs upstream's own: run "
            "tests/kernels in a pytest process of its own."
        )
    os.environ["TRITON_INTERPRET"] = "1"
    sys.path.insert(0, tree)
    _add_cpu_backend()
    _complete_libdevice()


def _add_cpu_backend() -> None:
    from triton.backends import Backend, backends

    backends["cpu"] = Backend(compiler=None, driver=_CpuDriver)


def _complete_libdevice() -> None:
    """Fill in what the interpreter has only as stubs of libdevice."""
    import numpy as np
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.runtime.interpreter import TensorHandle

    def like(x: Any, values: Any, dtype: Any) -> Any:
        kind = tl.block_type(dtype, list(x.shape)) if x.type.is_block() else dtype
        return tl.tensor(TensorHandle(values, dtype), kind)

    libdevice.log1p = lambda x: like(x, np.log1p(x.handle.data), x.dtype)
    libdevice.isnan = lambda x: like(
        x, np.isnan(x.handle.data).astype(np.int32), tl.int32
    )


def kernel_of(module: str, name: str) -> Any:
    """Return upstream's interpreted kernel `name` of a module (see `full_name`)."""
    return getattr(importlib.import_module(full_name(module)), name)


def full_name(module: str) -> str:
    """Return a module's full name: it may be given below PACKAGE."""
    return module if module.startswith("vllm.") else PACKAGE + module
