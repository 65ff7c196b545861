# SPDX-License-Identifier: Apache-2.0
"""Model Runner V2's host buffers on a device that cannot read host memory.

V2 writes what a step needs into pinned host memory and has kernels read it there, by
unified addressing. Whether a Kunlun kernel can do that is not known, and vLLM has the
view for CUDA and Intel only. So each buffer has a mirror on the device, and what was
written is copied to it: one small copy per buffer and step, on the current stream.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from vllm.v1.worker.gpu import buffer_utils


class MirroredBuffer:
    """`vllm.v1.worker.gpu.buffer_utils.UvaBuffer` with a device's copy.

    Attributes:
        cpu: pinned host memory; None for a buffer that only the device uses.
        uva: the mirror on the device.
    """

    def __init__(self, size: int | Sequence[int], dtype: torch.dtype) -> None:
        device = torch.device("cuda", torch.cuda.current_device())
        self.uva = torch.zeros(size, dtype=dtype, device=device)
        self.cpu: torch.Tensor | None = None


class MirroredPool(buffer_utils.UvaBufferPool):
    """`UvaBufferPool` that copies to the device what it hands out."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for buffer in self._uva_bufs:
            buffer.cpu = torch.zeros(self.size, dtype=self.dtype, pin_memory=True)

    def copy_to_uva(self, x: torch.Tensor | np.ndarray | list[Any]) -> torch.Tensor:
        """Return ``x`` on the device.

        The copy is queued before what reads it, and its source is not written again
        for `max_concurrency` steps.
        """
        self._curr: int = (self._curr + 1) % self.max_concurrency
        buffer: MirroredBuffer = self._uva_bufs[self._curr]
        assert buffer.cpu is not None
        n = len(x)
        source = buffer.cpu[:n]
        if isinstance(x, torch.Tensor):
            source.copy_(x)
        else:
            source.numpy()[:] = x
        return buffer.uva[:n].copy_(source, non_blocking=True)


def install() -> None:
    """Make V2 use them in this process, from now on."""
    buffer_utils.UvaBuffer = MirroredBuffer
    buffer_utils.UvaBufferPool = MirroredPool
