# SPDX-License-Identifier: Apache-2.0
"""Which layers run which of our products, and what of upstream's is left."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from vllm import _custom_ops as compiled
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

from vllm_kunlun import ops
from vllm_kunlun.step import linears
from vllm_kunlun.step.linears import (
    PADDING,
    BFloat16Linear,
    OneDNNLinear,
    bfloat16,
    of_layer,
    padded,
    wants_padding,
)
from vllm_kunlun.switches import ALL_OFF, ALL_ON


@pytest.fixture
def without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU for which oneDNN has no product in bfloat16."""
    ops.load()
    monkeypatch.setattr(compiled, "_supports_onednn", False)


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


def test_other_layers_are_not_padded() -> None:
    """Other types, narrow layers, those that oneDNN does not multiply, no layers."""
    assert padded(layer_of(48, 1024, torch.bfloat16)[0]) is None
    assert padded(layer_of(48, 960)[0]) is None
    assert padded(nn.Linear(48, 1024)) is None
    layer, _ = layer_of(48, 1024)
    layer.cpu_linear = lambda x, weight, bias: nn.functional.linear(x, weight, bias)
    assert padded(layer) is None


@pytest.mark.usefixtures("without_onednn")
@pytest.mark.parametrize("shape", [(1, 128), (7, 128), (2, 3, 128), (0, 128)])
def test_products_in_bfloat16(shape: tuple[int, ...]) -> None:
    """A layer's own, with a bias and without, of rows that are parts of others, too."""
    layer, weight = layer_of(128, 70, torch.bfloat16)
    ours = bfloat16(layer)
    assert ours is not None
    x = torch.randn(*shape[:-1], 256).bfloat16()[..., 128:]
    for bias in (None, torch.randn(70).bfloat16()):
        wide = bias if bias is None else bias.float()
        expected = nn.functional.linear(x.float(), weight.float(), wide)
        found = ours(x, layer.weight, bias)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), expected, atol=0.02, rtol=0.02)


@pytest.mark.usefixtures("without_onednn")
def test_what_upstream_called_is_kept() -> None:
    """There and back again, with the same weight."""
    layer, weight = layer_of(128, 70, torch.bfloat16)
    upstreams = layer.cpu_linear
    ours = bfloat16(layer)
    assert linears.upstreams(layer) is upstreams
    layer.cpu_linear = ours
    assert bfloat16(layer) is ours
    assert linears.upstreams(layer) is upstreams
    assert torch.equal(layer.weight, weight)


def test_other_layers_keep_torchs_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other types and depths, freed and packed weights, no layers."""
    ops.load()
    monkeypatch.setattr(compiled, "_supports_onednn", True)
    assert bfloat16(layer_of(128, 70)[0]) is None
    monkeypatch.setattr(compiled, "_supports_onednn", False)
    assert bfloat16(layer_of(128, 70)[0]) is None
    assert bfloat16(layer_of(96, 70, torch.bfloat16)[0]) is None
    assert bfloat16(nn.Linear(128, 70)) is None
    layer, _ = layer_of(128, 70, torch.bfloat16)
    layer.cpu_linear = lambda x, weight, bias: nn.functional.linear(x, weight, bias)
    assert bfloat16(layer) is None


def test_which_machine_and_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only with AVX2 and not more, and each by its own switch."""
    wide, _ = layer_of(48, 1024)
    monkeypatch.setattr(compiled, "_supports_onednn", False)
    ops.load()
    narrow, _ = layer_of(64, 10, torch.bfloat16)
    for capability, helps in (("AVX512", False), ("DEFAULT", False), ("AVX2", True)):
        monkeypatch.setattr(
            torch.backends.cpu, "get_cpu_capability", lambda c=capability: c
        )
        assert isinstance(of_layer(wide, ALL_ON), OneDNNLinear) == helps
        assert isinstance(of_layer(narrow, ALL_ON), BFloat16Linear) == helps
    assert of_layer(wide, ALL_OFF) is None
    assert of_layer(narrow, ALL_OFF) is None
    assert of_layer(narrow, replace(ALL_OFF, bf16_linear=True)) is not None
    assert of_layer(wide, replace(ALL_OFF, bf16_linear=True)) is None
