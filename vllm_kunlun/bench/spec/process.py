# SPDX-License-Identifier: Apache-2.0
"""The other end of `worker`: starts engines, gives them orders, takes them down."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from vllm_kunlun.bench.spec.worker import Found
from vllm_kunlun.bench.ways import Way


class EngineProcess:
    """A worker's process."""

    def __init__(
        self, way: Way, options: dict[str, Any], folder: Path, *, compiled: bool
    ) -> None:
        """Start an engine; `wait` for it before it is used.

        Args:
            way: its runner and how it speculates.
            options: of vLLM's `LLM`.
            folder: for its log.
            compiled: whether vLLM may compile the model.
        """
        self.way = way
        name = way.label.lower().replace(" ", "-").replace("+", "with")
        self.log = folder / f"{name}.log"
        # In a folder of its own: `-m` would take a checkout's sources for the package.
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "vllm_kunlun.bench.spec.worker"],
                cwd=folder,
                env=way.environment(compiled=compiled),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        speculative = dict(way.speculative) if way.speculative else None
        self._send(options | {"speculative_config": speculative})

    def wait(self) -> None:
        """Wait until the engine is up.

        Raises:
            RuntimeError: it did not start.
        """
        self._receive()

    def run(self, **order: Any) -> Found:
        """Run one order.

        Raises:
            RuntimeError: the engine broke.
        """
        self._send(order)
        return Found(**self._receive())

    def stop(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _send(self, what: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(self._reason()) from None

    def _receive(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise RuntimeError(self._reason())
        return json.loads(line)

    def _reason(self) -> str:
        """Return the last error of the log, in a line."""
        return f"{self.way.label} does not run: {last_error(self.log.read_text())}"


def last_error(log: str) -> str:
    """Return the message of the exception that a log ends with."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for line in reversed(lines):
        name, separator, message = line.partition(": ")
        if separator and name.rpartition(".")[2].endswith(("Error", "Exception")):
            return message
    return lines[-1] if lines else "it ended without a word."
