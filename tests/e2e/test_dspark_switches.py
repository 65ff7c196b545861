# SPDX-License-Identifier: Apache-2.0
"""Each switch of the draft path alone: the same tokens, and drafts as good."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from engine import dspark, engine, tokens
from vllm import LLM

from vllm_kunlun import switches

DRAFT_PATH = ("draft_cache", "lazy_kv", "spec_vec", "dflash_vec")

COMBINATIONS = {
    "all off": (),
    **{name: (name,) for name in DRAFT_PATH},
    "all on": DRAFT_PATH,
}


@contextmanager
def switched_on(names: tuple[str, ...]) -> Iterator[None]:
    """Have engines read just these switches as on."""
    chosen = replace(switches.ALL_OFF, **dict.fromkeys(names, True))
    current = switches.current
    switches.current = lambda: chosen  # type: ignore[assignment]
    try:
        yield
    finally:
        switches.current = current


@dataclass(frozen=True)
class Result:
    """What an engine gave for the requests."""

    tokens: list[list[int]]
    drafted: float
    accepted: float


def metric(llm: LLM, name: str) -> float:
    """Return a counter of the engine."""
    name = f"vllm:spec_decode_num_{name}_tokens"
    return sum(getattr(m, "value", 0) for m in llm.get_metrics() if m.name == name)


def run(model: Path, draft: Path, names: tuple[str, ...], **params: Any) -> Result:
    """Generate with the switches `names`: prefill in chunks, beside decodes."""
    rng = random.Random(5)
    prompts = [[rng.randrange(512) for _ in range(n)] for n in (1, 60, 7, 100, 23, 40)]
    options: dict[str, Any] = {
        "max_num_batched_tokens": 48,
        "max_num_seqs": 4,
        "block_size": 16,
    }
    speculative = dspark(draft, 5, **params.pop("speculative", {}))
    with (
        switched_on(names),
        engine(model, speculative_config=speculative, **options) as llm,
    ):
        out = tokens(llm, prompts, 24, **params)
        return Result(out, metric(llm, "draft"), metric(llm, "accepted"))


@pytest.fixture(scope="module")
def expected(bigram_model: Path, bigram_draft: Path) -> Result:
    """Give what upstream's drafter gives."""
    result = run(bigram_model, bigram_draft, ())
    assert 0.1 < result.accepted / result.drafted < 0.99
    return result


@pytest.mark.parametrize("name", list(COMBINATIONS)[1:])
def test_greedy(
    name: str, bigram_model: Path, bigram_draft: Path, expected: Result
) -> None:
    """Tokens are the same, and as many drafts were made and accepted."""
    assert run(bigram_model, bigram_draft, COMBINATIONS[name]) == expected


@pytest.mark.parametrize("method", ["greedy", "probabilistic"])
def test_sampled(method: str, bigram_model: Path, bigram_draft: Path) -> None:
    """Seeded samples are the same, too, whatever the drafts are drawn from."""
    params: dict[str, Any] = {
        "temperature": 0.8,
        "seed": 7,
        "speculative": {"draft_sample_method": method},
    }
    off = run(bigram_model, bigram_draft, (), **params)
    params["speculative"] = {"draft_sample_method": method}
    assert run(bigram_model, bigram_draft, DRAFT_PATH, **params) == off
    assert off.accepted > 0
