# SPDX-License-Identifier: Apache-2.0
"""Device nodes, modules and torch's functions of the made-up machine."""

import sys
import time
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol

import torch

from fake_xpu.on_cpu import DeviceOnCpu

GIB = 1 << 30


class Patcher(Protocol):
    """The part of `pytest.MonkeyPatch` that is needed."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Replace an attribute."""

    def setitem(self, mapping: Any, name: Any, value: Any) -> None:
        """Replace an item."""


@dataclass
class FakeXpu:
    """The state of the made-up devices."""

    count: int = 1
    current: int = 0
    total: int = 96 * GIB
    free: int = 90 * GIB
    seeds: list[int] = field(default_factory=list)


class FakeStream:
    """A stream: everything on a CPU is in order already."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = torch.device("cpu")

    def __enter__(self) -> "FakeStream":
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def wait_stream(self, other: "FakeStream") -> None:
        """Wait for nothing."""

    def wait_event(self, event: "FakeEvent") -> None:
        """Wait for nothing."""

    def synchronize(self) -> None:
        """Wait for nothing."""


class FakeEvent:
    """An event that has always happened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seconds = 0.0

    def record(self, *args: Any) -> None:
        """Happen."""
        self.seconds = time.perf_counter()

    def elapsed_time(self, end: "FakeEvent") -> float:
        """Return the milliseconds from this event to that one."""
        return (end.seconds - self.seconds) * 1e3

    def synchronize(self) -> None:
        """Have happened."""

    def wait(self, *args: Any) -> None:
        """Have happened."""

    def query(self) -> bool:
        """Have happened."""
        return True


def install(patch: Patcher, dev: Path, *, count: int = 1) -> FakeXpu:
    """Make this process see `count` XPUs, with their nodes in the folder `dev`."""
    from vllm_kunlun.platform import detect

    xpu = FakeXpu(count)
    for name in [*(f"xpu{i}" for i in range(count)), "xpuctrl"]:
        (dev / name).touch()
    patch.setattr(detect, "DEV", dev)
    module = ModuleType("torch_xmlir")
    module.__spec__ = ModuleSpec("torch_xmlir", None)
    patch.setitem(sys.modules, "torch_xmlir", module)
    for namespace, functions in _functions(xpu).items():
        for name, function in functions.items():
            patch.setattr(namespace, name, function)
    return xpu


def run_on_cpu(patch: Patcher) -> None:
    """Have the made-up device compute, from now on: the CPU does its work.

    Tensors for it come to lie in host memory, and processes meet by gloo.
    """
    # By way of vLLM: the platform's module cannot be imported before it.
    from vllm.platforms import current_platform

    patch.setattr(type(current_platform), "dist_backend", "gloo")
    for name in ("pin_memory", "cuda"):
        patch.setattr(torch.Tensor, name, lambda self, *args, **kwargs: self)
    patch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    DeviceOnCpu().__enter__()


def _functions(xpu: FakeXpu) -> dict[Any, dict[str, Any]]:
    def set_current(device: Any) -> None:
        index = device if isinstance(device, int) else torch.device(device).index
        assert index is not None
        assert 0 <= index < xpu.count
        xpu.current = index

    def properties(device: Any = None) -> SimpleNamespace:
        return SimpleNamespace(
            name="GPU",
            total_memory=xpu.total,
            multi_processor_count=12,
            uuid=f"made-up-{device or 0}",
            # What the vendor's runtime says, to please CUDA programs.
            major=8,
            minor=6,
        )

    stream = FakeStream()
    nothing: Any = lambda *args, **kwargs: None  # noqa: E731
    memory: Any = lambda *args, **kwargs: (xpu.free, xpu.total)  # noqa: E731
    zero: Any = lambda *args, **kwargs: 0  # noqa: E731
    cuda = {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "device_count": lambda: xpu.count,
        "current_device": lambda: xpu.current,
        "set_device": set_current,
        "get_device_name": lambda device=None: "GPU",
        "get_device_capability": lambda device=None: (8, 6),
        "get_device_properties": properties,
        "manual_seed_all": xpu.seeds.append,
        "Stream": FakeStream,
        "Event": FakeEvent,
        "current_stream": lambda device=None: stream,
        "set_stream": nothing,
        "stream": lambda stream: stream,
        "synchronize": nothing,
        "empty_cache": nothing,
        "reset_peak_memory_stats": nothing,
        "max_memory_allocated": zero,
        "mem_get_info": memory,
    }
    accelerator = {
        "is_available": lambda: True,
        "device_count": lambda: xpu.count,
        "current_device_index": lambda: xpu.current,
        "set_device_index": set_current,
        "synchronize": nothing,
        "empty_cache": nothing,
        "memory_stats": lambda device=None: {},
        "get_memory_info": memory,
        "memory_reserved": zero,
        "memory_allocated": zero,
        "max_memory_allocated": zero,
        "reset_peak_memory_stats": nothing,
    }
    return {
        torch.cuda: cuda,
        torch.accelerator: accelerator,
        torch: {"Event": FakeEvent},
    }
