# SPDX-License-Identifier: Apache-2.0
"""Greedy in float32: V1, V2 and V2 + dspark give the same tokens, token for token."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import VOCAB_SIZE
from engine import dspark, engine, tokens
from vllm import LLM


def prompts(count: int, shortest: int, longest: int, seed: int = 0) -> list[list[int]]:
    """Draw random prompts."""
    rng = random.Random(seed)
    lengths = [rng.randint(shortest, longest) for _ in range(count)]
    return [[rng.randrange(VOCAB_SIZE) for _ in range(n)] for n in lengths]


def metric(llm: LLM, name: str) -> float:
    """Return a counter of the engine."""
    return sum(getattr(m, "value", 0) for m in llm.get_metrics() if m.name == name)


@dataclass(frozen=True)
class Scenario:
    """Requests, the engine they run on, and what must have happened there."""

    prompts: list[list[int]]
    max_tokens: int = 16
    options: dict[str, Any] = field(default_factory=dict)
    happened: str | None = None
    lookahead: int = 3


SHARED = prompts(1, 64, 64, seed=7)[0]

SCENARIOS = {
    "one request": Scenario(prompts(1, 5, 5)),
    "one token prompts": Scenario(prompts(4, 1, 1)),
    "32 requests": Scenario(prompts(32, 1, 60), max_tokens=24),
    "more requests than seats": Scenario(
        prompts(11, 1, 40), options={"max_num_seqs": 3}
    ),
    "chunked prefill": Scenario(
        prompts(6, 40, 150, seed=1),
        options={"max_num_batched_tokens": 48, "max_num_seqs": 4},
    ),
    "prefix cache": Scenario(
        [SHARED + p for p in prompts(5, 1, 20, seed=2)] + [SHARED],
        options={"max_num_seqs": 2, "enable_prefix_caching": True},
        happened="vllm:prefix_cache_hits",
    ),
    "preemption": Scenario(
        prompts(8, 30, 45, seed=3),
        max_tokens=60,
        options={"num_gpu_blocks_override": 30},
        happened="vllm:num_preemptions",
    ),
    # With room for 7 drafts in a block, the draft reaches past the limit on both
    # sides of a block border.
    "max_model_len": Scenario(
        prompts(1, 100, 100) + prompts(1, 97, 97),
        max_tokens=100,
        options={"max_model_len": 128},
        lookahead=7,
    ),
    "max_model_len inside a block": Scenario(
        prompts(3, 50, 60),
        max_tokens=100,
        options={"max_model_len": 74},
        lookahead=7,
    ),
    "long drafts": Scenario(prompts(5, 1, 30, seed=4), max_tokens=40, lookahead=15),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_tokens(name: str, model: Path, draft: Path) -> None:
    """All three agree, and the scenario was what its name says."""
    compare(SCENARIOS[name], model, draft)


@pytest.mark.parametrize(
    "name", ["32 requests", "chunked prefill", "preemption", "max_model_len"]
)
def test_same_tokens_with_accepted_drafts(
    name: str, bigram_model: Path, bigram_draft: Path
) -> None:
    """The same with a draft that is often right, so that drafts are accepted."""
    acceptance = compare(SCENARIOS[name], bigram_model, bigram_draft)
    assert 0.3 < acceptance < 0.99


def compare(s: Scenario, model: Path, draft: Path) -> float:
    """Compare the three ways and return which part of the drafts was accepted."""
    options = {"block_size": 16, **s.options}
    with engine(model, use_v2=False, **options) as llm:
        expected = tokens(llm, s.prompts, s.max_tokens)
    with engine(model, use_v2=True, **options) as llm:
        assert tokens(llm, s.prompts, s.max_tokens) == expected
        assert s.happened is None or metric(llm, s.happened) > 0
    speculative = dspark(draft, s.lookahead)
    with engine(model, speculative_config=speculative, **options) as llm:
        assert tokens(llm, s.prompts, s.max_tokens) == expected
        drafted = metric(llm, "vllm:spec_decode_num_draft_tokens")
        accepted = metric(llm, "vllm:spec_decode_num_accepted_tokens")
        assert drafted > 0
        assert s.happened is None or metric(llm, s.happened) > 0
    longest = options.get("max_model_len", 256)
    for prompt, out in zip(s.prompts, expected, strict=True):
        assert len(out) == min(s.max_tokens, longest - len(prompt))
    return accepted / drafted
