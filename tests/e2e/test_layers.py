# SPDX-License-Identifier: Apache-2.0
"""`KUNLUN_LAYER_FUSE`: the layers in fewer launches, and the tokens of V1."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from conftest import NUM_LAYERS, VOCAB_SIZE, write_llama
from engine import dspark, engine, tokens
from vllm import LLM
from vllm import _custom_ops as compiled
from vllm.config import CompilationMode

from vllm_kunlun import switches
from vllm_kunlun.bench.calls import Calls
from vllm_kunlun.bench.layers import run as bench
from vllm_kunlun.bench.layers.products import ROWS, measure
from vllm_kunlun.bench.layers.run import Turns
from vllm_kunlun.step import linears
from vllm_kunlun.step.layers import Change, changes, fusible

PROMPTS = [[1, 5, 9, 20, 33], list(range(40, 100)), [7], list(range(3, 200, 7))]


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Qwen3, which norms its queries and keys as parts of one tensor."""
    folder = tmp_path_factory.mktemp("qwen3")
    return write_llama(folder, VOCAB_SIZE, 0.2, tie=False, family="Qwen3")


def of_model(llm: LLM, which: str = "model") -> list[Change]:
    """Return what can be changed in the target, or in the draft model."""
    worker: Any = llm.llm_engine.model_executor.driver_worker.worker
    runner = worker.model_runner
    return list(changes(runner.model if which == "model" else runner.speculator.model))


def is_made(change: Change) -> bool:
    """Whether a layer runs our form."""
    now = getattr(change.layer, change.attribute)
    if change.attribute == "_forward_method":
        return bool(now.__module__ == "vllm_kunlun.step.layers")
    if change.attribute == "cpu_linear":
        return isinstance(now, linears.OneDNNLinear | linears.BFloat16Linear)
    return bool(now == change.ours)


def kinds(found: list[Change]) -> Counter[str]:
    """Count layers by their class."""
    return Counter(type(layer).__name__ for layer in {c.layer for c in found})


def test_fewer_ops_and_the_same_tokens(model: Path, draft: Path) -> None:
    """All layers of target and draft, and each form gives the tokens of V1."""
    with engine(model, use_v2=False) as llm:
        expected = tokens(llm, PROMPTS, 12)
        assert not any(is_made(change) for change in of_model(llm))
    with engine(model, speculative_config=dspark(draft)) as llm:
        target, drafter = of_model(llm), of_model(llm, "draft")
        assert all(is_made(change) for change in [*target, *drafter])
        assert kinds(target) == {
            "RMSNorm": 2 * NUM_LAYERS + 1,
            "SiluAndMul": NUM_LAYERS,
            "Attention": NUM_LAYERS,
        }
        assert kinds(drafter)["Attention"] == kinds(drafter)["SiluAndMul"] == 1
        assert tokens(llm, PROMPTS, 12) == expected
        with Calls() as ours:
            assert tokens(llm, PROMPTS, 1) == [found[:1] for found in expected]
        for change in [*target, *drafter]:
            change.undo()
        assert tokens(llm, PROMPTS, 12) == expected
        with Calls() as upstreams:
            tokens(llm, PROMPTS, 1)
    assert ours.names["vllm_kunlun::rms_norm"] >= 2 * NUM_LAYERS + 1
    assert ours.names["vllm_kunlun::silu_and_mul"] >= NUM_LAYERS
    assert not ours.names["vllm::unified_attention_with_output"]
    assert not upstreams.names["vllm_kunlun::rms_norm"]
    saved = upstreams.names.total() - ours.names.total()
    # A norm is 8 ops less, attention 6 and more, a SwiGLU 2.
    assert saved > NUM_LAYERS * (2 * 8 + 6 + 2)


def test_keys_and_values_are_written_once(model: Path) -> None:
    """Upstream's layers write them before their attention does."""
    with engine(model, use_v2=True) as llm:
        for times in (1, 2):
            with mock.patch.object(
                compiled,
                "cpu_attn_reshape_and_cache",
                wraps=compiled.cpu_attn_reshape_and_cache,
            ) as write:
                tokens(llm, PROMPTS[:1], 1)
            assert write.call_count == times * NUM_LAYERS
            for change in of_model(llm):
                change.undo()


def test_norms_of_queries_and_keys(qwen3: Path) -> None:
    """Parts of a tensor, with rows that are not next to each other."""
    with engine(qwen3, use_v2=False) as llm:
        expected = tokens(llm, PROMPTS, 12)
    with engine(qwen3, use_v2=True) as llm:
        assert kinds(of_model(llm))["RMSNorm"] == 4 * NUM_LAYERS + 1
        assert tokens(llm, PROMPTS, 12) == expected


def test_padded_weights(
    model: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all linear layers and LM heads, on any CPU: the tokens of V1."""
    with engine(model, use_v2=False) as llm:
        expected = tokens(llm, PROMPTS, 12)
    monkeypatch.setattr(linears, "wants_padding", lambda columns: True)
    monkeypatch.setattr(linears, "helps_here", lambda: True)
    with engine(model, speculative_config=dspark(draft)) as llm:
        found = [c for c in of_model(llm) if c.attribute == "cpu_linear"]
        # The embedding is the LM head of some models, so that upstream packs it, too.
        assert len(found) == 4 * NUM_LAYERS + 2
        assert all(c.layer.cpu_linear.padding for c in found)
        assert tokens(llm, PROMPTS, 12) == expected
        for change in found:
            change.undo()
            assert not change.layer.cpu_linear.padding
        assert tokens(llm, PROMPTS, 12) == expected


def test_products_in_bfloat16(
    model: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all linear layers and LM heads, where oneDNN has none: the tokens of V1."""
    monkeypatch.setattr(compiled, "_supports_onednn", False)
    with engine(model, use_v2=False, dtype="bfloat16") as llm:
        expected = tokens(llm, PROMPTS, 12)
    monkeypatch.setattr(linears, "helps_here", lambda: True)
    with engine(model, dtype="bfloat16", speculative_config=dspark(draft)) as llm:
        found = [c for c in of_model(llm) if c.attribute == "cpu_linear"]
        assert len(found) == 4 * NUM_LAYERS + 2
        with Calls() as calls:
            assert tokens(llm, PROMPTS, 12) == expected
        assert calls.names["vllm_kunlun::linear"] >= 4 * NUM_LAYERS
        products = measure(found, 0)
        sizes = [(p.columns, p.depth) for p in products if p.rows == ROWS[0]]
        assert sizes == list(dict.fromkeys(tuple(c.layer.weight.shape) for c in found))
        assert min(p.upstream for p in products) > 0
        for change in found:
            change.undo()
            assert not is_made(change)
        assert tokens(llm, PROMPTS, 12) == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_other_dtypes(model: Path, dtype: str) -> None:
    """In bfloat16 the layers run fused; the ops know nothing of float16."""
    with engine(model, use_v2=False, dtype=dtype) as llm:
        expected = tokens(llm, PROMPTS, 12)
    with engine(model, use_v2=True, dtype=dtype) as llm:
        assert ("RMSNorm" in kinds(of_model(llm))) == (dtype == "bfloat16")
        assert tokens(llm, PROMPTS, 12) == expected


@pytest.mark.parametrize("pads", ["", "1"])
def test_switch_off(model: Path, monkeypatch: pytest.MonkeyPatch, pads: str) -> None:
    """The model is upstream's, but for the part that is on alone."""
    monkeypatch.setenv("KUNLUN_LAYER_FUSE", "0")
    monkeypatch.setenv("KUNLUN_PAD_WEIGHTS", pads)
    monkeypatch.setattr(linears, "wants_padding", lambda columns: True)
    monkeypatch.setattr(linears, "helps_here", lambda: True)
    switches.current.cache_clear()
    try:
        with engine(model, use_v2=True) as llm:
            found = of_model(llm)
            assert {c.attribute for c in found if is_made(c)} == (
                {"cpu_linear"} if pads else set()
            )
            # What undoing gives is what was there.
            for change in found:
                if change.attribute in ("attn_backend", "use_direct_call"):
                    assert getattr(change.layer, change.attribute) == change.upstream
    finally:
        switches.current.cache_clear()


def test_compiled_layers_stay() -> None:
    """The compiler fuses them, and must find what it can look into."""

    def runner(mode: CompilationMode) -> Any:
        compilation = SimpleNamespace(mode=mode)
        return SimpleNamespace(
            vllm_config=SimpleNamespace(compilation_config=compilation)
        )

    on = switches.ALL_ON
    assert fusible(runner(CompilationMode.NONE), on)
    assert not fusible(runner(CompilationMode.NONE), switches.ALL_OFF)
    assert not fusible(runner(CompilationMode.DYNAMO_TRACE_ONCE), on)
    assert not fusible(runner(CompilationMode.VLLM_COMPILE), on)


def test_benchmark(model: Path) -> None:
    """Both forms take turns, ours needs fewer ops, and ours is what stays."""
    with engine(model, use_v2=True) as llm:
        worker: Any = llm.llm_engine.model_executor.driver_worker.worker
        expected = tokens(llm, PROMPTS[:2], 20)
        found = of_model(llm)
        turns = Turns(worker.model_runner, found, 2)
        with turns.taken():
            assert tokens(llm, PROMPTS[:2], 20) == expected
        assert all(is_made(change) for change in found)
        assert "execute_model" not in vars(worker.model_runner)
    upstream, ours = turns.forms
    assert len(ours.milliseconds) >= 6
    assert len(upstream.milliseconds) >= 6
    assert 0 < ours.calls < upstream.calls - 20 * NUM_LAYERS


def test_benchmark_without_layers() -> None:
    """A model of which nothing changes is refused by name."""
    worker = SimpleNamespace(model_runner=SimpleNamespace(model=torch.nn.Linear(2, 2)))
    executor = SimpleNamespace(driver_worker=SimpleNamespace(worker=worker))
    made = SimpleNamespace(
        llm=SimpleNamespace(llm_engine=SimpleNamespace(model_executor=executor))
    )
    with (
        mock.patch.object(bench, "Engine", return_value=made),
        pytest.raises(RuntimeError, match=r"^Linear has no layers that .* --model"),
    ):
        bench.run({}, [1], 20, print)
