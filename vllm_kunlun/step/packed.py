# SPDX-License-Identifier: Apache-2.0
"""A step's small host arrays, and their way to the device in one copy."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from vllm.v1.worker.gpu.buffer_utils import async_copy_to_gpu

STEPS_IN_FLIGHT = 3
"""Host buffers taken in turn: the host may write one while a copy reads another."""

VIEWS = 1024
"""Batch shapes whose views of fixed buffers are kept: each costs a microsecond."""

APPENDIX_PER_REQUEST = 16
"""Room for what a step appends; only prompts of many blocks need more."""

APPENDIX_UNIT = 32
"""An appendix takes a multiple of that many words, so that its sizes are few."""


class PackedArrays:
    """The integer arrays that the device needs of a step, side by side.

    On the host and on the device, all i32: ``idx_mapping`` ``[max_num_reqs]``,
    ``cu_num_logits`` and ``query_start_loc`` ``[max_num_reqs + 1]``, then an appendix.
    The device's arrays keep their addresses.
    """

    def __init__(self, max_num_reqs: int, device: torch.device) -> None:
        fixed = (max_num_reqs, max_num_reqs + 1, max_num_reqs + 1)
        self.fixed = sum(fixed)
        sizes = (*fixed, APPENDIX_PER_REQUEST * max_num_reqs)
        self._hosts = [
            torch.zeros(sum(sizes), dtype=torch.int32, pin_memory=device.type != "cpu")
            for _ in range(STEPS_IN_FLIGHT)
        ]
        self._parts = [host.split(sizes) for host in self._hosts]
        self._arrays = [[p.numpy() for p in parts] for parts in self._parts]
        self._turn = 0
        self._device = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
        parts = self._device.split(sizes)
        self.idx_mapping, self.cu_num_logits, self.query_start_loc, _ = parts
        self._views = lru_cache(maxsize=VIEWS)(self._make_views)

    def next_host(self) -> tuple[tuple[torch.Tensor, ...], list[np.ndarray]]:
        """Return the arrays to fill for this step, as tensors and for numpy."""
        self._turn = (self._turn + 1) % STEPS_IN_FLIGHT
        return self._parts[self._turn], self._arrays[self._turn]

    def send(self, appendix: Sequence[int] = ()) -> torch.Tensor | None:
        """Copy this step's arrays to the device, and return `appendix` there.

        Args:
            appendix: what to send along.

        Returns:
            i32, `appendix` and maybe more after it; None if there is none.
        """
        units = -(-len(appendix) // APPENDIX_UNIT)
        size = self.fixed + units * APPENDIX_UNIT
        if size > self._device.numel():
            self.send()
            return torch.tensor(appendix, dtype=torch.int32).to(self._device.device)
        if appendix:
            self._arrays[self._turn][3][: len(appendix)] = appendix
        host, device, sent = self._views(self._turn, size)
        device.copy_(host, non_blocking=True)
        return sent if appendix else None

    def _make_views(
        self, turn: int, size: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        device = self._device[:size]
        return self._hosts[turn][:size], device, device[self.fixed :]

    def send_each(self) -> None:
        """Copy this step's arrays one by one, as upstream does."""
        host = self._parts[self._turn]
        async_copy_to_gpu(host[0], out=self.idx_mapping)
        async_copy_to_gpu(host[1], out=self.cu_num_logits)
        async_copy_to_gpu(host[2], out=self.query_start_loc)
