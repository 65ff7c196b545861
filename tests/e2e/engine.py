# SPDX-License-Identifier: Apache-2.0
"""Start an engine in this process, ask it, take it down."""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import vllm.envs as envs
from vllm import LLM, SamplingParams
from vllm.platforms import current_platform
from vllm.v1.engine.core_client import InprocClient

DEFAULTS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "skip_tokenizer_init": True,
    "max_model_len": 256,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 512,
    "kv_cache_memory_bytes": 1 << 26,
    "disable_log_stats": False,
}
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "detokenize": False}


@contextmanager
def engine(model: Path, *, use_v2: bool | None = None, **options: Any) -> Iterator[LLM]:
    """Give an engine whose ``VLLM_USE_V2_MODEL_RUNNER`` is 1, 0 or not set."""
    name = "VLLM_USE_V2_MODEL_RUNNER"
    os.environ.pop(name, None)
    if use_v2 is not None:
        os.environ[name] = str(int(use_v2))
    # An engine before this one may have frozen what the environment said then.
    envs.disable_envs_cache()
    # An engine collects garbage half a dozen times, which takes a second each where
    # it walks through all that torch and vllm have imported.
    gc.freeze()
    llm = LLM(str(model), **{**DEFAULTS, **options})
    compile_grammars_at_once(llm)
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()
        os.environ.pop(name, None)


def compile_grammars_at_once(llm: LLM) -> None:
    """Let no request wait for its grammar, which a loaded machine makes longer.

    The waiting one starts some steps later, in other batches, whose rounding is
    another one: then the same requests twice do not give the same log probabilities.
    """
    client = llm.llm_engine.engine_core
    # In a process of its own the core is as it is when it serves.
    if isinstance(client, InprocClient):
        manager = client.engine_core.structured_output_manager
        manager._use_async_grammar_compilation = False


def dspark(draft: Path, num_speculative_tokens: int = 3, **more: Any) -> dict[str, Any]:
    """Return the speculative config for `draft`."""
    return {
        "method": "dspark",
        "model": str(draft),
        "num_speculative_tokens": num_speculative_tokens,
        **more,
    }


def tokens(
    llm: LLM, prompts: Sequence[Sequence[int]], max_tokens: int = 16, **params: Any
) -> list[list[int]]:
    """Return the tokens of each prompt's greedy continuation."""
    sampling = SamplingParams(**{**GREEDY, "max_tokens": max_tokens, **params})
    requests: list[Any] = [{"prompt_token_ids": list(p)} for p in prompts]
    outputs = llm.generate(requests, sampling, use_tqdm=False)
    return [list(o.outputs[0].token_ids) for o in outputs]


def keep_async_scheduling(patch: pytest.MonkeyPatch) -> None:
    """Turn it on, where the platform for CPUs always turns it off."""
    platform = type(current_platform)
    update = platform.check_and_update_config

    def keep_async(config: Any) -> None:
        update(config)
        config.scheduler_config.async_scheduling = True

    patch.setattr(platform, "check_and_update_config", staticmethod(keep_async))


def runner(llm: LLM) -> type:
    """Return the class of the worker's model runner."""
    classes: list[type] = llm.collective_rpc(lambda w: type(w.model_runner))
    return classes[0]


def run_script(
    script: str, folder: Path, **environment: str
) -> tuple[dict[str, Any], str]:
    """Run `script` in a process of its own, from a file in `folder`.

    Returns:
        What it printed as ``FOUND`` and a JSON object, and all that it wrote.
    """
    file = folder / "script.py"
    file.write_text(script)
    done = subprocess.run(
        [sys.executable, str(file)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    written = done.stdout + done.stderr
    assert done.returncode == 0, written
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("FOUND ")]
    found: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return found, written
