# SPDX-License-Identifier: Apache-2.0
"""Matrix products of a CPU with AVX2 and without AVX-512.

There oneDNN's product for any number of rows reads a weight as ``[in, out]``, row after
row. Where a row is a multiple of 2 KB long, the rows' beginnings share a few places of
the cache and drive each other out: 64 columns of zeros make the product of 8 rows and
more twice as fast (`KUNLUN_PAD_WEIGHTS`).

In bfloat16 it has none, and torch's takes as long for each row as for the first. Our op
gives torch's bits and makes 32 rows 4 times as fast (`KUNLUN_BF16_LINEAR`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from vllm import _custom_ops as compiled
from vllm.model_executor.layers import utils

from vllm_kunlun.switches import Switches

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]

PADDING = 64
"""Columns; fewer help less."""
SUMS = 64
"""Partial sums that our op has of a product, as torch has."""
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

    def size_of(self, weight: Tensor) -> tuple[int, int]:
        """Return ``out`` and ``in`` of a weight that may have been freed."""
        return self.columns, self.rows

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


class BFloat16Linear:
    """What a layer calls as ``cpu_linear``: our op with the weight it is given."""

    def __init__(self, upstreams: Linear) -> None:
        """Keep what upstream has the layer call."""
        self.upstreams = upstreams
        self._op = torch.ops.vllm_kunlun.linear.default

    def size_of(self, weight: Tensor) -> tuple[int, int]:
        """Return ``out`` and ``in`` of a weight."""
        return weight.shape[0], weight.shape[1]

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``[..., in]`` times `weight`, ``[out, in]``, plus `bias`."""
        out = x.new_empty((*x.shape[:-1], weight.shape[0]))
        self._op(out, x.contiguous(), weight, bias)
        return out


def of_layer(layer: nn.Module, switches: Switches) -> Linear | None:
    """Return what `layer` may call as ``cpu_linear``, or None for upstream's."""
    if not helps_here():
        return None
    found: Linear | None = padded(layer) if switches.pad_weights else None
    if found is None and switches.bf16_linear:
        found = bfloat16(layer)
    return found


def helps_here() -> bool:
    """Whether this CPU has AVX2 and not more."""
    return bool(torch.backends.cpu.get_cpu_capability() == "AVX2")


def wants_padding(columns: int) -> bool:
    """Whether rows of so many float32 share places of the cache."""
    return columns >= 2 * _ALIASED and columns % _ALIASED == 0


def padded(layer: nn.Module) -> OneDNNLinear | None:
    """Return what `layer` may call as ``cpu_linear``, or None where that does not pay.

    A layer whose product is padded already gives the same again.
    """
    linear = getattr(layer, "cpu_linear", None)
    if isinstance(linear, OneDNNLinear):
        return linear if linear.padding else None
    handler = _handler_of(linear)
    if handler is None or not wants_padding(handler.n):
        return None
    dtype = getattr(layer, "params_dtype", layer.weight.dtype)
    if dtype != torch.float32:
        return None
    return OneDNNLinear(weight_of(layer, handler.k), PADDING)


def bfloat16(layer: nn.Module) -> BFloat16Linear | None:
    """Return what `layer` may call as ``cpu_linear``, if it calls torch's product.

    Weights stay as they are, for whoever else reads or loads them.
    """
    linear = getattr(layer, "cpu_linear", None)
    if isinstance(linear, BFloat16Linear):
        return linear
    if linear is None or not _is_torchs(linear):
        return None
    weight = layer.weight
    fits = (
        weight.dtype == torch.bfloat16
        and weight.dim() == 2
        and weight.is_contiguous()
        and weight.numel() > 0
        and weight.shape[1] % SUMS == 0
    )
    return BFloat16Linear(linear) if fits else None


def upstreams(layer: nn.Module) -> Linear:
    """Return what upstream has such a layer call."""
    linear: Linear = layer.cpu_linear
    if isinstance(linear, OneDNNLinear):
        return OneDNNLinear(weight_of(layer, linear.rows))
    if isinstance(linear, BFloat16Linear):
        return linear.upstreams
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


def _is_torchs(linear: Any) -> bool:
    """Whether upstream found nothing better: its others close over a weight."""
    return (
        getattr(linear, "__module__", None) == utils.__name__
        and linear.__closure__ is None
    )


def _handler_of(linear: Any) -> Any:
    """Return the packed weight that upstream's function for a layer has closed over."""
    for cell in getattr(linear, "__closure__", None) or ():
        if isinstance(cell.cell_contents, compiled.CPUDNNLGEMMHandler):
            return cell.cell_contents
    return None
