# SPDX-License-Identifier: Apache-2.0
"""Whether this machine has a Kunlun device and the vendor's torch for it.

Nothing is imported and no device is opened: every process of vLLM asks, on every
machine, and a device that is opened before a process forks is lost to its children.
"""

from importlib.util import find_spec
from pathlib import Path

DEV = Path("/dev")
# Makes torch's device "cuda" a Kunlun XPU.
VENDOR_TORCH = "torch_xmlir"


def device_nodes() -> list[Path]:
    """Return the device nodes of the driver, ``/dev/xpu0`` and on."""
    return sorted(DEV.glob("xpu[0-9]*"))


def has_vendor_torch() -> bool:
    """Whether the vendor's extension of torch is installed."""
    return find_spec(VENDOR_TORCH) is not None


def is_present() -> bool:
    """Whether vLLM is to run on Kunlun here."""
    return bool(device_nodes()) and has_vendor_torch()
