# SPDX-License-Identifier: Apache-2.0
"""The compiled ops, ``torch.ops.vllm_kunlun``."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

from vllm_kunlun.kernels import op_name

LIBRARY = Path(__file__).with_name("lib") / "libvllm_kunlun_host.so"
# In a wheel for Kunlun the ops launch what is in there.
XPU_LIBRARY = LIBRARY.with_name("libvllm_kunlun_xpu.so")


@cache
def load() -> None:
    """Load the library that defines the ops; once is enough.

    Raises:
        ImportError: the library is not there, was built for another torch, or lacks
            the XPU's runtime.
    """
    if not LIBRARY.is_file():
        raise ImportError(
            f"{LIBRARY} is missing, so vllm-kunlun has no kernels: run Python outside "
            "of the source folder, or install the wheel that "
            "scripts/apply_and_build.sh leaves in dist/."
        )
    _load_xpu_library()
    try:
        torch.ops.load_library(LIBRARY)
    except OSError as error:
        raise ImportError(
            f"{LIBRARY} does not load with torch {torch.__version__} ({error}): it was "
            "built from other sources or for another torch, so build it again with "
            "scripts/apply_and_build.sh."
        ) from error


def _load_xpu_library() -> None:
    """Load the XPU's kernels, if they are here, before what is linked to them."""
    if not XPU_LIBRARY.is_file():
        return
    try:
        torch.ops.load_library(XPU_LIBRARY)
    except OSError as error:
        raise ImportError(
            f"{XPU_LIBRARY} does not load ({error}): put XRE's libraries on "
            "LD_LIBRARY_PATH, or build vllm-kunlun again on this machine."
        ) from error


def find_op(module: str, kernel: str) -> Any | None:
    """Return the op that does the work of upstream's `kernel` in `module`, if any.

    Raises:
        ImportError: the library cannot be loaded, or is older than the table of ops.
    """
    name = op_name(module, kernel)
    if name is None:
        return None
    load()
    try:
        return getattr(torch.ops.vllm_kunlun, name).default
    except AttributeError:
        raise ImportError(
            f"{LIBRARY} has no op {name}, which vllm_kunlun/kernels.py names: it was "
            "built from older sources, so build it again with "
            "scripts/apply_and_build.sh."
        ) from None


def flagged_overloads(op: Any) -> dict[str, Any]:
    """Return the overloads of `op` by the constexpr flag that selects each.

    A kernel whose parameters change their type with a flag has an overload for it,
    named as the flag is.
    """
    packet = op.overloadpacket
    flags = [flag for flag in packet.overloads() if flag != "default"]
    return {flag: getattr(packet, flag) for flag in flags}
