# SPDX-License-Identifier: Apache-2.0
"""``vllm serve`` on loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from vllm_kunlun.bench.spec.process import last_error
from vllm_kunlun.bench.ways import Way

HOST = "127.0.0.1"
START_SECONDS = 600
_VLLM = "from vllm.entrypoints.cli.main import main; main()"


class Server:
    """A server for a way."""

    def __init__(
        self, way: Way, arguments: list[str], folder: Path, *, compiled: bool
    ) -> None:
        """Start it; `wait` until it is ready.

        Args:
            way: its runner and how it speculates.
            arguments: of ``vllm serve``, model first.
            folder: for its log.
            compiled: whether vLLM may compile the model.
        """
        self.way = way
        self.port = free_port()
        self.log = folder / f"{way.label.lower().replace(' ', '-')}.log"
        command = [sys.executable, "-c", _VLLM, "serve", *arguments]
        command += ["--host", HOST, "--port", str(self.port)]
        if way.speculative is not None:
            command += ["--speculative-config", json.dumps(way.speculative)]
        with self.log.open("w") as log:
            # A session of its own, so that its engine's process ends with it.
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=way.environment(compiled=compiled),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.port}"

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Wait until it answers.

        Raises:
            RuntimeError: it ended, or takes too long.
        """
        end = time.monotonic() + seconds
        while not answers(self.url):
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"{self.way.label} does not serve: "
                    f"{last_error(self.log.read_text(errors='replace'))}"
                )
            if time.monotonic() > end:
                raise RuntimeError(
                    f"{self.way.label} was not ready after {seconds:g} s: try a "
                    "smaller model, or without --compiled."
                )
            time.sleep(0.5)

    def stop(self) -> None:
        """End the server and its engine."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, sign)
            except ProcessLookupError:
                break
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                continue


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port: int = taken.getsockname()[1]
        return port


def answers(url: str) -> bool:
    """Whether a server is up and well."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False
