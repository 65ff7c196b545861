# SPDX-License-Identifier: Apache-2.0
"""Paged attention in plain torch, for any device: correct first, and slow.

What is left to it: types, windows and caps that the vendor's kernels are not known to
do, and all attention where those are missing.
"""

import torch

# Scores of that many numbers are computed at once: 256 MB of float32.
_SCORES = 1 << 26


def write_to_cache(
    rows: torch.Tensor, cache: torch.Tensor, slot_mapping: torch.Tensor
) -> None:
    """Write each token's row to its slot.

    Args:
        rows: ``[tokens, kv_heads, head_size]``.
        cache: ``[blocks, kv_heads, block_size, head_size]``; written.
        slot_mapping: ``[tokens]``; a token with -1 is padding and goes nowhere.
    """
    block_size = cache.shape[2]
    used = slot_mapping >= 0
    slots = slot_mapping[used].long()
    cache[slots // block_size, :, slots % block_size] = rows[used].to(cache.dtype)


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_starts: list[int],
    seq_lens: list[int],
    output: torch.Tensor,
    *,
    scale: float,
    causal: bool,
    window: int | None = None,
    soft_cap: float | None = None,
    first_request: int = 0,
) -> None:
    """Attend, request by request, in float32.

    Args:
        query: ``[tokens, heads, head_size]``.
        key_cache: ``[blocks, kv_heads, block_size, head_size]``.
        value_cache: like `key_cache`.
        block_table: ``[requests, blocks]``.
        query_starts: where each request's tokens begin in `query`; the end at last.
        seq_lens: tokens of each request in the cache; its queries are the last ones.
        output: like `query`; written from the first request's tokens on.
        scale: of the scores.
        causal: whether a token sees only itself and what precedes it.
        window: how many tokens it sees back, with itself; forward too if not causal.
        soft_cap: scores are bent to stay within it.
        first_request: those before it are left alone.
    """
    block_size = key_cache.shape[2]
    for request in range(first_request, len(seq_lens)):
        length = seq_lens[request]
        begin, end = query_starts[request], query_starts[request + 1]
        if begin == end:
            continue
        blocks = block_table[request, : -(-length // block_size)].long()
        keys = _contiguous(key_cache, blocks, length)
        values = _contiguous(value_cache, blocks, length)
        rows = max(1, _SCORES // (query.shape[1] * length))
        for start in range(begin, end, rows):
            stop = min(start + rows, end)
            position = torch.arange(
                length - end + start, length - end + stop, device=query.device
            )
            mask = _mask(position, length, causal, window)
            output[start:stop] = _attend(
                query[start:stop], keys, values, mask, scale, soft_cap
            ).to(output.dtype)


def _contiguous(cache: torch.Tensor, blocks: torch.Tensor, length: int) -> torch.Tensor:
    """Gather blocks as ``[kv_heads, length, head_size]``, in float32."""
    _, heads, _, head_size = cache.shape
    gathered = cache[blocks].transpose(0, 1).reshape(heads, -1, head_size)
    return gathered[:, :length].float()


def _mask(
    position: torch.Tensor, length: int, causal: bool, window: int | None
) -> torch.Tensor:
    """Return ``[queries, length]``: what a query must not see."""
    behind = position[:, None] - torch.arange(length, device=position.device)
    hidden = torch.zeros_like(behind, dtype=torch.bool)
    if causal:
        hidden |= behind < 0
    if window is not None:
        hidden |= behind.abs() >= window
    return hidden


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    hidden: torch.Tensor,
    scale: float,
    soft_cap: float | None,
) -> torch.Tensor:
    """``[queries, heads, head_size]`` in, the same out."""
    count, heads, head_size = query.shape
    kv_heads = keys.shape[0]
    grouped = query.float().view(count, kv_heads, heads // kv_heads, head_size)
    scores = torch.matmul(
        grouped.permute(1, 2, 0, 3), keys.unsqueeze(1).transpose(2, 3)
    )
    scores *= scale
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    scores.masked_fill_(hidden, float("-inf"))
    weighted = torch.matmul(torch.softmax(scores, dim=-1), values.unsqueeze(1))
    return weighted.permute(2, 0, 1, 3).reshape(count, heads, head_size)
