# SPDX-License-Identifier: Apache-2.0
"""What of a Kunlun machine is here, for ``vllm-kunlun doctor``.

What is asked of the vendor's tools was read in public sources and never tried.
"""

import os
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from vllm_kunlun.platform import detect

# What platform and worker call. The vendor's torch may be older than vLLM's.
_CUDA = (
    "current_device",
    "current_stream",
    "device_count",
    "Event",
    "get_device_name",
    "get_device_properties",
    "manual_seed_all",
    "max_memory_allocated",
    "set_device",
    "set_stream",
    "Stream",
)
_ACCELERATOR = (
    "device_count",
    "empty_cache",
    "get_memory_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device_index",
    "synchronize",
)


class Finding(NamedTuple):
    """A line of the report, and whether it is as it must be for Kunlun."""

    what: str
    text: str
    fine: bool = True


def examine() -> list[Finding]:
    """Look at the machine; a single line where it is not for Kunlun."""
    nodes, has_torch = detect.device_nodes(), detect.has_vendor_torch()
    if not nodes and not has_torch:
        return [Finding("Kunlun", "no device (/dev/xpu*) and no torch for one")]
    found = [_devices(len(nodes)), _driver(), *_toolchain(), _vendor_torch(has_torch)]
    if not nodes or not has_torch:
        return found
    from vllm.platforms import current_platform

    from vllm_kunlun.platform.kunlun import KunlunPlatform

    if not isinstance(current_platform, KunlunPlatform):
        text = f"vLLM took {type(current_platform).__name__}: unset VLLM_PLUGINS"
        return [*found, Finding("Kunlun platform", text, fine=False)]
    return [*found, *_as_torch_sees_it(), *_vendor_ops(), *_kernels()]


def _devices(nodes: int) -> Finding:
    if nodes:
        return Finding("Kunlun devices", f"{nodes} (/dev/xpu*)")
    text = "none: give the container /dev/xpu0 (and on) and /dev/xpuctrl"
    return Finding("Kunlun devices", text, fine=False)


def _driver() -> Finding:
    what = "Kunlun driver"
    if shutil.which("xpu-smi") is None:
        return Finding(what, "not known: xpu-smi is not on PATH")
    try:
        output = _output("xpu-smi")
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(what, f"not known: xpu-smi failed ({error})", fine=False)
    versions = re.search(
        r"Driver Version:\s*(\S+)\s+XPU-RT Version:\s*(\S+)", output, re.IGNORECASE
    )
    if versions is None:
        return Finding(what, "not known: xpu-smi does not say")
    return Finding(what, f"{versions[1]}, XPU-RT {versions[2]}")


def _toolchain() -> list[Finding]:
    found = []
    for name, variable in (("XTDK (compiler)", "CLANG_PATH"), ("XRE", "XRE_PATH")):
        place = os.environ.get(variable)
        # Only building needs them.
        text = place or f"${variable} is not set"
        if place and not os.path.isdir(place):
            text = f"${variable} is {place}, which is not there"
        found.append(Finding(name, text))
    return found


def _vendor_torch(installed: bool) -> Finding:
    if not installed:
        text = "not installed: vLLM cannot use the device without the vendor's torch"
        return Finding(detect.VENDOR_TORCH, text, fine=False)
    try:
        return Finding(detect.VENDOR_TORCH, version(detect.VENDOR_TORCH))
    except PackageNotFoundError:
        return Finding(detect.VENDOR_TORCH, "installed")


def _as_torch_sees_it() -> list[Finding]:
    import torch

    missing = _missing(torch.cuda, _CUDA) + _missing(torch.accelerator, _ACCELERATOR)
    if missing:
        text = f"torch {torch.__version__} lacks {', '.join(missing)}"
        return [Finding("torch's functions", text, fine=False)]
    found = [Finding("torch's functions", "all that are needed")]
    for i in range(torch.cuda.device_count()):
        size = torch.cuda.get_device_properties(i).total_memory / (1 << 30)
        found.append(
            Finding(f"cuda:{i}", f"{torch.cuda.get_device_name(i)}, {size:.1f} GiB")
        )
    return found


def _missing(module: Any, names: tuple[str, ...]) -> list[str]:
    return [f"{module.__name__}.{n}" for n in names if not hasattr(module, n)]


def _vendor_ops() -> list[Finding]:
    from vllm_kunlun.platform import vendor

    found = []
    for name, op in vendor.OPS.items():
        reason = vendor.why_not(name)
        text = f"torch ({reason})" if reason else f"{vendor.MODULE}.{name}"
        found.append(Finding(op.work, text))
    return found


def _kernels() -> list[Finding]:
    from vllm_kunlun.platform import kernels

    by_backend: dict[str, list[str]] = {}
    for name, backend in kernels.load()[0].items():
        by_backend.setdefault(backend, []).append(name)
    return [
        Finding(
            f"kernels on: {backend}",
            ", ".join(sorted(names)),
            fine=backend != "none" or kernels.HYBRID_ONLY.issuperset(names),
        )
        for backend, names in sorted(by_backend.items())
    ]


def _output(command: str) -> str:
    done = subprocess.run(
        [command], capture_output=True, text=True, timeout=20, check=True
    )
    return done.stdout
