# SPDX-License-Identifier: Apache-2.0
"""Every combination of the KUNLUN switches gives the tokens of all off.

One engine runs them all: between two runs, when no request is left, its runner gets
the stages and the block tables of the next combination.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from engine import dspark, engine
from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from vllm_kunlun.step.stages import make_stages
from vllm_kunlun.switches import ALL_OFF, Switches

Requests = dict[str, tuple[list[int], SamplingParams]]

# What layers run is settled when a model is loaded (tests/e2e/test_layers.py).
OF_STEP = [f for f in fields(Switches) if not f.metadata.get("of model")]
SWITCHES = [f.name for f in OF_STEP if "of" not in f.metadata]
PARTS = {f.name: f.metadata["of"] for f in OF_STEP if "of" in f.metadata}

COMBINATIONS = {
    "+".join(on) or "off": replace(
        ALL_OFF,
        **{name: name in on or PARTS.get(name) in on for name in (*SWITCHES, *PARTS)},
    )
    for values in product((False, True), repeat=len(SWITCHES))
    if (on := [n for n, value in zip(SWITCHES, values, strict=True) if value]) or True
} | {part: replace(ALL_OFF, **{part: True}) for part in PARTS}


WITHOUT_DRAFTS = [n for n in COMBINATIONS if not ("draft_cache" in n or "lazy_kv" in n)]

OPTIONS: dict[str, Any] = {
    "skip_tokenizer_init": False,
    "max_model_len": 208,
    "max_num_batched_tokens": 96,
    "max_num_seqs": 8,
    "num_gpu_blocks_override": 14,
    "block_size": 16,
    "enable_prefix_caching": False,
}
"""Less KV cache than the requests need."""


@pytest.fixture(scope="module")
def with_drafts(text_model: Path, text_draft: Path) -> Iterator["Runs"]:
    """Give an engine that drafts."""
    config = dspark(text_draft, 4)
    with engine(text_model, speculative_config=config, **OPTIONS) as llm:
        yield Runs(llm, requests())


@pytest.fixture(scope="module")
def without_drafts(text_model: Path) -> Iterator["Runs"]:
    """Give one that does not, and takes what upstream refuses with drafts."""
    with engine(text_model, use_v2=True, **OPTIONS) as llm:
        yield Runs(llm, requests(min_p=True))


@pytest.mark.parametrize("name", COMBINATIONS)
def test_same_tokens_with_drafts(with_drafts: "Runs", name: str) -> None:
    """Prefills, chunks, drafts, masks, seeds, preemption and aborts, in one run."""
    assert with_drafts.run(COMBINATIONS[name]) == with_drafts.expected


@pytest.mark.parametrize("name", WITHOUT_DRAFTS)
def test_same_tokens_without_drafts(without_drafts: "Runs", name: str) -> None:
    """The same without drafts."""
    assert without_drafts.run(COMBINATIONS[name]) == without_drafts.expected


class Runs:
    """An engine, what it is asked, and the tokens of all off."""

    def __init__(self, llm: LLM, asked: "Requests") -> None:
        self.llm = llm
        self.asked = asked
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        with mock.patch.object(
            scheduler, "_preempt_request", wraps=scheduler._preempt_request
        ) as preempt:
            self.expected = self.run(ALL_OFF)
        assert preempt.called

    def run(self, switches: Switches) -> dict[str, list[int]]:
        """Return the tokens of each request under `switches`."""
        set_switches(self.llm, switches)
        core = self.llm.llm_engine
        waiting = list(self.asked.items())
        found: dict[str, list[int]] = {}
        for step in range(400):
            # Two come with every step, so that prefills meet decodes.
            for request_id, (prompt, params) in waiting[:2]:
                core.add_request(request_id, {"prompt_token_ids": prompt}, params)
            del waiting[:2]
            if step == 6:
                core.abort_request(["aborted"])
            for output in core.step():
                if output.finished:
                    found[output.request_id] = list(output.outputs[0].token_ids)
            if not waiting and not core.has_unfinished_requests():
                break
        found.pop("aborted", None)
        assert len(found) == len(self.asked) - 1
        return found


def set_switches(llm: LLM, switches: Switches) -> None:
    """Let the engine's runner go on as one that was made under `switches`."""

    def change(worker: Any) -> None:
        runner = worker.model_runner
        old = runner.block_tables
        runner.fused = make_stages(runner, switches)
        runner.block_tables = runner.make_block_tables(
            block_sizes=old.block_sizes,
            max_num_reqs=old.max_num_reqs,
            max_num_batched_tokens=old.max_num_batched_tokens,
            max_num_blocks_per_group=[
                table.gpu.shape[1] // per_block
                for table, per_block in zip(
                    old.block_tables, old.blocks_per_kv_block, strict=True
                )
            ],
            device=old.device,
            kernel_block_sizes=old.kernel_block_sizes,
        )
        if runner.speculator is not None:
            runner.speculator.block_tables = runner.block_tables
            runner.speculator.use(switches)

    llm.collective_rpc(change)


def requests(*, min_p: bool = False) -> Requests:
    """Return a mixed batch: prompts and parameters by name."""
    kinds: dict[str, dict[str, Any]] = {
        "greedy": {"temperature": 0},
        "long": {"temperature": 0},
        "aborted": {"temperature": 0, "max_tokens": 100},
        "seeded": {"temperature": 0.9, "seed": 7},
        "cut": {
            "temperature": 1.1,
            "top_k": 20,
            "top_p": 0.9,
            "seed": 3,
        },
        "penalties": {
            "temperature": 0,
            "repetition_penalty": 1.3,
            "presence_penalty": 0.4,
            "frequency_penalty": 0.2,
        },
        "allowed": {"temperature": 0.8, "seed": 5, "allowed_token_ids": [30, 31, 32]},
        "banned": {"temperature": 0, "bad_words": ["e", "th"]},
        "min tokens": {"temperature": 0, "min_tokens": 8, "ignore_eos": False},
        "logprobs": {"temperature": 0, "logprobs": 3, "prompt_logprobs": 2},
        "choice": {
            "temperature": 0,
            "ignore_eos": False,
            "structured_outputs": StructuredOutputsParams(choice=["yes", "no"]),
        },
        "regex": {
            "temperature": 0.7,
            "seed": 11,
            "structured_outputs": StructuredOutputsParams(regex="[a-c]{6}"),
        },
    }
    if min_p:
        kinds["min p"] = {"temperature": 1.1, "seed": 4, "min_p": 0.02}
        kinds["bias"] = {"temperature": 0, "logit_bias": {40: 3.0, 50: -100.0}}
    prompts = {
        name: [(7 * i + 5 * j) % 200 + 10 for j in range(5 + 3 * i)]
        for i, name in enumerate(kinds)
    }
    prompts["long"] = [(3 * j) % 200 + 10 for j in range(130)]
    shared = {"max_tokens": 18, "ignore_eos": True}
    return {
        name: (prompts[name], SamplingParams(**{**shared, **params}))
        for name, params in kinds.items()
    }
