# SPDX-License-Identifier: Apache-2.0
"""A request that the worker cannot hold is refused, and the engine lives."""

from pathlib import Path
from typing import Any

import pytest
from conftest import VOCAB_SIZE
from engine import engine, tokens
from vllm import LLM

TOO_MUCH: dict[str, tuple[dict[str, Any], str]] = {
    "allowed_token_ids": (
        {"allowed_token_ids": [i % VOCAB_SIZE for i in range(2000)]},
        "allowed_token_ids: 2000 are more than the 1024",
    ),
    "stop_token_ids": (
        {"stop_token_ids": list(range(200)), "min_tokens": 2},
        "stop_token_ids with min_tokens: 200 are more than the 128",
    ),
}
TOO_MUCH_TEXT: dict[str, tuple[dict[str, Any], str]] = {
    "bad_words": (
        {"bad_words": [f"{i:03}" for i in range(150)]},
        r"bad_words: \d+ are more than the 128",
    ),
    "tokens of bad_words": (
        {"bad_words": [f"{i:02}" + "x" * 30 for i in range(40)]},
        r"the tokens of bad_words: \d+ are more than the 1024",
    ),
}


def refuse_and_go_on(llm: LLM, params: dict[str, Any], sentence: str) -> None:
    """Send a request that is too much, then one that is not."""
    with pytest.raises(ValueError, match=sentence):
        tokens(llm, [[1, 2, 3]], 4, **params)
    assert len(tokens(llm, [[1, 2, 3]], 4)[0]) == 4


def test_too_much_is_refused(model: Path) -> None:
    """Of lists of ids."""
    with engine(model, use_v2=True) as llm:
        for params, sentence in TOO_MUCH.values():
            refuse_and_go_on(llm, params, sentence)


def test_too_many_words_are_refused(text_model: Path) -> None:
    """Of words, which need a tokenizer."""
    with engine(text_model, use_v2=True, skip_tokenizer_init=False) as llm:
        for params, sentence in TOO_MUCH_TEXT.values():
            refuse_and_go_on(llm, params, sentence)


def test_v1_takes_them_as_before(model: Path) -> None:
    """The limits are V2's alone."""
    params, _ = TOO_MUCH["stop_token_ids"]
    with engine(model, use_v2=False) as llm:
        assert len(tokens(llm, [[1, 2, 3]], 4, **params)[0]) == 4
