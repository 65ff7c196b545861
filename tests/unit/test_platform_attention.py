# SPDX-License-Identifier: Apache-2.0
"""Attention on Kunlun: torch's way, and the vendor's kernels as they are called."""

import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_xpu.kunlun_ops import Call, make_module
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_platform_vendor import forget  # noqa: F401

from vllm_kunlun.platform import torch_attention
from vllm_kunlun.platform.attention import (
    KunlunAttentionBackend,
    KunlunAttentionImpl,
    KunlunMetadata,
    KunlunMetadataBuilder,
)

BLOCK = 16


def reference(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    causal: bool,
    window: int | None,
    cap: float | None,
) -> torch.Tensor:
    """One request's attention, head by head and query by query, in float64."""
    query, keys, values = query.double(), keys.double(), values.double()
    group = query.shape[1] // keys.shape[1]
    out = torch.empty_like(query)
    for i in range(len(query)):
        position = len(keys) - len(query) + i
        seen = [
            j
            for j in range(len(keys))
            if not (causal and j > position)
            and not (window is not None and abs(position - j) >= window)
        ]
        for head in range(query.shape[1]):
            scores = keys[seen, head // group] @ query[i, head] / 8
            if cap is not None:
                scores = cap * torch.tanh(scores / cap)
            weights = torch.softmax(scores, dim=0)
            out[i, head] = weights @ values[seen, head // group]
    return out


def batch(
    lengths: list[tuple[int, int]], dtype: torch.dtype, causal: bool, heads: int = 4
) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
    """Draw a batch of requests: (context, new tokens) each.

    Returns what a builder is given, queries, all keys and values by token, and the
    cache's slot of each of these tokens.
    """
    rng = random.Random(0)
    torch.manual_seed(0)
    totals = [context + new for context, new in lengths]
    blocks = [-(-total // BLOCK) for total in totals]
    order = rng.sample(range(1, sum(blocks) + 4), sum(blocks))
    table = torch.zeros(len(lengths), max(blocks), dtype=torch.int32)
    slots = []
    for i, (total, count) in enumerate(zip(totals, blocks, strict=True)):
        mine, order = order[:count], order[count:]
        table[i, :count] = torch.tensor(mine)
        slots += [mine[t // BLOCK] * BLOCK + t % BLOCK for t in range(total)]
    new = [n for _, n in lengths]
    starts = torch.tensor([0, *torch.tensor(new).cumsum(0)], dtype=torch.int32)
    common = SimpleNamespace(
        num_reqs=len(lengths),
        num_actual_tokens=sum(new),
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=torch.tensor(totals, dtype=torch.int32),
        block_table_tensor=table,
        causal=causal,
    )
    query = torch.randn(sum(new), heads, 64, dtype=dtype)
    keys, values = torch.randn(2, sum(totals), 2, 64, dtype=dtype)
    return common, query, torch.stack([keys, values]), table, slots


def run(
    lengths: list[tuple[int, int]],
    dtype: torch.dtype = torch.float32,
    causal: bool = True,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, KunlunMetadata]:
    """Return what the backend makes of a drawn batch, and the reference."""
    common, query, both, _, slots = batch(lengths, dtype, causal)
    shape = KunlunAttentionBackend.get_kv_cache_shape(len(slots) + 8, BLOCK, 2, 64)
    cache = torch.full(shape, float("nan"), dtype=dtype)
    impl = KunlunAttentionImpl(4, 64, 1 / 8, 2, **options)
    # A token of padding at the end, as the runner may have it.
    padding = torch.full((1, 2, 64), 7.0, dtype=dtype)
    impl.do_kv_cache_update(
        None,
        torch.cat([both[0], padding]),
        torch.cat([both[1], padding]),
        cache,
        torch.tensor([*slots, -1]),
    )
    builder = KunlunMetadataBuilder(None, [], None, torch.device("cpu"))
    metadata = builder.build(0, common)
    output = torch.full_like(query, float("nan"))
    impl.forward(None, query, None, None, cache, metadata, output)
    expected, begin, first = [], 0, 0
    for context, new in lengths:
        total = slice(begin, begin + context + new)
        expected.append(
            reference(
                query[first : first + new],
                both[0, total],
                both[1, total],
                causal,
                options.get("sliding_window"),
                options.get("logits_soft_cap"),
            )
        )
        begin, first = total.stop, first + new
    return output, torch.cat(expected).to(dtype), metadata


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([None, 1, 5, 100]),
    st.sampled_from([None, 3.0]),
    st.sampled_from([1, 600, 1 << 26]),
)
@example([(0, 1)], True, None, None, 1 << 26)
@example([(15, 1), (16, 1), (0, 17)], True, None, None, 1)
@settings(max_examples=25, deadline=None)
def test_torchs_way(
    lengths: list[tuple[int, int]],
    causal: bool,
    window: int | None,
    cap: float | None,
    scores: int,
) -> None:
    """Contexts, drafts, windows and caps, whole and in pieces, against a reference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_attention, "_SCORES", scores)
        output, expected, _ = run(
            lengths, causal=causal, sliding_window=window, logits_soft_cap=cap
        )
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Install the made-up `kunlun_ops`."""
    module, calls = make_module()
    monkeypatch.setitem(sys.modules, "kunlun_ops", module)
    return calls


MIXED = [(20, 1), (3, 1), (0, 7), (33, 4), (9, 1)]


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize(
    ("lengths", "causal", "kernels"),
    [
        (MIXED, True, {"paged_attention": 2, "prefill_attention": 3}),
        ([(20, 1), (3, 1)], True, {"paged_attention": 2}),
        ([(0, 7), (8, 3)], True, {"prefill_attention": 2}),
        ([(16, 4), (5, 4)], False, {"prefill_attention": 2}),
    ],
    ids=["mixed", "decodes", "prompts", "drafts"],
)
def test_the_vendors_kernels(
    lengths: list[tuple[int, int]],
    causal: bool,
    kernels: dict[str, int],
    calls: list[Call],
) -> None:
    """Each gets its share of the batch, with lengths that fit together."""
    output, expected, _ = run(lengths, torch.bfloat16, causal)
    torch.testing.assert_close(output, expected, atol=0.03, rtol=0.03)
    assert calls[0][0] == "reshape_and_cache_flash"
    assert {name: args["requests"] for name, args in calls[1:]} == kernels


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize("missing", ["paged_attention", "prefill_attention", "both"])
def test_what_is_missing_is_torchs(
    missing: str, calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel without the other still does its part."""
    names = ["paged_attention", "prefill_attention"]
    for name in names if missing == "both" else [missing]:
        monkeypatch.delattr(sys.modules["kunlun_ops"], name)
    output, expected, _ = run(MIXED, torch.bfloat16)
    torch.testing.assert_close(output, expected, atol=0.03, rtol=0.03)
    left = set(names) - ({*names} if missing == "both" else {missing})
    assert {name for name, _ in calls[1:]} == left


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize(
    "options", [{"sliding_window": 6}, {"logits_soft_cap": 3.0}], ids=["window", "cap"]
)
def test_windows_and_caps_are_torchs(
    options: dict[str, Any], calls: list[Call]
) -> None:
    """How the vendor's kernels mean them is not known for sure."""
    output, expected, _ = run(MIXED, torch.bfloat16, **options)
    torch.testing.assert_close(output, expected, atol=0.03, rtol=0.03)
    assert [name for name, _ in calls] == ["reshape_and_cache_flash"]


def test_metadata() -> None:
    """Leading decodes are counted, and lengths are there on both sides."""
    _, _, metadata = run(MIXED)
    assert metadata.num_decodes == 2
    assert metadata.kv_start_loc_cpu.tolist() == [0, 21, 25, 32, 69, 79]
    assert metadata.seq_lens_cpu.dtype == torch.int32


def test_a_batch_of_both_kinds_is_refused() -> None:
    """Some diffusion models have them."""
    common, *_ = batch([(0, 3)], torch.float32, True)
    common.causal = torch.tensor([True])
    builder = KunlunMetadataBuilder(None, [], None, torch.device("cpu"))
    with pytest.raises(NotImplementedError, match="causal and other requests is not"):
        builder.build(0, common)


@pytest.mark.parametrize(
    ("option", "name"),
    [({"alibi_slopes": [0.5]}, "ALiBi"), ({"sinks": torch.ones(4)}, "sinks")],
)
def test_biases_are_refused(option: dict[str, Any], name: str) -> None:
    """When the model is made, not when it is wrong."""
    with pytest.raises(ValueError, match=f"Attention with {name} is not supported"):
        KunlunAttentionImpl(4, 64, 1 / 8, 2, **option)


def test_profiling_needs_no_batch() -> None:
    """Memory is measured before there is a cache."""
    impl = KunlunAttentionImpl(4, 64, 1 / 8, 2)
    output = torch.full((3, 4, 64), float("nan"))
    impl.forward(None, output, None, None, None, None, output)  # type: ignore[arg-type]
    assert not output.isnan().any()
