# SPDX-License-Identifier: Apache-2.0
"""The vendor's kernels as they are called, each done by torch and noting its calls.

They are written from how they are called, apart from what stands in for them in
`vllm_kunlun.platform`, so that the two can be compared.
"""

from types import ModuleType
from typing import Any

import torch

Call = tuple[str, dict[str, Any]]


def make_module() -> tuple[ModuleType, list[Call]]:
    """Return a module `kunlun_ops`, and the list that its calls go to."""
    module = ModuleType("kunlun_ops")
    calls: list[Call] = []

    def reshape_and_cache_flash(
        key: Any, value: Any, key_cache: Any, value_cache: Any, slots: Any,
        BLHD_LAYOUT: bool = True,
    ) -> int:  # fmt: skip
        assert not BLHD_LAYOUT
        calls.append(("reshape_and_cache_flash", {"slots": slots}))
        block_size = key_cache.shape[2]
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                block, row = divmod(slot, block_size)
                key_cache[block, :, row] = key[token]
                value_cache[block, :, row] = value[token]
        return 0

    def paged_attention(
        x: Any, k_cache: Any, v_cache: Any, block_tables: Any, context_lens_cpu: Any,
        context_lens_xpu: Any, is_context: bool, is_causal: bool, out: Any,
        vo_head_dim: int = -1,
    ) -> int:  # fmt: skip
        assert not is_context
        assert is_causal
        assert context_lens_cpu.dtype == context_lens_xpu.dtype == torch.int32
        assert context_lens_cpu.tolist() == context_lens_xpu.tolist()
        calls.append(("paged_attention", {"requests": len(x)}))
        for i, length in enumerate(context_lens_cpu.tolist()):
            k, v = (_rows(c, block_tables[i], length) for c in (k_cache, v_cache))
            out[i : i + 1] = _sdpa(x[i : i + 1], k, v, True, x.shape[-1] ** -0.5)
        return 0

    def prefill_attention(
        q: Any, k: Any, v: Any, out: Any, is_causal: bool,
        is_prefix_cache: bool = False, alpha: float = 1.0,
        block_table: Any = None, context_qlen_lod_cpu: Any = None,
        context_qlen_lod_xpu: Any = None, context_kvlen_lod_cpu: Any = None,
        context_kvlen_lod_xpu: Any = None, alibi_slopes: Any = None,
        softmax_lse: Any = None, swa_left: int = -1, swa_right: int = -1,
        sink: Any = None,
    ) -> int:  # fmt: skip
        assert is_prefix_cache
        assert alibi_slopes is softmax_lse is sink is None
        query_lod, kv_lod = context_qlen_lod_cpu, context_kvlen_lod_cpu
        assert query_lod.tolist() == context_qlen_lod_xpu.tolist()
        assert kv_lod.tolist() == context_kvlen_lod_xpu.tolist()
        assert query_lod[0] == kv_lod[0] == 0
        assert query_lod[-1] == len(q)
        calls.append(("prefill_attention", {"requests": len(query_lod) - 1}))
        lengths = (kv_lod[1:] - kv_lod[:-1]).tolist()
        for i, length in enumerate(lengths):
            a, b = query_lod[i], query_lod[i + 1]
            keys, values = (_rows(c, block_table[i], length) for c in (k, v))
            scale = alpha * q.shape[-1] ** -0.5
            out[a:b] = _sdpa(q[a:b], keys, values, is_causal, scale)
        return 0

    def rmsnorm(x: Any, weight: Any, eps: float, out: Any) -> int:
        assert weight.dtype == torch.float32
        calls.append(("rmsnorm", {}))
        norm = torch.nn.functional.rms_norm(x.float(), x.shape[-1:], weight, eps)
        out.copy_(norm)
        return 0

    def add_rmsnorm(x: Any, y: Any, weight: Any, eps: float, out: Any) -> int:
        calls.append(("add_rmsnorm", {}))
        both = x.float() + y.float()
        out.copy_(torch.nn.functional.rms_norm(both, x.shape[-1:], weight, eps))
        return 0

    def silu_and_mul(x: Any, axis: int, turn: bool, out: Any) -> int:
        assert (axis, turn) == (-1, True)
        calls.append(("silu_and_mul", {}))
        gate, up = x.float().chunk(2, dim=-1)
        out.copy_(torch.nn.functional.silu(gate) * up)
        return 0

    for function in (
        reshape_and_cache_flash,
        paged_attention,
        prefill_attention,
        rmsnorm,
        add_rmsnorm,
        silu_and_mul,
    ):
        setattr(module, function.__name__, function)
    return module, calls


def _rows(cache: torch.Tensor, blocks: torch.Tensor, length: int) -> torch.Tensor:
    """``[length, kv_heads, head_size]`` of one request, token by token."""
    size = cache.shape[2]
    rows = [cache[blocks[t // size], :, t % size] for t in range(length)]
    return torch.stack(rows)


def _sdpa(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float
) -> torch.Tensor:
    length, queries = len(k), len(q)
    mask = torch.ones(queries, length, dtype=torch.bool)
    if causal:
        mask = mask.tril(diagonal=length - queries)
    heads = [x.float().transpose(0, 1) for x in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(
        *heads, attn_mask=mask, scale=scale, enable_gqa=True
    )
    return out.transpose(0, 1).to(q.dtype)
