# SPDX-License-Identifier: Apache-2.0
"""A real `ModelRunnerV2` on a CPU, around a model that costs nothing."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import vllm.v1.worker.cpu.shm  # noqa: F401  # a CPU's stand-ins for streams and events
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import (
    ensure_model_parallel_initialized,
    init_distributed_environment,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from vllm.v1.worker.cpu.model_runner import CPUModelRunner
from vllm.v1.worker.gpu.model_runner_v2 import ModelRunnerV2

from vllm_kunlun.bench.step.null_model import (
    HIDDEN,
    LOAD_FORMAT,
    NullLayer,
    cache_spec,
)

MAX_MODEL_LEN = 4096


@dataclass(frozen=True)
class Shape:
    """How large a step is."""

    requests: int
    drafts: int
    groups: int = 1
    vocabulary: int = 128
    hidden: int = HIDDEN


@contextmanager
def one_process(config: VllmConfig) -> Iterator[None]:
    """Set up the process groups of a world of one, without a port."""
    with tempfile.TemporaryDirectory() as folder, set_current_vllm_config(config):
        init_distributed_environment(
            1, 0, f"file://{folder}/store", local_rank=0, backend="gloo"
        )
        ensure_model_parallel_initialized(1, 1)
        yield


def make_config(shape: Shape, folder: Path) -> VllmConfig:
    """Return the config of an engine whose models `null_model` makes.

    Args:
        shape: sizes of the step.
        folder: where the two models' ``config.json`` are written.
    """
    speculative = None
    if shape.drafts:
        speculative = {
            "method": "dspark",
            "model": str(_write(folder / "draft", _draft_config(shape))),
            "num_speculative_tokens": shape.drafts,
        }
    per_request = max(2 * shape.drafts + 2, 16)
    return EngineArgs(
        model=str(_write(folder / "target", _target_config(shape))),
        load_format=LOAD_FORMAT,
        model_loader_extra_config={"groups": shape.groups},
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=shape.requests,
        max_num_batched_tokens=max(shape.requests * per_request, 64),
        kv_cache_memory_bytes=1 << 26,
        enable_prefix_caching=False,
        speculative_config=speculative,
    ).create_engine_config()


def make_runner(
    config: VllmConfig, groups: int, set_stages: Callable[[ModelRunnerV2], None]
) -> ModelRunnerV2:
    """Return a runner that is ready for its first step.

    Args:
        config: of `make_config`.
        groups: of the KV cache.
        set_stages: chooses the stages of a runner that was just made.
    """
    with set_current_vllm_config(config):
        runner = CPUModelRunner(config, torch.device("cpu"))
        set_stages(runner)
        runner.load_model()
        context = config.compilation_config.static_forward_context
        names = [n for n, layer in context.items() if isinstance(layer, NullLayer)]
        runner.initialize_kv_cache(_cache_config(names, groups))
    return runner


def _cache_config(names: list[str], groups: int) -> KVCacheConfig:
    # Nothing reads the cache: blocks need ids, not memory.
    spec = cache_spec()
    blocks = 1
    return KVCacheConfig(
        num_blocks=blocks,
        kv_cache_tensors=[
            KVCacheTensor(size=spec.page_size_bytes * blocks, shared_by=[name])
            for name in names
        ],
        kv_cache_groups=[
            KVCacheGroupSpec(names[group::groups], spec) for group in range(groups)
        ],
    )


def _write(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _target_config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": 4,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": MAX_MODEL_LEN,
        "rms_norm_eps": 1e-5,
    }


def _draft_config(shape: Shape) -> dict[str, Any]:
    return _target_config(shape) | {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "head_dim": shape.hidden,
        "num_hidden_layers": 1,
        "block_size": shape.drafts,
        "mask_token_id": 0,
        "target_layer_ids": [1],
        "markov_rank": 1,
        "markov_head_type": "vanilla",
        "enable_confidence_head": False,
    }
