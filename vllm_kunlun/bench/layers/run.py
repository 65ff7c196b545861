# SPDX-License-Identifier: Apache-2.0
"""One engine whose layers take turns, a step each, in upstream's form and in ours.

Step by step, so that what else the machine does slows both alike. Then its matrix
products by themselves.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from vllm_kunlun.bench.calls import Calls
from vllm_kunlun.bench.layers.products import Product, measure
from vllm_kunlun.bench.spec.worker import Engine

TEXT = "open chat"
SECONDS = 0.5
"""For a size of weight and a number of rows."""


@dataclass
class Steps:
    """Steps that only decode, in one form of the layers."""

    milliseconds: list[float] = field(default_factory=list)
    calls: int = 0
    """Torch ops, ours among them, that one step asks for."""

    @property
    def median(self) -> float:
        """Of the times."""
        return statistics.median(self.milliseconds)


@dataclass(frozen=True)
class Row:
    """What so many requests at once gave."""

    requests: int
    upstream: Steps
    ours: Steps

    @property
    def ratio(self) -> float:
        """How many times faster our form makes a step."""
        return self.upstream.median / self.ours.median


def environment() -> dict[str, str]:
    """Return what makes an engine one in this process, eager and on the V2 runner."""
    return {
        "KUNLUN_LAYER_FUSE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
        "VLLM_USE_V2_MODEL_RUNNER": "1",
    }


def run(
    options: dict[str, Any],
    requests: list[int],
    tokens: int,
    say: Callable[[str], None],
) -> tuple[list[Row], list[Product]]:
    """Measure each number of requests at once, and the products that change.

    Args:
        options: of vLLM's `LLM`.
        requests: at once.
        tokens: new ones of each request; a step each.
        say: where it is.

    Raises:
        RuntimeError: the engine has no layers of which we have a form.
    """
    from vllm_kunlun.step.layers import changes

    with patch.dict(os.environ, environment()):
        say("starting the engine")
        engine = Engine(options | {"enforce_eager": True})
        core: Any = engine.llm.llm_engine.model_executor
        runner = core.driver_worker.worker.model_runner
        found = list(changes(runner.model))
        if not found:
            raise RuntimeError(
                f"{type(runner.model).__name__} has no layers that KUNLUN_LAYER_FUSE "
                "changes here: choose another model with --model."
            )
        rows = []
        for at_once in requests:
            say(f"{at_once} requests at once")
            engine.run(TEXT, at_once, at_once, 8)
            turns = Turns(runner, found, at_once)
            with turns.taken():
                engine.run(TEXT, at_once, at_once, tokens)
            rows.append(Row(at_once, *turns.forms))
        say("matrix products")
        return rows, measure(found, SECONDS)


class Turns:
    """Steps of an engine, of which every other one runs our form of the layers."""

    def __init__(self, runner: Any, changes: list[Any], requests: int) -> None:
        self.runner = runner
        self.changes = changes
        self.requests = requests
        self.forms = (Steps(), Steps())
        self._number = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Time the steps that are made inside."""
        execute, sample = self.runner.execute_model, self.runner.sample_tokens
        started = 0.0
        counter: Calls | None = None
        decodes = False

        def execute_model(output: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal started, counter, decodes
            self._number += 1
            ours = self._number % 2 == 1
            for change in self.changes:
                change.make() if ours else change.undo()
            decodes = output.total_num_scheduled_tokens == self.requests
            # The first two are counted, which takes time, and are not timed.
            counter = Calls() if decodes and not self._form.calls else None
            started = time.perf_counter()
            with counter or nullcontext():
                return execute(output, *args, **kwargs)

        def sample_tokens(*args: Any, **kwargs: Any) -> Any:
            with counter or nullcontext():
                result = sample(*args, **kwargs)
            took = time.perf_counter() - started
            if counter is not None:
                self._form.calls = counter.names.total()
            elif decodes:
                self._form.milliseconds.append(took * 1e3)
            return result

        self.runner.execute_model = execute_model
        self.runner.sample_tokens = sample_tokens
        try:
            yield
        finally:
            del self.runner.execute_model, self.runner.sample_tokens
            for change in self.changes:
                change.make()

    @property
    def _form(self) -> Steps:
        return self.forms[self._number % 2]
