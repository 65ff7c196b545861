# SPDX-License-Identifier: Apache-2.0
"""Engines on the XPU's kernels, simulated, give the tokens of the host's kernels."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import VOCAB_SIZE
from engine import dspark, engine
from vllm import LLM, SamplingParams

from vllm_kunlun import backend, switches

LENGTHS = (1, 5, 17, 40)
PROMPTS = [
    [(7 * i + 3 * k) % VOCAB_SIZE for k in range(n)] for i, n in enumerate(LENGTHS)
]
GREEDY: dict[str, Any] = {"temperature": 0}
# One of each request: what a batch mixes.
REQUESTS: list[dict[str, Any]] = [
    GREEDY,
    {"temperature": 0, "repetition_penalty": 1.3, "presence_penalty": 0.5},
    {"temperature": 0, "allowed_token_ids": list(range(40, 90)), "logprobs": 2},
    {"temperature": 0.9, "seed": 11},
]
# Upstream's frontend refuses it together with drafts.
NOT_WITH_DRAFTS: dict[str, Any] = {"temperature": 0.9, "seed": 11, "min_p": 0.05}


@pytest.fixture(params=[False, True], ids=["singly", "fused"])
def fused(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Launch for launch as upstream's runner does it, or with all switches on.

    Leaves the process as it was.
    """
    chosen = switches.Switches() if request.param else switches.ALL_OFF
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(switches, "current", lambda: chosen)
        yield request.param
    backend.use("host")


def answers(
    llm: LLM, requests: list[dict[str, Any]], max_tokens: int = 8
) -> list[list[int]]:
    """Return the tokens of each prompt, with a kind of request each."""
    params = [
        SamplingParams(**r, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
        for r in requests
    ]
    prompts: list[Any] = [{"prompt_token_ids": p} for p in PROMPTS]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [list(o.outputs[0].token_ids) for o in outputs]


@pytest.mark.parametrize("drafts", [False, True], ids=["plain", "dspark"])
def test_same_tokens_as_on_the_host(
    bigram_model: Path, bigram_draft: Path, drafts: bool, fused: bool
) -> None:
    """One engine, asked on one backend after the other."""
    speculative = dspark(bigram_draft, 3) if drafts else None
    options: dict[str, Any] = {"block_size": 16, "enable_prefix_caching": False}
    with engine(
        bigram_model, use_v2=True, speculative_config=speculative, **options
    ) as llm:
        last = [] if drafts else [[NOT_WITH_DRAFTS] * len(PROMPTS)]
        for requests in ([GREEDY] * len(PROMPTS), REQUESTS, *last):
            backend.use("host")
            before = backend.simulated_launches()
            expected = answers(llm, requests)
            assert backend.simulated_launches() == before
            for machine in ("sim:12x64:1", "sim:1x64"):
                backend.use(machine)
                before = backend.simulated_launches()
                assert answers(llm, requests) == expected
                assert backend.simulated_launches() > before + 20


def test_same_drafts_without_a_draft_model(bigram_model: Path, fused: bool) -> None:
    """Drafts from a request's own tokens: as many are verified, as many accepted."""
    # A measured cost would not be the same twice.
    cost = {"draft_verify_cost": 0.01}
    speculative = {"method": "dspark", "num_speculative_tokens": 5, **cost}
    options: dict[str, Any] = {"block_size": 16, "enable_prefix_caching": False}
    found = []
    # An engine each: how many are verified depends on what it has learned.
    for machine in ("host", "sim:12x64:1", "sim:1x64"):
        with engine(
            bigram_model, use_v2=True, speculative_config=speculative, **options
        ) as llm:
            backend.use(machine)
            launches = backend.simulated_launches()
            tokens = [answers(llm, [GREEDY] * len(PROMPTS), 40), answers(llm, REQUESTS)]
            found.append((tokens, accepted(llm)))
            assert (backend.simulated_launches() > launches) == (machine != "host")
    assert found[0][1] > 50
    assert found == [found[0]] * len(found)


def accepted(llm: LLM) -> int:
    """Return how many drafts were right since the engine's start."""
    name = "vllm:spec_decode_num_accepted_tokens"
    (counter,) = [m for m in llm.get_metrics() if m.name == name]
    return int(getattr(counter, "value", 0))
