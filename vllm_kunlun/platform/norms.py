# SPDX-License-Identifier: Apache-2.0
"""The vendor's norms as implementations of vLLM's IR ops. Not yet run on hardware."""

import torch
from torch import Tensor
from vllm import ir

from vllm_kunlun.platform import vendor

PROVIDER = "kunlun_ops"
_OPS = {"rms_norm": "rmsnorm", "fused_add_rms_norm": "add_rmsnorm"}
_DTYPES = (torch.float16, torch.bfloat16)


def usable() -> dict[str, bool]:
    """Whether the vendor's function can be used, by the name of vLLM's IR op."""
    return {op: vendor.find(name) is not None for op, name in _OPS.items()}


def _fits(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> bool:
    return (
        x.dtype in _DTYPES
        and x.is_contiguous()
        and weight is not None
        and weight.dim() == 1
        and variance_size is None
    )


def _fits_with_residual(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> bool:
    return x_residual.is_contiguous() and _fits(x, weight, epsilon, variance_size)


@ir.ops.rms_norm.register_impl(
    PROVIDER, supports_args=_fits, supported=usable()["rms_norm"]
)
def rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> Tensor:
    """``[..., hidden]`` -> the same; see `vllm.ir.ops.rms_norm`."""
    norm = vendor.find("rmsnorm")
    assert norm is not None
    assert weight is not None
    output = torch.empty_like(x)
    # The vendor's kernel wants its weight in float32.
    norm(x, weight.float(), epsilon, out=output)
    return output


@ir.ops.fused_add_rms_norm.register_impl(
    PROVIDER,
    supports_args=_fits_with_residual,
    supported=usable()["fused_add_rms_norm"],
)
def fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """``[..., hidden]`` twice -> (normed sum, sum)."""
    norm = vendor.find("add_rmsnorm")
    assert norm is not None
    assert weight is not None
    output = torch.empty_like(x)
    norm(x, x_residual, weight.float(), epsilon, out=output)
    # It does not give the sum.
    return output, x + x_residual
