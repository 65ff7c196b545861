# SPDX-License-Identifier: Apache-2.0
"""Numbered steps with the time they take, and commands that show they are alive."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fork.errors import ForkError, shown

_QUIET_SECONDS = 30


class Steps:
    """Prints `[ 3/10] what` and, when it is over, how long it took."""

    def __init__(self, started: float, total: int, done: int = 0) -> None:
        self._started = started
        self._total = total
        self._number = done

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a step, and its time when it has succeeded."""
        self._number += 1
        begun = time.time()
        at = _clock(begun - self._started)
        print(f"[{self._number:2}/{self._total}] {title}  ({at})", flush=True)
        yield
        say(f"{time.time() - begun:.1f} s")

    def total(self) -> str:
        """Return the time since the beginning."""
        return _clock(time.time() - self._started)


def say(text: str) -> None:
    """Print a line that belongs to the current step."""
    print(f"        {text}", flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


@dataclass(frozen=True)
class Command:
    """A program to run, and what to say should it fail."""

    arguments: Sequence[str | Path]
    log: Path
    failure: str
    cwd: Path | None = None
    env: Mapping[str, str] | None = None


def run(command: Command) -> None:
    """Run a command into its log, showing that it is alive."""
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with command.log.open("wb") as stream:
        process = subprocess.Popen(
            [str(argument) for argument in command.arguments],
            cwd=command.cwd,
            env=command.env,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            # A group of its own, so that compilers end together with their caller.
            start_new_session=True,
        )
        try:
            status = _watch(process, command.log)
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    if status:
        raise ForkError(_explain(command))


def run_in_sight(arguments: Sequence[str | Path], env: Mapping[str, str]) -> int:
    """Run a command whose output is for the user, and return its status."""
    return subprocess.run([str(x) for x in arguments], env=env, check=False).returncode


def _watch(process: subprocess.Popen[bytes], log: Path) -> int:
    live = sys.stdout.isatty()
    begun = time.time()
    reported = 0.0
    while True:
        try:
            status = process.wait(timeout=0.5)
            break
        except subprocess.TimeoutExpired:
            seconds = time.time() - begun
            if live:
                width = shutil.get_terminal_size().columns - 1
                line = f"        {_clock(seconds)}  {_last_line(log)}"[:width]
                print(f"\r\033[K{line}", end="", flush=True)
            elif seconds - reported >= _QUIET_SECONDS:
                reported = seconds
                say(f"still running after {_clock(seconds)}: {_last_line(log)[:70]}")
    if live:
        print("\r\033[K", end="", flush=True)
    return status


def _last_line(log: Path) -> str:
    lines = _tail(log, 2000)
    return lines[-1] if lines else ""


def _tail(log: Path, size: int) -> list[str]:
    with log.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - size))
        text = stream.read().decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _explain(command: Command) -> str:
    lines = _tail(command.log, 20000)
    if any("No space left on device" in line for line in lines):
        return (
            f"The disk is full ({command.failure}): free some space and run the same "
            "command again, it continues where it stopped."
        )
    telling = [line for line in lines if "error" in line.lower()] or lines
    # pip ends with lines about itself; the reason comes first.
    own = [line for line in telling if not line.startswith(("note:", "hint:", "ERROR"))]
    reason = (own or telling or ["no output"])[-1].rstrip(".")
    return f"{command.failure} ({reason[:300]}): see {shown(command.log)}."
