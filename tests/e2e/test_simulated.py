# SPDX-License-Identifier: Apache-2.0
"""Engines on the XPU's kernels, simulated, give the tokens of the host's kernels."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import VOCAB_SIZE
from engine import dspark, engine
from vllm import LLM, SamplingParams

from vllm_kunlun import backend

PROMPTS = [
    [(7 * i + 3 * k) % VOCAB_SIZE for k in range(n)]
    for i, n in enumerate((1, 5, 17, 40))
]
GREEDY: dict[str, Any] = {"temperature": 0}
# One of each request: what a batch mixes.
REQUESTS: list[dict[str, Any]] = [
    GREEDY,
    {"temperature": 0, "repetition_penalty": 1.3, "presence_penalty": 0.5},
    {"temperature": 0, "allowed_token_ids": list(range(40, 90)), "logprobs": 2},
    {"temperature": 0.9, "seed": 11, "min_p": 0.05},
]
MACHINES = ["sim:12x64:1", "sim:1x64"]


@pytest.fixture(autouse=True)
def host_afterwards() -> Iterator[None]:
    """Leave the process as it was."""
    yield
    backend.use("host")


def answers(llm: LLM, requests: list[dict[str, Any]]) -> list[list[int]]:
    """Return the tokens of each prompt, with a kind of request each."""
    params = [
        SamplingParams(**r, max_tokens=8, ignore_eos=True, detokenize=False)
        for r in requests
    ]
    prompts: list[Any] = [{"prompt_token_ids": p} for p in PROMPTS]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [list(o.outputs[0].token_ids) for o in outputs]


@pytest.mark.parametrize("drafts", [False, True], ids=["plain", "dspark"])
def test_same_tokens_as_on_the_host(
    bigram_model: Path, bigram_draft: Path, drafts: bool
) -> None:
    """One engine, asked on each backend: the caches of one are read by the other."""
    speculative = dspark(bigram_draft, 3) if drafts else None
    options: dict[str, Any] = {"block_size": 16, "enable_prefix_caching": False}
    with engine(
        bigram_model, use_v2=True, speculative_config=speculative, **options
    ) as llm:
        for requests in ([GREEDY] * len(PROMPTS), REQUESTS):
            backend.use("host")
            expected = answers(llm, requests)
            assert backend.simulated_launches() == 0 or requests is REQUESTS
            for machine in MACHINES:
                before = backend.simulated_launches()
                backend.use(machine)
                assert answers(llm, requests) == expected
                assert backend.simulated_launches() > before + 50
