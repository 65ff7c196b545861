# SPDX-License-Identifier: Apache-2.0
"""Drafting from a request's own tokens in plain Python: contracts/ngram.h as rules."""

from collections.abc import Sequence


def suffix_ends(tokens: Sequence[int], low: int, high: int) -> tuple[int, list[int]]:
    """Return the longest suffix' length and the ends of its earlier occurrences."""
    for length in range(min(high, len(tokens)), low - 1, -1):
        suffix = tokens[-length:]
        ends = [
            end
            for end in range(length, len(tokens))
            if tokens[end - length : end] == suffix
        ]
        if ends:
            return length, ends
    return 0, []


def suffix_match(tokens: Sequence[int], low: int, high: int) -> tuple[int, int, int]:
    """Return how far a match goes back, where it ends and the other ends, or zeros."""
    _, ends = suffix_ends(tokens, low, high)
    if not ends:
        return 0, 0, 0
    first, last = ends[0], ends[-1]
    far = [agreement(tokens, end, high) for end in (first, last)]
    return max(far), *((first, last) if far[0] >= far[1] else (last, first))


def alike(a: Sequence[int], b: Sequence[int]) -> int:
    """Return on how many tokens two drafts begin alike."""
    return [*(x == y for x, y in zip(a, b, strict=True)), False].index(False)


def agreement(tokens: Sequence[int], end: int, high: int) -> int:
    """Return on how many tokens the end and what ends at `end` agree."""
    length = 0
    while length < min(max(high, 16), end) and (
        tokens[end - 1 - length] == tokens[-1 - length]
    ):
        length += 1
    return length


def class_of(length: int) -> int:
    """Return the class of a match."""
    return [n >= min(length, 16) for n in (1, 2, 3, 4, 7, 15, 16)].index(True)


def cell_of(found: tuple[int, int], place: int) -> tuple[int, int]:
    """Return where a draft counts: how long its match is there, and its kind."""
    length, agreed = found
    return class_of(length + place), 0 if agreed < 0 else 1 if place < agreed else 2


def continuation(tokens: Sequence[int], end: int, count: int) -> list[int]:
    """Return what followed position `end`, and what follows that in turn."""
    text = list(tokens)
    for k in range(count):
        text.append(text[end + k])
    return text[len(tokens) :]


def best_lengths(
    chances: dict[int, list[float]], cost: float, free_rows: int
) -> dict[int, int]:
    """Return the lengths that give the most tokens in a step's time, by trying all.

    As no draft is likelier than those before it, it is the likeliest ones that are
    tried. Of lengths that are as good as each other it is the shortest ones.
    """
    lengths = dict.fromkeys(chances, 0)
    tokens, rows, best, kept = float(len(chances)), len(chances), 0.0, lengths
    # Sorting is stable: of equal ones the first request's come first.
    order = [(p, slot) for slot, chance in chances.items() for p in chance if p > 0]
    for p, slot in [(0.0, -1), *sorted(order, key=lambda draft: -draft[0])]:
        if slot >= 0:
            tokens, rows = tokens + p, rows + 1
            lengths = lengths | {slot: lengths[slot] + 1}
        value = tokens / (1 + cost * max(0, rows - free_rows))
        if value > best * (1 + 1e-12):
            best, kept = value, lengths
    return kept
