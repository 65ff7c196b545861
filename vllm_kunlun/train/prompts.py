# SPDX-License-Identifier: Apache-2.0
"""What the target is asked, so that there is something to learn from.

Two thirds are user turns that the target writes itself: it is given a chat up to where
the user begins. The others are put together here, of kinds where text repeats itself or
has a form. No thing or place of ``vllm-kunlun bench spec`` is among them, so that what
is measured there was not trained on.
"""

import random
from typing import Any

_THINGS = """
anchor apple badge barn bell bench bicycle blanket boat bottle bridge broom bucket
button cabin candle canoe carpet castle chair chimney clock coat coin compass crane
cup curtain desk dictionary door drum fence ferry flag flute fountain glacier glove
guitar hammer hat helmet hill island jacket kite ladder lamp lantern lemon letter
lighthouse magnet map meadow medal microscope mirror mountain museum needle notebook
onion oven painting pencil piano pillow planet plough pond printer pump puzzle radio
ribbon river robot rope sail scarf ship shovel spoon stadium statue stove suitcase
table tape teapot telescope tent theatre tower tractor train tunnel valley violin
wagon watch wheel whistle
"""
_PLACES = """
Accra Bogota Brno Calgary Darwin Delhi Geneva Ghent Havana Izmir Kyoto Lagos Lima
Lyon Malmo Nairobi Oslo Perth Quito Riga Seville Tunis Turin Utrecht
"""
_ACTIONS = """
open close start stop load save send find sort merge split count
"""

THINGS = tuple(_THINGS.split())
PLACES = tuple(_PLACES.split())
ACTIONS = tuple(_ACTIONS.split())

QUESTIONS = (
    "What is a {thing} used for?",
    "Explain how a {thing} works, in a few sentences.",
    "Write a short story about a {thing} and a {other}.",
    "Write a poem about a {thing} in {place}.",
    "List five facts about the {thing}.",
    "Compare a {thing} with a {other}.",
    "Give me three reasons to visit {place}.",
    "Write a letter to a friend in {place} about a {thing} you found.",
    "How do I take care of an old {thing}?",
    "What would you do with a {thing} if you were lost near {place}?",
    "Write a dialogue between a {thing} seller and a buyer in {place}.",
    "Describe a day in {place} in one paragraph.",
    "What is the history of the {thing}?",
    "Is it better to own a {thing} or a {other}? Give your opinion.",
    "Give me step-by-step instructions to draw a {thing}.",
    "Summarise in two sentences what a {thing} is.",
    "Repeat this sentence {number} times: The {thing} of {place} is older than the "
    "{other}.",
    "Translate to French: Where is the {thing}? It is next to the {other}.",
    "If a {thing} costs {number} dollars and a {other} costs twice as much, what do "
    "both cost together? Explain each step.",
    "Write a JSON object with the name, price, colour and weight of a {thing}.",
    "Make a table in Markdown of three kinds of {thing} with their price and size.",
    "Write a Python function that will {action} each {thing} in a list.",
    "Write a Python class for a {thing} with methods to {action} and {second} it.",
    "Write an HTML page with a heading about the {thing} and a list of its parts.",
)

EDIT = '''Here is some Python code:

```python
def {action}_{thing}s({thing}s, limit={number}):
    """{Action} up to `limit` of the {thing}s."""
    done = []
    for {thing} in {thing}s:
        if len(done) == limit:
            break
        if {thing} is None:
            continue
        done.append({thing}.{action}())
    return done
```

{change}'''
CHANGES = (
    "Rename `done` to `result` and write the function again.",
    "Rename the function to `{second}_{thing}s` and change nothing else.",
    "Write it again without the `limit` parameter.",
    "Add type hints and write the whole function again.",
    "Explain what this code does and then repeat it.",
)

TEXT = (
    "The {thing} was brought to {place} by a trader in {year}. At first nobody knew "
    "what to do with it. A teacher of the town kept the {thing} in her house and "
    "showed it to {number} children. After her death the town bought the {thing} and "
    "put it beside a {other}. It can be seen every Sunday, and the entry is free."
)
ABOUT_TEXT = (
    "Summarise this text in one sentence:\n\n{text}",
    "Quote the two most important sentences of this text:\n\n{text}",
    "Correct any mistakes in this text and write it again:\n\n{text}",
    "Write this text again, with {second_place} in the place of {place}:\n\n{text}",
    "Make a list of the facts in this text:\n\n{text}",
    "{text}\n\nWho kept the {thing}, and where is it now?",
)


def made_prompts(number: int, seed: int) -> list[str]:
    """Return so many prompts, each different from the others.

    Args:
        number: of prompts.
        seed: for what is put together.
    """
    draw = random.Random(seed)
    prompts: dict[str, None] = {}
    while len(prompts) < number:
        prompts[_made(draw)] = None
    return list(prompts)


def _made(draw: random.Random) -> str:
    thing, other = draw.sample(THINGS, 2)
    place, second_place = draw.sample(PLACES, 2)
    action, second = draw.sample(ACTIONS, 2)
    words = {
        "thing": thing,
        "other": other,
        "place": place,
        "second_place": second_place,
        "action": action,
        "Action": action.capitalize(),
        "second": second,
        "number": draw.randrange(2, 13),
        "year": draw.randrange(1500, 1990),
    }
    kind = draw.randrange(4)
    if kind == 0:
        change = draw.choice(CHANGES).format(**words)
        return EDIT.format(change=change, **words)
    if kind == 1:
        text = TEXT.format(**words)
        return draw.choice(ABOUT_TEXT).format(text=text, **words)
    return draw.choice(QUESTIONS).format(**words)


def chat_tokens(tokenizer: Any, prompt: str) -> list[int]:
    """Return the tokens of a chat in which `prompt` is to be answered."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        tokenize=False,
        add_generation_prompt=True,
    )
    return list(tokenizer.encode(text, add_special_tokens=False))


def opening_tokens(tokenizer: Any) -> list[int]:
    """Return the tokens of a chat up to where its user begins.

    Raises:
        ValueError: the chat template does not show where that is.
    """
    mark = "the user begins here"
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": mark}], tokenize=False
    )
    opening, found, _ = text.partition(mark)
    if not found:
        raise ValueError(
            "The chat template of the target leaves the user's words out: take a "
            "target whose tokenizer has another one."
        )
    return list(tokenizer.encode(opening, add_special_tokens=False))
