# SPDX-License-Identifier: Apache-2.0
"""What differs between vLLM versions is asked of the version that is installed."""

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.worker import utils
from vllm.v1.worker.gpu import model_runner

from vllm_kunlun import upstream

RUNNER: Any = SimpleNamespace(
    decode_query_len=4,
    kv_caches=["cache"],
    kv_cache_config=SimpleNamespace(num_blocks=9),
)


def test_the_order_is_upstreams() -> None:
    """Where upstream has a rule of its own, ours leads the batch as that does."""
    counts = {"prefill": 7, "decode": 4, "short": 2, "one": 1}
    first = RUNNER.decode_query_len if upstream.uniform_decodes_lead() else 1
    ours = sorted(counts, key=lambda r: (counts[r] != first, counts[r]))
    theirs = getattr(model_runner, "sort_batch_req_ids", None)
    if theirs is None:
        assert ours == ["one", "short", "decode", "prefill"]
    else:
        assert ours == theirs(counts, RUNNER.decode_query_len)


def test_shared_blocks_are_copied_where_the_scheduler_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nothing happens where it does not, or cannot."""
    calls: list[tuple[Any, ...]] = []
    name = "copy_kv_cache_blocks_inplace"
    monkeypatch.setattr(utils, name, lambda *a: calls.append(a), raising=False)
    outputs: list[Any] = [
        SimpleNamespace(),
        SimpleNamespace(kv_cache_block_copies=None),
    ]
    for output in outputs:
        upstream.copy_shared_blocks(RUNNER, output)
    assert calls == []
    asked: Any = SimpleNamespace(kv_cache_block_copies=[(1, 2)])
    upstream.copy_shared_blocks(RUNNER, asked)
    assert calls == [(["cache"], 9, [(1, 2)])]


@pytest.mark.parametrize(("ranks", "splits"), [(1, False), (2, True)])
def test_shared_prompts_take_upstreams_stages(ranks: int, splits: bool) -> None:
    """Their buffers are the rank's own."""
    parallel = SimpleNamespace(prefill_context_parallel_size=ranks)
    config: Any = SimpleNamespace(parallel_config=parallel)
    assert upstream.splits_prompts(config) is splits
