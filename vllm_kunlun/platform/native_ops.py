# SPDX-License-Identifier: Apache-2.0
"""Ops of vLLM's compiled kernels that models call by name, done by torch.

A Kunlun build of vLLM has no compiled kernels (``vllm._C``). Most layers have a way
through torch of their own; DSpark's draft model calls these two directly.
"""

from functools import cache

import torch

_SCHEMAS = {
    "rms_norm": "(Tensor! result, Tensor input, Tensor? weight, float epsilon) -> ()",
    "rotary_embedding": (
        "(Tensor positions, Tensor! query, Tensor!? key, int head_size, "
        "Tensor cos_sin_cache, bool is_neox, int rope_dim_offset=0, "
        "bool inverse=False) -> ()"
    ),
}


@cache
def register() -> torch.library.Library:
    """Define those that nobody has defined; the caller need not keep the result."""
    library = torch.library.Library("_C", "FRAGMENT")
    implementations = {"rms_norm": rms_norm, "rotary_embedding": rotary_embedding}
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops._C, name):
            library.define(name + schema)
            library.impl(name, implementations[name], "CompositeExplicitAutograd")
    return library


def rms_norm(
    result: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    epsilon: float,
) -> None:
    """Root-mean-square norm over the last dimension, computed in float32.

    Args:
        result: as `input`; written.
        input: ``[..., hidden]``, or ``[layers, ..., hidden]`` with a weight a layer.
        weight: ``[hidden]`` or ``[layers, hidden]``.
        epsilon: added to the mean square.
    """
    x = input.float()
    x = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + epsilon)
    if weight is not None:
        if weight.dim() == 2:
            weight = weight.view(weight.shape[0], *[1] * (x.dim() - 2), -1)
        x = x.to(weight.dtype) * weight
    result.copy_(x)


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    rope_dim_offset: int = 0,
    inverse: bool = False,
) -> None:
    """Rotate query and key in place.

    Args:
        positions: ``[tokens]``.
        query: ``[tokens, heads * head_size]`` or ``[tokens, heads, head_size]``.
        key: like `query`, with heads of its own.
        head_size: of one head.
        cos_sin_cache: ``[max_position, rotary]``: cosines, then sines.
        is_neox: whether the halves of a head are rotated, not neighbours.
        rope_dim_offset: where in a head the rotated part begins.
        inverse: rotate back.
    """
    cos, sin = cos_sin_cache[positions.flatten()].chunk(2, dim=-1)
    cos, sin = cos.unsqueeze(1), (-sin if inverse else sin).unsqueeze(1)
    rotary = cos_sin_cache.shape[-1]
    for x in (query, key):
        if x is None:
            continue
        heads = x.view(positions.numel(), -1, head_size)
        part = heads[..., rope_dim_offset : rope_dim_offset + rotary]
        if is_neox:
            first, second = part[..., : rotary // 2], part[..., rotary // 2 :]
        else:
            first, second = part[..., ::2], part[..., 1::2]
        turned = first * cos - second * sin, second * cos + first * sin
        first.copy_(turned[0])
        second.copy_(turned[1])
