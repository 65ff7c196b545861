# SPDX-License-Identifier: Apache-2.0
"""Which kernels the ops' launches on a CPU go to: the host's, or the XPU's simulated.

The environment variable ``VLLM_KUNLUN_BACKEND`` says what a process begins with:

- ``host``, or nothing: the host's kernels;
- ``sim``: the XPU's on the simulator (docs/simulator.md), on a machine of 12 clusters
  of 64 cores; an op that has none goes to the host's. ``sim:1x64`` is another machine,
  ``sim:12x64:7`` one whose cores run in another order.
"""

import torch

from vllm_kunlun import ops


def use(backend: str) -> None:
    """Send the launches of this process to `backend`, as the variable would.

    Raises:
        ValueError: there is no such backend.
    """
    ops.load()
    torch.ops.vllm_kunlun.use_backend(backend)


def xpu_kernels() -> frozenset[str]:
    """Return the ops that have a kernel for the XPU."""
    ops.load()
    return frozenset(torch.ops.vllm_kunlun.xpu_kernels())


def without_xpu_kernel() -> frozenset[str]:
    """Return the ops that have only a kernel for the host."""
    ops.load()
    prefix = "vllm_kunlun::"
    names = {
        name.removeprefix(prefix).partition(".")[0]
        for name in torch._C._dispatch_get_registrations_for_dispatch_key("CPU")
        if name.startswith(prefix)
    }
    return frozenset(names) - xpu_kernels()


def simulated_launches() -> int:
    """Return how many kernels this process has launched on the simulator."""
    ops.load()
    launches: int = torch.ops.vllm_kunlun.simulated_launches()
    return launches
