# SPDX-License-Identifier: Apache-2.0
"""What an entry of the table says about one of upstream's test files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Where upstream asks for a GPU, the CPU is as good for our kernels. Each changed line
# counts once.
DEVICE = re.compile(
    r"""(?P<call>torch\.device\()"cuda(:0)?"
    |   (?P<name>\b(device|DEVICE)(:\ *[^=]*)?\ *=\ *)"cuda(:0)?"
    |   not\ torch\.cuda\.is_available\(\)
    |   not\ current_platform\.is_cuda\(\)
    |   pytest\.importorskip\("triton"\)
    """,
    re.VERBOSE,
)


VERSIONS = ("0.25.1", "0.26.0")
"""The upstream versions whose tests are run."""

Count = int | Mapping[str, int]
"""How many tests: in every version, or by version where upstream has changed that."""


@dataclass(frozen=True)
class Swap:
    """A piece of text that is replaced before the run."""

    old: str
    new: str
    why: str
    times: int = 1
    scaled: bool = False
    """Whether the test is made smaller by it."""


@dataclass(frozen=True)
class Run:
    """A file that is run, and what comes of it."""

    covers: str
    """What of the V2 runner it tests."""
    passed: Count
    """How many of its tests pass. No other may fail or be skipped."""
    device_lines: int = 0
    """How many lines ask for a GPU."""
    swaps: tuple[Swap, ...] = ()
    kernels: frozenset[str] = frozenset()
    """The kernels of ours that its tests launch."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set while they run."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Pattern of the names of tests that do not apply -> why."""
    not_applicable: Count = 0
    """How many tests these are."""
    versions: tuple[str, ...] = VERSIONS
    """The versions that have it, and in it tests of V2."""

    def why_left_out(self, name: str) -> str | None:
        """Return why the test `name` does not apply, or None where it does."""
        for pattern, why in self.left_out.items():
            if re.fullmatch(pattern, name):
                return why
        return None


def count(tests: Count, version: str) -> int:
    """Return how many tests these are in `version`."""
    return tests if isinstance(tests, int) else tests[version]
