# SPDX-License-Identifier: Apache-2.0
"""The ways to run an engine that are compared with each other."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from vllm_kunlun.environment import CLOSED
from vllm_kunlun.switches import Switches, variable

T = TypeVar("T")


@dataclass(frozen=True)
class Way:
    """A runner, its switches, and how it speculates."""

    label: str
    use_v2: bool
    switches: bool = True
    """Whether all switches are as by default, or off."""
    speculative: Mapping[str, Any] | None = None

    def environment(self, *, compiled: bool) -> dict[str, str]:
        """Return the environment of this way's processes."""
        ours = {variable(f.name) for f in fields(Switches)}
        environment = {k: v for k, v in os.environ.items() if k not in ours}
        environment |= CLOSED
        environment["VLLM_USE_V2_MODEL_RUNNER"] = str(int(self.use_v2))
        if not self.switches:
            environment |= dict.fromkeys(ours, "0")
        if not compiled:
            environment["TORCHDYNAMO_DISABLE"] = "1"
        return environment


def turns(those: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Yield all of those in each round, in each another one first; and which round."""
    for i in range(rounds):
        for j in range(len(those)):
            yield i, those[(i + j) % len(those)]


V1 = "V1"
V1_NGRAM = "V1 + ngram"
RUNNERS = (Way(V1, False), Way("V2 off", True, False), Way("V2", True))


def speculating(draft: Path, number: int, lookup: tuple[int, int]) -> list[Way]:
    """Return V1 and V2 with and without speculation, switches off and on.

    Args:
        draft: a DSpark checkpoint.
        number: of drafts per step.
        lookup: shortest and longest match of the n-gram drafters.
    """
    ngram = {
        "num_speculative_tokens": number,
        "prompt_lookup_min": lookup[0],
        "prompt_lookup_max": lookup[1],
    }
    dspark = {"method": "dspark", **ngram}
    checkpoint = checkpoint_config(draft, number)
    return [
        Way(V1, False),
        Way(V1_NGRAM, False, speculative={"method": "ngram", **ngram}),
        Way("V2 off", True, False),
        Way("V2", True),
        Way("V2 off + dspark n-gram", True, False, dspark),
        Way("V2 + dspark n-gram", True, True, dspark),
        Way("V2 off + DSpark draft", True, False, checkpoint),
        Way("V2 + DSpark draft", True, True, checkpoint),
    ]


def checkpoint_config(draft: Path, number: int) -> dict[str, Any]:
    """Return the speculative config for a DSpark checkpoint.

    With no more drafts than it was made for, where it says so.
    """
    config = draft / "config.json"
    if config.is_file():
        number = min(number, json.loads(config.read_text()).get("block_size", number))
    return {
        "method": "dspark",
        "model": str(draft),
        "num_speculative_tokens": number,
    }
