# SPDX-License-Identifier: Apache-2.0
"""Every function of torch, with the device ``cuda`` replaced by the CPU."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


class DeviceOnCpu(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """While entered, a device ``cuda`` in any argument means the CPU.

    Our ops, which tensors of the device would dispatch to what is registered for
    them, go through copies here, too: all of them, as the host can follow addresses.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call `func` with the CPU instead."""
        replaced = {key: _on_cpu(value) for key, value in (kwargs or {}).items()}
        if replaced.get("pin_memory"):
            del replaced["pin_memory"]
        if func is torch.device:
            return func(*args, **replaced)
        op = _op_of_ours(func)
        if op is not None and not kwargs:
            from vllm_kunlun.platform.kernels import ThroughHost

            return ThroughHost(op)(*args)
        return func(*[_on_cpu(a) for a in args], **replaced)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return CPU
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return CPU
    return value


def _op_of_ours(func: Any) -> Any:
    if isinstance(func, torch._ops.OpOverloadPacket):
        func = func.default
    if isinstance(func, torch._ops.OpOverload) and func.namespace == "vllm_kunlun":
        # What takes no tensors (how large a workspace must be) is the host's anyway.
        takes = any("Tensor" in str(a.type) for a in func._schema.arguments)
        return func if takes else None
    return None
