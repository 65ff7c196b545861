# SPDX-License-Identifier: Apache-2.0
"""How all benchmarks read their options."""

import math


def parse_sizes(option: str, text: str, least: int = 1) -> list[int]:
    """Return sizes such as ``8,32`` or ``32k`` as numbers.

    Raises:
        ValueError: one is not a whole number from `least` on.
    """
    sizes = []
    for part in text.split(","):
        digits = part.strip()
        scale = 1024 if digits.endswith("k") else 1
        digits = digits.removesuffix("k")
        if not (digits.isascii() and digits.isdigit() and int(digits) >= least):
            raise ValueError(
                f"{option} must be whole numbers from {least} on, separated by commas, "
                f"such as 8,32 or 32k, but is {text!r}."
            )
        sizes.append(int(digits) * scale)
    return sizes


def parse_size(option: str, text: str, least: int = 1) -> int:
    """Return one such size.

    Raises:
        ValueError: it is not one whole number from `least` on.
    """
    size, *others = parse_sizes(option, text, least)
    if others:
        raise ValueError(f"{option} must be one size.")
    return size


def check_seconds(seconds: float) -> None:
    """Refuse a time that nothing can be measured in.

    Raises:
        ValueError: it is not above 0.
    """
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"--seconds must be above 0, but is {seconds:g}.")


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads below 1.

    Raises:
        ValueError: it is below 1.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"--threads must be 1 or more, but is {threads}.")
