# SPDX-License-Identifier: Apache-2.0
"""Requests that mix sampling parameters: few, with all combinations of a few."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from vllm.sampling_params import StructuredOutputsParams

Row = dict[str, str]
Levels = Mapping[str, Mapping[str, dict[str, Any]]]

JSON = StructuredOutputsParams(
    json={
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 22, 333]}},
        "required": ["ok", "n"],
        "additionalProperties": False,
    }
)

# Each way to choose leaves one token, so that V1 and V2 must agree on it whatever
# their random numbers are.
DECIDED: Levels = {
    "choose": {
        "greedy": {"temperature": 0},
        "top_k": {"temperature": 0.8, "top_k": 1},
        "top_p": {"temperature": 1.3, "top_p": 1e-6},
        "min_p": {"temperature": 1.0, "min_p": 1.0},
        "all of them": {"temperature": 1.7, "top_k": 5, "top_p": 1e-6, "min_p": 0.9},
    },
    "n": {"1": {}, "3": {"n": 3}},
    "seed": {"none": {}, "17": {"seed": 17}},
    "repetition": {"none": {}, "1.3": {"repetition_penalty": 1.3}},
    "presence": {
        "none": {},
        "0.9": {"presence_penalty": 0.9},
        "-0.5": {"presence_penalty": -0.5},
    },
    "frequency": {"none": {}, "0.8": {"frequency_penalty": 0.8}},
    "words": {
        "none": {},
        "one token": {"bad_words": ["yes", "the", "a", "1", "to"]},
        "several": {"bad_words": ["of the", "is a", "in order", "one day", "and the"]},
    },
    "bias": {
        "none": {},
        "some": {"logit_bias": {28: 3.0, 30: 2.0, 198: -4.0, 260: -2.0}},
    },
    "allowed": {"none": {}, "some": {"allowed_token_ids": list(range(0, 3000, 3))}},
    "least": {"none": {}, "6": {"min_tokens": 6}},
    "stop": {
        "none": {},
        "ids": {"stop_token_ids": [28, 30, 198, *range(260, 300)]},
        "texts": {"stop": [".", "s t", "no"], "include_stop_str_in_output": True},
    },
    "logprobs": {"none": {}, "0": {"logprobs": 0}, "4": {"logprobs": 4}},
    "prompt": {"none": {}, "2": {"prompt_logprobs": 2}},
    "grammar": {
        "none": {},
        "json": {"structured_outputs": JSON, "max_tokens": 20},
        "regex": {
            "structured_outputs": StructuredOutputsParams(regex=r"[0-9]{2}-[a-f]{3}")
        },
        "choice": {
            "structured_outputs": StructuredOutputsParams(
                choice=["yes", "no", "perhaps"]
            )
        },
    },
}


# All ways of sampling after one prompt. Where the tokens are few, each draw tells more.
FEW = [28, 30, 198, 253, 260, 281, 284, 314, 325, 327, 335, 338, 354, 355, 357, 359]
SAMPLED: Levels = {
    "temperature": {"0.8": {"temperature": 0.8}, "1.4": {"temperature": 1.4}},
    "top_k": {"all": {}, "12": {"top_k": 12}},
    "top_p": {"all": {}, "0.9": {"top_p": 0.9}},
    "min_p": {"none": {}, "0.02": {"min_p": 0.02}},
    "penalties": {
        "none": {},
        "all": {
            "repetition_penalty": 1.2,
            "presence_penalty": 0.7,
            "frequency_penalty": 0.3,
        },
    },
    "words": {"none": {}, "some": {"bad_words": ["the", "to", "the idea"]}},
    "bias": {"none": {}, "some": {"logit_bias": {260: 1.5, 284: 1.0, 198: 3.0}}},
    "allowed": {"none": {}, "some": {"allowed_token_ids": FEW}},
    "least": {"none": {}, "2": {"min_tokens": 2}},
}


def makes_sense(row: Mapping[str, str]) -> bool:
    """Say whether a request, or a part of one, can be answered at all."""
    if row.get("choose") == "greedy" and row.get("n", "1") != "1":
        return False
    # A grammar and a list of tokens, or a least length, may leave no token at all.
    held = row.get("allowed", "none") != "none" or row.get("least", "none") != "none"
    return not (held and row.get("grammar", "none") != "none")


def takes_drafts(row: Mapping[str, str]) -> bool:
    """Say whether upstream's frontend takes it together with drafts."""
    without = row.get("bias", "none") == "none" and row.get("min_p", "none") == "none"
    return without and row.get("choose") not in ("min_p", "all of them")


def decided(row: Row) -> dict[str, Any]:
    """Return the sampling parameters of a row of `DECIDED`."""
    return {"max_tokens": 10, **_merge(DECIDED, row)}


def sampled(row: Row) -> dict[str, Any]:
    """Return the sampling parameters of a row of `SAMPLED`."""
    return _merge(SAMPLED, row)


def _merge(factors: Levels, row: Row) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for factor, level in row.items():
        merged |= factors[factor][level]
    return merged


def covering(
    factors: Levels,
    strength: int,
    allowed: Callable[[Row], bool],
    given: Sequence[Row] = (),
) -> list[Row]:
    """Choose rows so that every allowed combination of `strength` levels is in one.

    Greedily: each row begins with a combination that is still missing, and each
    further factor takes the level that brings most of the missing ones.

    Args:
        factors: names of factors, with their levels.
        strength: how many factors a combination has.
        allowed: whether a row, or a part of one, may be.
        given: rows to begin with.
    """
    missing = set(combos(factors, strength, allowed))
    rng = random.Random(0)
    rows = list(given)
    missing.difference_update(*(parts(row, strength) for row in rows))
    while missing:
        row = dict(min(missing))
        rest = [f for f in factors if f not in row]
        rng.shuffle(rest)
        for factor in rest:
            choices = [{**row, factor: level} for level in factors[factor]]
            choices = [c for c in choices if allowed(c)]
            rng.shuffle(choices)
            row = max(choices, key=lambda c: len(missing & news(c, factor, strength)))
        missing -= set(parts(row, strength))
        rows.append(row)
    return rows


def combos(
    factors: Levels, strength: int, allowed: Callable[[Row], bool]
) -> Iterator[tuple[tuple[str, str], ...]]:
    """Go through all allowed combinations of levels of `strength` factors."""
    for names in combinations(sorted(factors), strength):
        for levels in product(*(factors[name] for name in names)):
            combo = tuple(zip(names, levels, strict=True))
            if allowed(dict(combo)):
                yield combo


def parts(row: Row, strength: int) -> Iterator[tuple[tuple[str, str], ...]]:
    """Go through the combinations that a row holds."""
    return combinations(sorted(row.items()), strength)


def news(row: Row, factor: str, strength: int) -> set[tuple[tuple[str, str], ...]]:
    """Return those of them that `factor` has a part in."""
    others = sorted((f, v) for f, v in row.items() if f != factor)
    mine = (factor, row[factor])
    found: Sequence[tuple[tuple[str, str], ...]] = [
        tuple(sorted((*c, mine))) for c in combinations(others, strength - 1)
    ]
    return set(found)
