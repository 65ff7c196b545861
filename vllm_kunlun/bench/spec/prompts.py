# SPDX-License-Identifier: Apache-2.0
"""Prompts of four kinds, as many as are wanted, each different from the others."""

import random
from collections.abc import Callable

THINGS = (
    "account",
    "basket",
    "camera",
    "device",
    "engine",
    "folder",
    "garden",
    "harbour",
    "invoice",
    "journal",
    "kettle",
    "library",
    "market",
    "network",
    "orchard",
    "parcel",
    "quarry",
    "recipe",
    "sensor",
    "ticket",
    "umbrella",
    "vehicle",
    "window",
    "yacht",
)
PLACES = ("Bergen", "Cusco", "Dakar", "Hanoi", "Leeds", "Osaka", "Porto", "Tartu")
QUESTIONS = (
    "What should I think about before I buy a second-hand {} in {}?",
    "Tell me a short story about a {} in {}.",
    "How would you explain a {} to a child of six who lives in {}?",
    "Why might someone travel to {1} to see a {0}?",
)

_CODE = '''class {Name}Store:
    """Keeps each {name} by its number."""

    def __init__(self):
        self.{name}s = {{}}

    def add(self, number, {name}):
        if number in self.{name}s:
            raise ValueError(f"{name} {{number}} is there already")
        self.{name}s[number] = {name}

    def remove(self, number):
        if number not in self.{name}s:
            raise ValueError(f"{name} {{number}} is not there")
        del self.{name}s[number]

    def count(self):
        return len(self.{name}s)
'''
_TEXT = (
    "The {name} of {place} was first described in {year}. It stood near the river, "
    "and people came from far away to see it. In {later} a fire damaged the {name}, "
    "and for nine years nobody was allowed near it. The town then rebuilt the {name} "
    "with stone from the hills. Today the {name} of {place} is open on three days of "
    "the week, and about {visitors} visitors come each year. A ticket costs four "
    "coins. Children pay nothing."
)


def _filled(number: int) -> tuple[str, str]:
    """Return a thing and a place; they differ until both have been gone through."""
    return THINGS[number % len(THINGS)], PLACES[number // len(THINGS) % len(PLACES)]


def code(number: int) -> str:
    """Ask for a class with a name changed."""
    name, place = _filled(number)
    text = _CODE.format(name=name, Name=name.capitalize())
    return (
        f"Here is a Python class from our office in {place}. Rename its method "
        f"`count` to `size` and write the whole class again, with nothing else "
        f"changed:\n\n```python\n{text}```"
    )


def quote(number: int) -> str:
    """Ask for a summary that quotes."""
    name, place = _filled(number)
    text = _TEXT.format(
        name=name,
        place=place,
        year=1700 + number,
        later=1800 + number,
        visitors=1000 + 10 * number,
    )
    return (
        "Summarise the following text. Quote the sentences that matter word for word, "
        f"in their order:\n\n{text}"
    )


def chat(number: int) -> str:
    """Ask an open question."""
    return QUESTIONS[number % len(QUESTIONS)].format(*_filled(number))


TEXTS: dict[str, Callable[[int], str]] = {
    "code edit": code,
    "summarise and quote": quote,
    "open chat": chat,
}
RANDOM = "random tokens"
KINDS = (*TEXTS, RANDOM)


def random_tokens(number: int, vocabulary: int) -> list[int]:
    """Return 128 tokens drawn from the vocabulary."""
    draw = random.Random(number)
    return [draw.randrange(vocabulary) for _ in range(128)]
