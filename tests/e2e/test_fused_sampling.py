# SPDX-License-Identifier: Apache-2.0
"""Masks and sampling in one launch each: the same answers as with the switches off."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine import dspark, engine
from test_sampling import NOT_WITH_DRAFTS, REQUESTS, TEXT
from vllm import LLM, SamplingParams

from vllm_kunlun.bench.calls import Calls
from vllm_kunlun.step.stages import make_stages
from vllm_kunlun.switches import ALL_OFF, Switches

SWITCHES = {
    "off": ALL_OFF,
    "mask_fuse": replace(ALL_OFF, mask_fuse=True),
    "gumbel_greedy": replace(ALL_OFF, gumbel_greedy=True),
    "rej_xpu": replace(ALL_OFF, rej_xpu=True),
    "all": replace(ALL_OFF, mask_fuse=True, gumbel_greedy=True, rej_xpu=True),
}
FUSED = {
    "mask_fuse": {"fused_logits"},
    "gumbel_greedy": {"verify_greedy"},
    "rej_xpu": {"rejection_sample"},
    "all": {"fused_logits", "verify_greedy", "rejection_sample"},
}
PROMPTS = ["the quick brown fox", "vllm " * 20]
# The long prompt takes several steps, and a step has prompts and outputs.
OPTIONS: dict[str, Any] = {
    **TEXT,
    "enable_prefix_caching": False,
    "max_num_batched_tokens": 72,
    "max_num_seqs": 24,
}
SAMPLED: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 1.0},
    "warm": {"temperature": 1.4, "logprobs": 3},
    "min_p": {"temperature": 1.5, "min_p": 0.2},
    "top_k": {"temperature": 1.3, "top_k": 5},
    "top_p": {"temperature": 1.3, "top_p": 0.8, "presence_penalty": 1.0},
    "grammar": {"temperature": 1.1, **REQUESTS["regex"]},
}
NOT_SAMPLED_WITH_DRAFTS = {"min_p"}
# Batches in which all requests are of one kind, and one of everything.
BATCHES = {
    "everything": {*REQUESTS, *SAMPLED} - {"logprob_token_ids"},
    "greedy": {"plain"},
    "greedy, masked": {"all penalties", "choice", "bad_words"},
    "greedy, with logprobs": {"plain", "logprobs", "choice"},
    "sampled": {"temperature"},
    "sampled, masked": {"min_p", "grammar", "all penalties"},
    "logprob_token_ids": {"logprob_token_ids"},
}


def switch(llm: LLM, switches: Switches) -> None:
    """Let the engine's runner sample with these switches from now on."""

    def on(worker: Any) -> None:
        runner = worker.model_runner
        made = make_stages(runner, switches)
        runner.fused = replace(
            runner.fused, sample=made.sample, add_requests=made.add_requests
        )

    llm.collective_rpc(on)


def ask(llm: LLM, names: set[str]) -> list[Any]:
    """Answer all prompts for all these kinds of requests in one batch."""
    params = [
        SamplingParams(
            **{
                "temperature": 0,
                "max_tokens": 10,
                "seed": 7 * i,
                **{**REQUESTS, **SAMPLED}[name],
            }
        )
        for i, name in enumerate(sorted(names))
        for _ in PROMPTS
    ]
    outputs = llm.generate(PROMPTS * len(names), params, use_tqdm=False)
    return [
        (
            o.outputs[0].token_ids,
            o.outputs[0].finish_reason,
            o.outputs[0].logprobs,
            o.prompt_logprobs,
        )
        for o in outputs
    ]


def compare(llm: LLM, drafts: bool) -> Counter[str]:
    """Answer all batches with each of the switches; return what was launched."""
    launched: Counter[str] = Counter()
    left_out = NOT_WITH_DRAFTS | NOT_SAMPLED_WITH_DRAFTS if drafts else set()
    for batch, names in BATCHES.items():
        names = names - left_out
        answers = {}
        for name, switches in SWITCHES.items():
            switch(llm, switches)
            with Calls() as calls:
                answers[name] = ask(llm, names)
            launches = {
                op.removeprefix("vllm_kunlun::"): n for op, n in calls.names.items()
            }
            fused = launches.keys() & FUSED["all"]
            assert fused <= FUSED.get(name, set()), (batch, name)
            launched.update({f"{name} {op}": launches[op] for op in fused})
        for name, answer in answers.items():
            assert answer == answers["off"], (batch, name)
    return launched


@pytest.fixture(scope="module")
def plain(text_model: Path) -> Iterator[LLM]:
    """Start an engine without drafts."""
    with engine(text_model, use_v2=True, **OPTIONS) as llm:
        yield llm


@pytest.fixture(scope="module")
def drafting(text_model: Path, text_draft: Path) -> Iterator[LLM]:
    """Start an engine with drafts that are sampled."""
    speculative = dspark(text_draft, 3, draft_sample_method="probabilistic")
    with engine(text_model, speculative_config=speculative, **OPTIONS) as llm:
        yield llm


@pytest.mark.parametrize("engine_name", ["plain", "drafting"])
def test_same_answers(engine_name: str, request: pytest.FixtureRequest) -> None:
    """Tokens, logprobs and reasons to finish, whatever the switches; each is used."""
    llm = request.getfixturevalue(engine_name)
    launched = compare(llm, drafts=engine_name == "drafting")
    for name, fused in FUSED.items():
        for op in fused:
            assert launched[f"{name} {op}"] > 0, (name, op)


def with_sampler(llm: LLM, change: Callable[[Any], None]) -> None:
    """Change the runner that holds the samplers."""
    llm.collective_rpc(lambda worker: change(worker.model_runner))


@pytest.mark.parametrize("engine_name", ["plain", "drafting"])
@pytest.mark.parametrize("what", ["processed_logprobs", "nans"])
def test_what_has_no_fused_form(
    what: str, engine_name: str, request: pytest.FixtureRequest
) -> None:
    """Logprobs of processed logits, and counts of NaN, are upstream's."""
    llm = request.getfixturevalue(engine_name)

    def change(runner: Any, on: bool) -> None:
        mode = "processed" if on and what == "processed_logprobs" else "raw"
        runner.sampler.logprobs_mode = f"{mode}_logprobs"
        runner.sampler.compute_nans = on and what == "nans"

    with_sampler(llm, lambda runner: change(runner, True))
    names = {"logprobs", "choice", "warm", "top_k"}
    answers = []
    for name in ("off", "all"):
        switch(llm, SWITCHES[name])
        answers.append(ask(llm, names))
    with_sampler(llm, lambda runner: change(runner, False))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("method", ["block", "synthetic"])
def test_other_ways_to_verify(method: str, drafting: LLM) -> None:
    """Block verification, and acceptance rates that are given."""

    def change(runner: Any, on: bool) -> None:
        verifier = runner.rejection_sampler
        verifier.use_block_verification = on and method == "block"
        rates = torch.tensor([0.9, 0.5, 0.2]) if on and method == "synthetic" else None
        verifier.synthetic_conditional_rates = rates

    with_sampler(drafting, lambda runner: change(runner, True))
    answers = []
    for name in ("off", "all"):
        switch(drafting, SWITCHES[name])
        answers += [[ask(drafting, {"plain"}), ask(drafting, {"plain", "warm"})]]
    with_sampler(drafting, lambda runner: change(runner, False))
    assert answers[0] == answers[1]
