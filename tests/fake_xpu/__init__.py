# SPDX-License-Identifier: Apache-2.0
"""A machine with Kunlun XPUs, made up on a CPU: what the vendor's torch shows of them.

`torch_xmlir` has torch's device ``cuda`` be an XPU. Here it is the CPU: a tensor that
is asked for on ``cuda`` comes to lie in host memory, and ``torch.cuda`` and
``torch.accelerator`` answer as they are said to on a P800. So the platform, its worker
and an engine on top of them run, and what would be wrong with the device is not seen.
"""

from fake_xpu.machine import FakeXpu, install, run_on_cpu

__all__ = ["FakeXpu", "install", "run_on_cpu"]
