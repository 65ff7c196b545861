# SPDX-License-Identifier: Apache-2.0
"""The vendor's kernels are used where they are as expected, and only there."""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from fake_xpu.kunlun_ops import Call, make_module
from vllm import ir

from vllm_kunlun.platform import norms, vendor


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """What was found holds for a process; here for a test."""
    caches = (vendor.why_not, vendor._load, vendor._checked)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Install the made-up `kunlun_ops`."""
    module, calls = make_module()
    monkeypatch.setitem(sys.modules, "kunlun_ops", module)
    return calls


@pytest.mark.usefixtures("calls")
def test_all_are_used_where_they_are_as_expected() -> None:
    """The made-up ones have the arguments of the vendor's plugin."""
    assert [name for name in vendor.OPS if vendor.why_not(name)] == []


def test_without_the_module_nothing_is_used() -> None:
    """Which is so on any other machine."""
    for name in vendor.OPS:
        assert vendor.find(name) is None
        reason = vendor.why_not(name)
        assert reason is not None
        assert reason.startswith("kunlun_ops cannot be imported: No module named")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (None, "kunlun_ops has no rmsnorm"),
        (lambda x, weight: 0, "kunlun_ops.rmsnorm takes other arguments than expected"),
        (lambda x, w, e, out, more: 0, "missing a required argument: 'more'"),
    ],
)
@pytest.mark.usefixtures("calls")
def test_another_function_is_left_alone(
    function: Callable[..., int] | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version of the vendor's that calls for something else is not guessed at."""
    module = sys.modules["kunlun_ops"]
    if function is None:
        monkeypatch.delattr(module, "rmsnorm")
    else:
        monkeypatch.setattr(module, "rmsnorm", function)
    assert reason in (vendor.why_not("rmsnorm") or "")
    assert vendor.find("rmsnorm") is None
    assert vendor.find("add_rmsnorm") is not None


@pytest.mark.usefixtures("calls")
def test_some_or_all_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find the one that is to blame."""
    monkeypatch.setenv(vendor.WITHOUT, "rmsnorm, paged_attention")
    left_out = [name for name in vendor.OPS if vendor.why_not(name)]
    assert left_out == ["paged_attention", "rmsnorm"]
    vendor.why_not.cache_clear()
    monkeypatch.setenv(vendor.WITHOUT, "all")
    assert all(vendor.why_not(name) for name in vendor.OPS)
    vendor.why_not.cache_clear()
    monkeypatch.setenv(vendor.WITHOUT, "rms_norm")
    with pytest.raises(ValueError, match="names rms_norm: choose of reshape_and_cach"):
        vendor.why_not("rmsnorm")


def test_a_code_that_says_failure_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vendor's functions return a code that its own plugin does not read."""
    module = ModuleType("kunlun_ops")
    module.rmsnorm = lambda x, weight, eps, out: 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kunlun_ops", module)
    norm = vendor.find("rmsnorm")
    assert norm is not None
    with pytest.raises(RuntimeError, match="rmsnorm failed with code 1: set VLLM_KU"):
        norm(None, None, 1e-6, out=None)


@pytest.mark.parametrize("op", ["rms_norm", "fused_add_rms_norm"])
def test_norms_agree_with_vllms(op: str, calls: list[Call]) -> None:
    """Both results of both norms, in bfloat16."""
    torch.manual_seed(0)
    x, residual = torch.randn(2, 3, 5, 64, dtype=torch.bfloat16)
    weight = torch.randn(64, dtype=torch.bfloat16)
    inputs: list[Any] = [x] if op == "rms_norm" else [x, residual]
    mine = getattr(norms, op).impl_fn(*inputs, weight, 1e-6)
    theirs = getattr(ir.ops, op).impls["native"].impl_fn(*inputs, weight, 1e-6)
    torch.testing.assert_close(mine, theirs, atol=0.02, rtol=0.02)
    assert [name for name, _ in calls] == [norms._OPS[op]]


def test_norms_are_for_what_the_vendor_does() -> None:
    """Everything else is torch's."""
    x = torch.zeros(4, 8, dtype=torch.bfloat16)
    weight = torch.ones(8)
    assert norms._fits(x, weight, 1e-6)
    assert not norms._fits(x.float(), weight, 1e-6)
    assert not norms._fits(x[:, ::2], weight, 1e-6)
    assert not norms._fits(x, None, 1e-6)
    assert not norms._fits(x, weight, 1e-6, 4)
    assert not norms._fits(x, weight.expand(2, 8), 1e-6)


def test_swiglu_agrees_with_vllms(calls: list[Call]) -> None:
    """By the vendor's kernel in bfloat16, by torch in float32."""
    from vllm_kunlun.platform.activation import KunlunSiluAndMul

    torch.manual_seed(0)
    x = torch.randn(5, 32)
    for dtype, called in ((torch.bfloat16, 1), (torch.float32, 1)):
        mine = KunlunSiluAndMul.forward_oot(KunlunSiluAndMul, x.to(dtype))  # type: ignore[arg-type]
        theirs = KunlunSiluAndMul.forward_native(x.to(dtype))
        torch.testing.assert_close(mine, theirs, atol=0.02, rtol=0.02)
        assert len(calls) == called
