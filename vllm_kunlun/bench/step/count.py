# SPDX-License-Identifier: Apache-2.0
"""What a step would ask of a device, counted on a CPU.

Host and device memory are one here, so the count keeps book of which tensors live on
the host: those made of numpy arrays, on ``"cpu"`` by name or on no device by name, and
what is computed from them alone. Code for a device passes it as a `torch.device`, which
tells the two apart.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from vllm.utils import torch_utils
from vllm.v1.worker.gpu.buffer_utils import UvaBufferPool

from vllm_kunlun.bench.step.stopwatch import Stopwatch

# They reserve memory or name it; no kernel runs.
_WITHOUT_KERNEL = {
    "aten::_local_scalar_dense",
    "aten::_unsafe_view",
    "aten::detach_",
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::item",
    "aten::lift_fresh",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::resize_",
}
# Their result's size depends on the data.
_SIZED_BY_DATA = {
    "aten::_unique2",
    "aten::is_nonzero",
    "aten::equal",
    "aten::masked_select",
    "aten::nonzero",
    "aten::unique_consecutive",
    "aten::unique_dim",
}
# Without a device named they make host memory.
_MAKERS = {"arange", "empty", "full", "ones", "tensor", "zeros"}
_INDEXING = {"aten::index", "aten::index_put", "aten::index_put_"}


@dataclass
class Counts:
    """What one stage asked for."""

    dispatches: int = 0
    """Torch ops of any kind, ours not among them."""
    torch_kernels: int = 0
    """Those of them that would launch a kernel on a device."""
    launches: int = 0
    """Ours."""
    host_calls: int = 0
    """Ours on host memory alone."""
    copies: int = 0
    """From host to device."""
    bytes: int = 0
    uva_writes: int = 0
    """Buffers written in host memory that the device reads by itself."""
    uva_bytes: int = 0
    copies_back: int = 0
    """From device to host, not waited for."""
    syncs: int = 0
    """The host waits for the device."""

    def __add__(self, other: "Counts") -> "Counts":
        mine, theirs = asdict(self), asdict(other)
        return Counts(**{name: mine[name] + theirs[name] for name in mine})


class Recorder:
    """Counts by stage, and which tensors are in host memory."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.stopwatch = stopwatch
        self.by_stage: dict[str, Counts] = {}
        # Kept alive, so that no storage takes the place of another.
        self._host: dict[int, torch.Tensor] = {}

    @property
    def now(self) -> Counts:
        """The counts of the stage that runs."""
        return self.by_stage.setdefault(self.stopwatch.stage, Counts())

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is known to be in host memory."""
        return tensor.untyped_storage()._cdata in self._host

    def put_on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note that a tensor is in host memory."""
        self._host[tensor.untyped_storage()._cdata] = tensor
        return tensor

    def copied(self, tensor: torch.Tensor) -> None:
        """Count a copy to the device."""
        self.now.copies += 1
        self.now.bytes += tensor.numel() * tensor.element_size()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note which tensors are made on the host, and count nothing."""
        from_numpy = torch.from_numpy
        with (
            patch.object(
                torch, "from_numpy", lambda array: self.put_on_host(from_numpy(array))
            ),
            _Calls(self),
        ):
            yield
        self.by_stage.clear()

    @contextmanager
    def count(self) -> Iterator[None]:
        """Count what happens inside."""
        from_numpy = torch.from_numpy
        copy_to_uva = UvaBufferPool.copy_to_uva

        def copy_to_uva_counted(pool: UvaBufferPool, x: Any) -> torch.Tensor:
            written: torch.Tensor = copy_to_uva(pool, x)
            self.now.uva_writes += 1
            self.now.uva_bytes += written.numel() * written.element_size()
            return self.put_on_host(written)

        def send_counted(*arguments: Any, **keywords: Any) -> torch.Tensor:
            sent = _copy(send(*arguments, **keywords))
            self.copied(sent)
            return sent

        with ExitStack() as stack:
            stack.enter_context(
                patch.object(
                    torch,
                    "from_numpy",
                    lambda array: self.put_on_host(from_numpy(array)),
                )
            )
            stack.enter_context(
                patch.object(UvaBufferPool, "copy_to_uva", copy_to_uva_counted)
            )
            # On a CPU it is a function that copies nothing, known by name to many.
            send = torch_utils.async_tensor_h2d
            for module in list(sys.modules.values()):
                if vars(module).get("async_tensor_h2d") is send:
                    stack.enter_context(
                        patch.object(module, "async_tensor_h2d", send_counted)
                    )
            stack.enter_context(_Dispatches(self))
            stack.enter_context(_Calls(self))
            yield


class _Dispatches(TorchDispatchMode):
    """Sees each op that reaches a backend."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        seen = self.recorder
        name = func._schema.name
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        on_host = bool(inputs) and all(map(seen.is_host, inputs))
        if func.namespace == "vllm_kunlun":
            if on_host:
                seen.now.host_calls += 1
            else:
                seen.now.launches += 1
            return func(*args, **kwargs)
        seen.now.dispatches += 1
        if name == "aten::copy_" and not on_host:
            target, source = args[:2]
            # Nothing else has a reason not to wait.
            starts = kwargs.get("non_blocking") or args[2:] == (True,)
            if (starts or seen.is_host(source)) and not seen.is_host(target):
                seen.copied(target)
                return func(*args, **kwargs)
        if not on_host:
            if name not in _WITHOUT_KERNEL and not _is_view(func):
                seen.now.torch_kernels += 1
            if _waits(name, args, kwargs):
                seen.now.syncs += 1
        result = func(*args, **kwargs)
        if on_host and kwargs.get("device") is None:
            for x in tree_leaves(result):
                if isinstance(x, torch.Tensor):
                    seen.put_on_host(x)
        return result


class _Calls(TorchFunctionMode):
    """Sees what no op shows where host and device are one."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        seen = self.recorder
        name = getattr(func, "__name__", "")
        if name == "tolist" and not seen.is_host(args[0]):
            seen.now.syncs += 1
        result = func(*args, **kwargs)
        if not isinstance(result, torch.Tensor):
            return result
        device = kwargs.get("device")
        if name in ("to", "cpu") and isinstance(args[0], torch.Tensor):
            return self._moved(name, args, kwargs, result)
        if device == "cpu" and isinstance(device, str):
            return seen.put_on_host(result)
        if device is None and name in _MAKERS:
            return seen.put_on_host(result)
        if name == "tensor" and isinstance(device, torch.device):
            seen.copied(result)
        return result

    def _moved(self, name: str, args: Any, kwargs: Any, result: torch.Tensor) -> Any:
        """Count a copy between host and device, and give it memory of its own."""
        seen = self.recorder
        source = args[0]
        device = kwargs.get("device", args[1] if len(args) > 1 else None)
        if name == "cpu" or (device == "cpu" and isinstance(device, str)):
            if seen.is_host(source):
                return result
            if kwargs.get("non_blocking"):
                seen.now.copies_back += 1
            else:
                seen.now.syncs += 1
            return seen.put_on_host(_copy(result))
        if isinstance(device, torch.device) and seen.is_host(source):
            seen.copied(result)
            return _copy(result)
        return result


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    with _disable_current_modes():
        return tensor.clone()


def _waits(name: str, args: Any, kwargs: Any) -> bool:
    if name in ("aten::_local_scalar_dense", "aten::item") or name in _SIZED_BY_DATA:
        return True
    if name == "aten::repeat_interleave":
        return kwargs.get("output_size") is None
    if name in _INDEXING:
        return any(
            index is not None and index.dtype in (torch.bool, torch.uint8)
            for index in args[1]
        )
    return False


@cache
def _is_view(func: Any) -> bool:
    return any(
        value.alias_info is not None and not value.alias_info.is_write
        for value in func._schema.returns
    )
