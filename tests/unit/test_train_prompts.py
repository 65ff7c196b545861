# SPDX-License-Identifier: Apache-2.0
"""What a draft is trained on is not what it is measured on."""

import re

from vllm_kunlun.bench.spec import prompts as bench
from vllm_kunlun.demo.generate import QUESTIONS
from vllm_kunlun.train.prompts import PLACES, THINGS, made_prompts, opening_tokens


def words(text: str) -> set[str]:
    """Return the words of a text, small."""
    return set(re.findall(r"[a-z]+", text.lower()))


def test_things_and_places_of_the_benchmark_are_left_out() -> None:
    """No prompt speaks of what a prompt of the benchmark speaks of."""
    of_bench = {word.lower() for word in (*bench.THINGS, *bench.PLACES)}
    for prompt in made_prompts(2000, seed=0):
        assert not words(prompt) & of_bench
    assert not {w.lower() for w in (*THINGS, *PLACES)} & of_bench


def test_prompts_differ() -> None:
    """From each other, with the seed, and from the demo's."""
    prompts = made_prompts(2000, seed=0)
    assert len(set(prompts)) == 2000
    assert prompts == made_prompts(2000, seed=0)
    assert prompts != made_prompts(2000, seed=1)
    assert not set(prompts) & set(QUESTIONS)
    assert not any("{" in p and "}" in p for p in prompts)


class Characters:
    """A tokenizer of characters whose template is one user's turn."""

    def apply_chat_template(self, messages: list[dict[str, str]], **_: bool) -> str:
        """Return the chat."""
        return f"<user>{messages[0]['content']}<end>"

    def encode(self, text: str, **_: bool) -> list[int]:
        """Return a number for each character."""
        return [ord(c) for c in text]


def test_opening_ends_where_the_user_begins() -> None:
    """So that the target goes on as the user."""
    assert opening_tokens(Characters()) == [ord(c) for c in "<user>"]
