# SPDX-License-Identifier: Apache-2.0
"""The options of scripts/apply_and_build.sh."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from fork.paths import PROJECT_ROOT

TARGETS = ("host", "kunlun")


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    target: str
    # With `kunlun`: the XPU's kernels for the simulator, not for the XPU.
    sim: bool
    upstream: str | None
    env: Path
    offline: bool
    jobs: int
    demo: bool
    # When the first of the two processes began; None in that first one.
    started: float | None

    @property
    def xpu(self) -> bool:
        """Whether the XPU's own compiler is needed."""
        return self.target == "kunlun" and not self.sim

    @property
    def steps(self) -> int:
        """How many steps there are to be."""
        if self.target != "host":
            return 8
        return 10 if self.demo else 9


def parse(arguments: list[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/apply_and_build.sh",
        allow_abbrev=False,
        description=(
            "Fetch and verify upstream vLLM, apply the patches, build the wheels "
            "`vllm` and `vllm-kunlun` into dist/, install them and generate text. "
            "Safe to interrupt and to run again."
        ),
    )
    parser.add_argument(
        "--target",
        choices=TARGETS,
        default="host",
        help="host: vLLM's CPU kernels are included and text is generated here; "
        "kunlun: no compiled vLLM kernels, and ours for the XPU, compiled with XTDK "
        "($CLANG_PATH) against XRE ($XRE_PATH) (default: host)",
    )
    parser.add_argument(
        "--sim",
        action="store_true",
        help="with --target kunlun: do without XTDK and XRE; the XPU's kernels are "
        "then compiled for the simulator only",
    )
    parser.add_argument(
        "--upstream",
        metavar="VERSION",
        help="a version of upstream.toml (default: the one it names)",
    )
    parser.add_argument(
        "--python",
        metavar="PROGRAM",
        help="the Python 3.10 to 3.13 that the environment is made with",
    )
    parser.add_argument(
        "--env",
        type=Path,
        default=PROJECT_ROOT / ".venv",
        metavar="FOLDER",
        help="the environment to make or to use again (default: .venv)",
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="use the download cache and what is installed, never the network",
    )
    parser.add_argument(
        "--jobs",
        type=_positive,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="compile with N processes (default: the number of usable CPUs)",
    )
    parser.add_argument(
        "--no-demo", action="store_true", help="do not generate text at the end"
    )
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    found = parser.parse_args(arguments)
    if found.sim and found.target != "kunlun":
        parser.error("--sim goes with --target kunlun: the host target has it anyway")
    return Options(
        target=found.target,
        sim=found.sim,
        upstream=found.upstream,
        env=found.env.absolute(),
        offline=found.offline,
        jobs=found.jobs,
        demo=not found.no_demo,
        started=found.started,
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
