# SPDX-License-Identifier: Apache-2.0
"""How long each stage of a step takes on the host."""

import functools
import time
from collections.abc import Callable
from typing import Any

STAGES = (
    "update states",
    "prepare inputs",
    "attention inputs",
    "attention metadata",
    "sample or verify",
    "post-update",
    "propose inputs",
    "rest",
)
"""The control plane."""
DRAFT = "draft steps"
"""Reading and choosing from the draft head's logits, one position after the other."""
CONTEXT = "draft context"
"""Projecting the target's hidden states to the draft's keys and values, if wide."""
MODEL = "model"
"""What the null models do; it counts for nothing."""

CALIBRATIONS = 20
CHANGES = 200

# Of the runner, its model state, its block tables and its drafter.
_RUNNER = {
    "finish_requests": "update states",
    "free_states": "update states",
    "add_requests": "update states",
    "update_requests": "update states",
    "prepare_inputs": "prepare inputs",
    "prepare_attn": "attention inputs",
    "sample": "sample or verify",
    "postprocess_sampled": "post-update",
    "store_draft_tokens": "propose inputs",
}
_MODEL_STATE = {"prepare_attn": "attention metadata"}
_BLOCK_TABLES = {"apply_staged_writes": "update states"}
_SPECULATOR = {"propose": "propose inputs", "_generate_draft": DRAFT}
_TARGET = ("forward", "compute_logits")
_DRAFT_MODEL = (
    "forward",
    "compute_draft_logits",
    "compute_logits",
    "map_draft_to_target",
    "markov_bias",
    "markov_embed",
)
_DRAFT_CONTEXT = ("combine_hidden_states", "precompute_and_store_context_kv")


class Stopwatch:
    """Adds up the time of each stage, without that of stages within it."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, own: float = 0.0
    ) -> None:
        """Make a stopwatch that is not running.

        Args:
            clock: gives seconds.
            own: seconds that the watch itself takes at each change of stage, which
                count for none (`own_seconds`).
        """
        self.clock = clock
        self.own = own
        self.stage = "rest"
        self.seconds: dict[str, float] = {}
        self._since = 0.0

    def start(self) -> None:
        """Forget what was measured and begin a step."""
        self.seconds = dict.fromkeys((*STAGES, DRAFT, CONTEXT, MODEL), 0.0)
        self.stage = "rest"
        self._since = self.clock()

    def stop(self) -> None:
        """End the step."""
        self.enter("rest")

    def enter(self, stage: str) -> str:
        """Go over to another stage; return the one that was left."""
        now = self.clock()
        left = self.stage
        if left in self.seconds:
            self.seconds[left] += now - self._since - self.own
        self.stage = stage
        self._since = now
        return left

    def wrap(self, owner: Any, name: str, stage: str) -> None:
        """Have the method `name` of `owner` count as `stage`, if it is there."""
        method: Callable[..., Any] | None = getattr(owner, name, None)
        if method is None:
            return

        @functools.wraps(method)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            left = self.enter(stage)
            try:
                return method(*arguments, **keywords)
            finally:
                self.enter(left)

        setattr(owner, name, timed)

    def watch(self, runner: Any) -> None:
        """Have all stages of a runner's step measured."""
        for owner, stages in (
            (runner, _RUNNER),
            (runner.model_state, _MODEL_STATE),
            (runner.block_tables, _BLOCK_TABLES),
            (runner.speculator, _SPECULATOR),
        ):
            for name, stage in stages.items():
                self.wrap(owner, name, stage)
        for name in _TARGET:
            self.wrap(runner.model, name, MODEL)
        draft = getattr(runner.speculator, "model", None)
        for name in _DRAFT_MODEL:
            self.wrap(draft, name, MODEL)
        for name in _DRAFT_CONTEXT:
            self.wrap(draft, name, CONTEXT)


@functools.cache
def own_seconds(clock: Callable[[], float]) -> float:
    """Return what a change of stage costs with `clock`, at best.

    A clock of the thread's own time is a call of the system, and a step changes its
    stage some forty times.
    """
    watch = Stopwatch(clock)
    watch.start()
    best = float("inf")
    for _ in range(CALIBRATIONS):
        start = clock()
        for _ in range(CHANGES):
            watch.enter("rest")
        best = min(best, (clock() - start) / CHANGES)
    return best
