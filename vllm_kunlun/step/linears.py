# SPDX-License-Identifier: Apache-2.0
"""Matrix products of a CPU without AVX-512 (`KUNLUN_PAD_WEIGHTS`).

There oneDNN's product for any number of rows reads a weight as ``[in, out]``, row after
row. Where a row is a multiple of 2 KB long, the rows' beginnings share a few places of
the cache and drive each other out: 64 columns of zeros make the product of 8 rows and
more twice as fast.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from vllm import _custom_ops as compiled

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]

PADDING = 64
"""Columns; fewer help less."""
_ALIASED = 512
"""Columns of float32 that are 2 KB."""
_PRIMITIVES = 32
"""That a handler keeps, as upstream's."""


class OneDNNLinear:
    """What a layer calls as ``cpu_linear``: a product with a weight of its own."""

    def __init__(self, weight: Tensor, padding: int = 0) -> None:
        """Pack `weight`, ``[in, out]`` float32, with so many more columns of zeros."""
        self.rows, self.columns = weight.shape
        self.padding = padding
        padded = pad(weight, (0, padding)).t().contiguous()
        self._handler = compiled.create_onednn_mm(padded.t(), _PRIMITIVES)

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``[..., in]`` times the weight, plus `bias`, as ``[..., out]``.

        The argument `weight` is not used; upstream frees it once it is packed.
        """
        if not self.padding:
            return compiled.onednn_mm(self._handler, x, bias)
        if bias is not None:
            bias = pad(bias, (0, self.padding))
        product = compiled.onednn_mm(self._handler, x, bias)
        return product[..., : self.columns].contiguous()


def wants_padding(columns: int) -> bool:
    """Whether rows of so many float32 share places of the cache."""
    return columns >= 2 * _ALIASED and columns % _ALIASED == 0


def padding_helps() -> bool:
    """Whether this CPU's products read weights row after row."""
    return bool(torch.backends.cpu.get_cpu_capability() == "AVX2")


def padded(layer: nn.Module) -> OneDNNLinear | None:
    """Return what `layer` may call as ``cpu_linear``, or None where that does not pay.

    A layer whose product is padded already gives the same again.
    """
    linear = getattr(layer, "cpu_linear", None)
    if isinstance(linear, OneDNNLinear):
        return linear if linear.padding else None
    handler = _handler_of(linear)
    if handler is None or not wants_padding(handler.n) or not padding_helps():
        return None
    dtype = getattr(layer, "params_dtype", layer.weight.dtype)
    if dtype != torch.float32:
        return None
    return OneDNNLinear(weight_of(layer, handler.k), PADDING)


def upstreams(layer: nn.Module) -> Linear:
    """Return what upstream has such a layer call."""
    linear: Linear = layer.cpu_linear
    if isinstance(linear, OneDNNLinear):
        return OneDNNLinear(weight_of(layer, linear.rows))
    return linear


def weight_of(layer: nn.Module, rows: int) -> Tensor:
    """Return a layer's weight, ``[in, out]``, of which there are so many rows.

    Upstream frees what it has packed, so that it is read back: a product with ones on
    the diagonal gives each number as it is.
    """
    if layer.weight.numel():
        return layer.weight.data.t()
    read: Tensor = layer.cpu_linear(torch.eye(rows), layer.weight, None)
    return read


def _handler_of(linear: Any) -> Any:
    """Return the packed weight that upstream's function for a layer has closed over."""
    for cell in getattr(linear, "__closure__", None) or ():
        if isinstance(cell.cell_contents, compiled.CPUDNNLGEMMHandler):
            return cell.cell_contents
    return None
