# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M: V2 gives what V1 gives for mixtures of sampling parameters."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matrix
import pytest
from engine import dspark, engine
from matrix import Row
from safetensors.torch import load_file, save_file
from scipy.stats import chi2_contingency
from test_sampling import assert_same_logprobs, frequent
from vllm import LLM, SamplingParams

from vllm_kunlun.demo.weights import smollm2
from vllm_kunlun.draft.random_checkpoint import write_random_dspark

OPTIONS: dict[str, Any] = {
    "skip_tokenizer_init": False,
    "max_num_seqs": 64,
    "block_size": 16,
    "kv_cache_memory_bytes": 1 << 29,
}
PROMPTS = [
    "The capital of France is",
    "Once upon a time there was",
    "1, 2, 3, 4,",
    "A recipe for apple pie: take",
    "Answer with one word. Is water wet?",
]


def can_be_drafted(row: Row) -> bool:
    """Say whether a request, or a part of one, is taken together with drafts."""
    return matrix.makes_sense(row) and matrix.takes_drafts(row)


# All triples of levels without drafts, all pairs with them.
ROWS = matrix.covering(matrix.DECIDED, 3, matrix.makes_sense)
DRAFTED = matrix.covering(
    matrix.DECIDED, 2, can_be_drafted, [row for row in ROWS if can_be_drafted(row)]
)
ROWS += [row for row in DRAFTED if row not in ROWS]

# All pairs of levels; with these many draws of each.
KINDS = matrix.covering(matrix.SAMPLED, 2, lambda _: True)
DRAWS = 128
LENGTH = 2
NUM_DRAFTS = 3
# The chance that the whole matrix fails though the distributions are equal.
ALPHA = 1e-3

Places = list[Counter[int]]


@dataclass(frozen=True)
class Answers:
    """What one way of running gave.

    Attributes:
        decided: an output for each row.
        sampled: for each kind, the tokens drawn at each place.
        accepted: which part of the drafts was accepted.
    """

    decided: list[tuple[Row, Any]]
    sampled: list[tuple[Row, Places]]
    accepted: float = 0.0


@pytest.fixture(scope="module")
def target() -> Path:
    """Make the checkpoint as the demo does."""
    return smollm2()


@pytest.fixture(scope="module")
def v1(target: Path) -> Answers:
    """Ask V1."""
    with engine(target, use_v2=False, **OPTIONS) as llm:
        return Answers(ask(llm, ROWS), draw(llm, KINDS))


@pytest.fixture(scope="module")
def v2(target: Path) -> Answers:
    """Ask V2."""
    with engine(target, use_v2=True, **OPTIONS) as llm:
        return Answers(ask(llm, ROWS), draw(llm, KINDS))


@pytest.fixture(scope="module")
def draft(target: Path, v1: Answers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a draft that knows by heart what often follows a token in V1's answers."""
    folder = write_random_dspark(
        target,
        tmp_path_factory.mktemp("smollm2-draft"),
        target_layer_ids=(3, 17),
        markov_rank=512,
    )
    weights = load_file(folder / "model.safetensors")
    weights["norm.weight"].zero_()
    # Random directions of so many dimensions are all but orthogonal.
    before = weights["markov_head.markov_w1.weight"]
    before /= before.norm(dim=1, keepdim=True)
    after = weights["markov_head.markov_w2.weight"].zero_()
    answers = [o.token_ids for _, output in v1.decided for o in output.outputs]
    pairs = Counter(p for ids in answers for p in pairwise(ids))
    for (first, second), count in pairs.items():
        after[second] += count * before[first]
    after *= 8
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def v2_drafting(target: Path, draft: Path) -> Answers:
    """Ask V2 with that draft."""
    kinds = [kind for kind in KINDS if matrix.takes_drafts(kind)]
    with engine(target, speculative_config=dspark(draft, NUM_DRAFTS), **OPTIONS) as llm:
        answers = Answers(ask(llm, DRAFTED), draw(llm, kinds))
        counters = {m.name: getattr(m, "value", 0) for m in llm.get_metrics()}
    accepted = counters["vllm:spec_decode_num_accepted_tokens"]
    drafted = counters["vllm:spec_decode_num_draft_tokens"]
    return Answers(answers.decided, answers.sampled, accepted / drafted)


def ask(llm: LLM, rows: Sequence[Row]) -> list[tuple[Row, Any]]:
    """Send all rows at once, each with its prompt."""
    params = [SamplingParams(**matrix.decided(row)) for row in rows]
    prompts = [PROMPTS[ROWS.index(row) % len(PROMPTS)] for row in rows]
    return list(zip(rows, llm.generate(prompts, params, use_tqdm=False), strict=True))


def draw(llm: LLM, kinds: Sequence[Row]) -> list[tuple[Row, Places]]:
    """Count the tokens that are drawn after one prompt, at each place."""
    params = [
        SamplingParams(
            n=DRAWS, max_tokens=LENGTH, ignore_eos=True, **matrix.sampled(kind)
        )
        for kind in kinds
    ]
    outputs = llm.generate(["I like"] * len(kinds), params, use_tqdm=False)
    return [
        (kind, [Counter(o.token_ids[i] for o in out.outputs) for i in range(LENGTH)])
        for kind, out in zip(kinds, outputs, strict=True)
    ]


def test_size_of_the_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    """Every combination that makes sense is in a request; say how many those are."""
    sizes = []
    for name, rows, strength, allowed in (
        ("V2", ROWS, 3, matrix.makes_sense),
        ("V2 + dspark", DRAFTED, 2, can_be_drafted),
    ):
        wanted = set(matrix.combos(matrix.DECIDED, strength, allowed))
        covered = {part for row in rows for part in matrix.parts(row, strength)}
        assert wanted <= covered
        assert all(allowed(row) for row in rows)
        sizes.append(
            f"{name}: {len(rows)} requests with all {len(wanted)} combinations of "
            f"{strength} of {len(matrix.DECIDED)} parameters"
        )
    kinds = f"{len(KINDS)} kinds of sampled requests, {DRAWS} draws each"
    with capsys.disabled():
        print("", *sizes, kinds, sep="\n  ")


@pytest.mark.parametrize("way", ["v2", "v2_drafting"])
def test_decided_requests_are_v1s(
    way: str, v1: Answers, request: pytest.FixtureRequest
) -> None:
    """Token for token, with text, reason to finish and log probabilities."""
    found: Answers = request.getfixturevalue(way)
    expected = {str(row): output for row, output in v1.decided}
    for row, f in found.decided:
        e = expected[str(row)]
        for one, other in zip(e.outputs, f.outputs, strict=True):
            # The frontend keeps the tokens that came in one step with a stop text.
            more = len(other.token_ids) - len(one.token_ids)
            with_stop = isinstance(one.stop_reason, str) and way == "v2_drafting"
            assert 0 <= more <= (NUM_DRAFTS if with_stop else 0), row
            n = len(one.token_ids)
            assert list(other.token_ids)[:n] == list(one.token_ids), row
            assert described(other) == described(one), row
            logprobs = other.logprobs and other.logprobs[:n]
            assert_same_logprobs(one.logprobs, logprobs)
        assert_same_logprobs(e.prompt_logprobs, f.prompt_logprobs)


def described(output: Any) -> tuple[str, str, int | str | None]:
    """Return what a client sees of an output beside tokens and log probabilities."""
    return output.text, output.finish_reason, output.stop_reason


def test_every_level_has_an_effect(v1: Answers) -> None:
    """Each level that changes something was in an answer of its own."""
    texts = [tuple(o.text for o in output.outputs) for _, output in v1.decided]
    assert len(set(texts)) > len(texts) / 2
    ends = {o.finish_reason for _, output in v1.decided for o in output.outputs}
    assert ends == {"length", "stop"}


def test_drafts_were_accepted_and_rejected(v2_drafting: Answers) -> None:
    """Or the comparison with drafts would show one half only."""
    assert 0.1 < v2_drafting.accepted < 0.9


@pytest.mark.parametrize("way", ["v2", "v2_drafting"])
def test_sampled_requests_have_v1s_distribution(
    way: str, v1: Answers, request: pytest.FixtureRequest
) -> None:
    """By chi-squared tests of homogeneity, at `ALPHA` for all of them together."""
    found: Answers = request.getfixturevalue(way)
    expected = {str(kind): places for kind, places in v1.sampled}
    tables = [
        (kind, place, frequent(e, f))
        for kind, places in found.sampled
        for place, (e, f) in enumerate(zip(expected[str(kind)], places, strict=True))
    ]
    # Where both sides drew one token only, they agree, and there is nothing to test.
    tables = [t for t in tables if len(t[2][0]) > 1]
    assert len(tables) > 0.7 * LENGTH * len(found.sampled)
    for kind, place, table in tables:
        assert chi2_contingency(table).pvalue > ALPHA / len(tables), (kind, place)


def test_the_statistic_tells_kinds_apart(v1: Answers) -> None:
    """With so few draws it still does for almost all pairs of kinds."""
    first = [places[0] for _, places in v1.sampled]
    pvalues = list(different(first))
    told = sum(p < ALPHA / (len(KINDS) * LENGTH) for p in pvalues)
    assert told > 0.7 * len(pvalues)


def different(samples: Sequence[Counter[int]]) -> Iterator[float]:
    """Give the p-value for each two of the samples."""
    for i, one in enumerate(samples):
        for other in samples[:i]:
            yield chi2_contingency(frequent(one, other)).pvalue
