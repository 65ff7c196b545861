# SPDX-License-Identifier: Apache-2.0
"""Padded weights: which, with what result, and how a freed weight is read back."""

import pytest
import torch
from torch import nn
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

from vllm_kunlun.step import linears
from vllm_kunlun.step.linears import PADDING, OneDNNLinear, padded, wants_padding


@pytest.fixture
def without_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU on which padding pays."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")


def layer_of(
    rows: int, columns: int, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, torch.Tensor]:
    """Return a layer whose weight upstream has packed and freed, and the weight."""
    layer = nn.Linear(rows, columns, bias=False, dtype=dtype).requires_grad_(False)
    weight = layer.weight.data.clone()
    dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    return layer, weight


def test_which_weights() -> None:
    """Those whose rows are a multiple of 2 KB long, from 4 KB on."""
    sizes = (512, 960, 1024, 1536, 3072, 3136, 49152, 49216)
    assert [n for n in sizes if wants_padding(n)] == [1024, 1536, 3072, 49152]


@pytest.mark.usefixtures("without_avx512")
@pytest.mark.parametrize("shape", [(1, 48), (7, 48), (40, 48), (2, 3, 48), (0, 48)])
def test_products(shape: tuple[int, ...]) -> None:
    """A layer's own, with a bias and without."""
    layer, weight = layer_of(48, 1024)
    assert not layer.weight.numel()
    ours = padded(layer)
    assert ours is not None
    assert ours.padding == PADDING
    x, bias = torch.randn(shape), torch.randn(1024)
    for b in (None, bias):
        expected = nn.functional.linear(x, weight, b)
        found = ours(x, layer.weight, b)
        assert found.is_contiguous()
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("without_avx512")
def test_weights_are_read_back_to_the_bit() -> None:
    """Out of upstream's packed form and out of ours, and there and back again."""
    layer, weight = layer_of(65, 1024)
    assert torch.equal(linears.weight_of(layer, 65), weight.t())
    upstreams = layer.cpu_linear
    assert linears.upstreams(layer) is upstreams
    ours = padded(layer)
    layer.cpu_linear = ours
    assert padded(layer) is ours
    assert torch.equal(linears.weight_of(layer, 65), weight.t())
    back = linears.upstreams(layer)
    assert isinstance(back, OneDNNLinear)
    assert not back.padding
    x = torch.randn(5, 65)
    assert torch.equal(back(x, weight, None), upstreams(x, weight, None))


@pytest.mark.usefixtures("without_avx512")
def test_other_layers_stay() -> None:
    """Other types, narrow layers, those that oneDNN does not multiply, no layers."""
    assert padded(layer_of(48, 1024, torch.bfloat16)[0]) is None
    assert padded(layer_of(48, 960)[0]) is None
    assert padded(nn.Linear(48, 1024)) is None
    layer, _ = layer_of(48, 1024)
    layer.cpu_linear = lambda x, weight, bias: nn.functional.linear(x, weight, bias)
    assert padded(layer) is None


def test_with_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    """There oneDNN blocks the weight."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert padded(layer_of(48, 1024)[0]) is None
