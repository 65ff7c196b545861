# SPDX-License-Identifier: Apache-2.0
"""Every kind of request: V2 gives what V1 gives, with and without drafts."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine import dspark, engine
from scipy.stats import chi2_contingency
from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams

PROMPTS = ["the quick brown fox", "0123456789 0123456789", "a", "vllm " * 20]
TEXT = {"skip_tokenizer_init": False}
ONE_OF = StructuredOutputsParams(choice=["yes", "no", "perhaps"])
DIGITS = StructuredOutputsParams(regex=r"[0-9]{3}-[a-f]{4}")
SCHEMA = StructuredOutputsParams(
    json={
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 22, 333]}},
        "required": ["ok", "n"],
        "additionalProperties": False,
    }
)

# Greedy requests: the tokens must be the same, not only their distribution.
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "repetition_penalty": {"repetition_penalty": 1.4},
    "frequency_penalty": {"frequency_penalty": 1.5},
    "presence_penalty": {"presence_penalty": 1.5},
    "all penalties": {
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.7,
        "presence_penalty": -0.4,
    },
    "allowed_token_ids": {"allowed_token_ids": [*range(40, 90), 200]},
    "bad_words": {"bad_words": [*map(chr, range(33, 127)), "th", "zz"]},
    "min_tokens": {"min_tokens": 9, "stop_token_ids": list(range(100))},
    "stop_token_ids": {"stop_token_ids": list(range(150, 258)), "ignore_eos": False},
    "stop": {"stop": [*map(chr, range(33, 127))]},
    "logprobs": {"logprobs": 5},
    "prompt_logprobs": {"prompt_logprobs": 3},
    "logprob_token_ids": {"logprob_token_ids": [100, 200]},
    "choice": {"structured_outputs": ONE_OF},
    "regex": {"structured_outputs": DIGITS},
    "json": {"structured_outputs": SCHEMA, "max_tokens": 60},
    "logit_bias": {"logit_bias": {7: 30.0, 8: 31.0, 9: -100.0}},
}
# In a batch with this kind, V1 gives other requests fewer logprobs than they asked for.
ALONE = {"logprob_token_ids"}
# These ask for more to be said, not for other tokens.
UNCHANGED = {"plain", "logprobs", "prompt_logprobs", "logprob_token_ids"}
# Upstream's frontend refuses these together with drafts.
NOT_WITH_DRAFTS = {"logit_bias"}


def ask(llm: LLM, names: list[str]) -> dict[str, list[Any]]:
    """Send all requests of all kinds at once, so that the batch mixes them."""
    mixed = [name for name in names if name not in ALONE]
    batches = [mixed, *([name] for name in names if name in ALONE)]
    return {k: v for batch in batches for k, v in ask_together(llm, batch).items()}


def ask_together(llm: LLM, names: list[str]) -> dict[str, list[Any]]:
    """Send the requests of these kinds in one batch."""
    prompts = [prompt for _ in names for prompt in PROMPTS]
    params = [
        SamplingParams(**{"temperature": 0, "max_tokens": 14, **REQUESTS[name]})
        for name in names
        for _ in PROMPTS
    ]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    n = len(PROMPTS)
    return {name: outputs[i * n : i * n + n] for i, name in enumerate(names)}


@pytest.fixture(scope="module")
def answers(text_model: Path, text_draft: Path) -> dict[str, dict[str, list[Any]]]:
    """Answer all requests in the three ways."""
    names = list(REQUESTS)
    with engine(text_model, use_v2=False, **TEXT) as llm:
        v1 = ask(llm, names)
    with engine(text_model, use_v2=True, **TEXT) as llm:
        v2 = ask(llm, names)
    speculative = dspark(text_draft, 3)
    with engine(text_model, speculative_config=speculative, **TEXT) as llm:
        drafted = ask(llm, [n for n in names if n not in NOT_WITH_DRAFTS])
    return {"V1": v1, "V2": v2, "V2 + dspark": drafted}


WAYS = [
    (way, name)
    for way in ("V2", "V2 + dspark")
    for name in REQUESTS
    if way == "V2" or name not in NOT_WITH_DRAFTS
]


@pytest.mark.parametrize(("way", "name"), WAYS)
def test_same_as_v1(
    way: str, name: str, answers: dict[str, dict[str, list[Any]]]
) -> None:
    """Tokens, reasons to finish and log probabilities are V1's."""
    for expected, found in zip(answers["V1"][name], answers[way][name], strict=True):
        e, f = expected.outputs[0], found.outputs[0]
        assert f.token_ids == e.token_ids
        assert (f.finish_reason, f.stop_reason) == (e.finish_reason, e.stop_reason)
        assert_same_logprobs(e.logprobs, f.logprobs)
        assert_same_logprobs(expected.prompt_logprobs, found.prompt_logprobs)


def assert_same_logprobs(expected: Any, found: Any) -> None:
    """Compare lists of dicts from token id to log probability and rank."""
    assert (expected is None) == (found is None)
    for e, f in zip(expected or [], found or [], strict=True):
        assert (e is None) == (f is None)
        if e is None:
            continue
        assert e.keys() == f.keys()
        for token, logprob in e.items():
            assert f[token].logprob == pytest.approx(logprob.logprob, abs=2e-4)
            # Far down, tokens lie closer than rounding: some 10000 of SmolLM2's to a
            # unit of log probability. Up to rank 10000 this is equality.
            assert f[token].rank == pytest.approx(logprob.rank, rel=1e-4)


def test_requests_had_an_effect(answers: dict[str, dict[str, list[Any]]]) -> None:
    """A request that changes nothing would prove nothing."""
    plain = [o.outputs[0].token_ids for o in answers["V1"]["plain"]]
    for name in REQUESTS.keys() - UNCHANGED:
        changed = [o.outputs[0].token_ids for o in answers["V1"][name]]
        assert changed != plain, name


def test_structured_outputs_keep_to_their_grammar(
    answers: dict[str, dict[str, list[Any]]],
) -> None:
    """Alone, in a mixed batch and with drafts."""
    for way in answers.values():
        texts = [o.outputs[0].text for o in way["choice"]]
        assert set(texts) <= {"yes", "no", "perhaps"}


SAMPLED: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 1.0},
    "cold": {"temperature": 0.6},
    "top_k": {"temperature": 1.3, "top_k": 5},
    "top_p": {"temperature": 1.3, "top_p": 0.8},
    "min_p": {"temperature": 1.5, "min_p": 0.05},
    "top_k and top_p": {"temperature": 1.6, "top_k": 20, "top_p": 0.9},
    "penalties": {"temperature": 1.2, "presence_penalty": 1.0, "top_k": 12},
}
DRAWS = 3000
LENGTH = 2


def draw(llm: LLM, params: dict[str, Any]) -> list[Counter[int]]:
    """Count the tokens that are drawn after one prompt, at each place."""
    sampling = SamplingParams(n=DRAWS, max_tokens=LENGTH, ignore_eos=True, **params)
    (output,) = llm.generate(["the"], sampling, use_tqdm=False)
    return [Counter(o.token_ids[i] for o in output.outputs) for i in range(LENGTH)]


def test_sampled_requests_have_v1s_distribution(text_model: Path) -> None:
    """By a chi-squared test of homogeneity for each kind, at one in 10,000."""
    options = {**TEXT, "max_num_seqs": 64}
    with engine(text_model, use_v2=False, **options) as llm:
        expected = {name: draw(llm, params) for name, params in SAMPLED.items()}
    with engine(text_model, use_v2=True, **options) as llm:
        found = {name: draw(llm, params) for name, params in SAMPLED.items()}
    for name in SAMPLED:
        for e, f in zip(expected[name], found[name], strict=True):
            table = frequent(e, f)
            assert len(table[0]) > 1, name
            assert chi2_contingency(table).pvalue > 1e-4, name


def frequent(a: Counter[int], b: Counter[int]) -> list[list[int]]:
    """Tabulate two samples, with what is seldom in one class."""
    common = [k for k in a | b if a[k] + b[k] >= 20]
    rest = [sum(c.values()) - sum(c[k] for k in common) for c in (a, b)]
    table = [[c[k] for k in common] for c in (a, b)]
    if sum(rest) >= 10:
        for row, r in zip(table, rest, strict=True):
            row.append(r)
    return table


@pytest.mark.parametrize("drafts", [False, True], ids=["plain", "dspark"])
def test_a_seed_repeats_itself(
    text_model: Path, text_draft: Path, drafts: bool
) -> None:
    """The same seed gives the same tokens in another run and in another batch."""
    speculative = dspark(text_draft, 3) if drafts else None
    params = [
        SamplingParams(temperature=1.1, seed=seed, max_tokens=12, ignore_eos=True)
        for seed in range(len(PROMPTS))
    ]
    runs = []
    for order in (1, -1):
        with engine(
            text_model, use_v2=True, speculative_config=speculative, **TEXT
        ) as llm:
            requests = list(zip(PROMPTS, params, strict=True))[::order]
            outputs = llm.generate(
                [p for p, _ in requests], [s for _, s in requests], use_tqdm=False
            )
        runs.append([o.outputs[0].token_ids for o in outputs][::order])
    assert runs[0] == runs[1]
