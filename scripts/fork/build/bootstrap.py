# SPDX-License-Identifier: Apache-2.0
"""The first two steps, with nothing but the standard library."""

from __future__ import annotations

import os
import re
import time

from fork.build import environment, machine
from fork.build.options import Options
from fork.build.steps import Steps, say
from fork.errors import not_maintained
from fork.paths import PROJECT_ROOT, Layout

TOOLS = ["gitpython", "packaging", "rich", "tomlkit", "typer"]
_MODULES = ["git", "packaging", "rich", "tomlkit", "typer"]


def bootstrap(options: Options, arguments: list[str]) -> None:
    """Check the machine, make the environment, and go on inside it."""
    started = time.time()
    steps = Steps(started, options.steps)
    layout = Layout()
    logs = layout.build / "logs"
    if options.upstream:
        _refuse_unknown(options.upstream, layout)
    with steps.step("Checking the machine"):
        for line in machine.check(options.env, layout.build, xpu=options.xpu):
            say(line)
    with steps.step("Preparing the environment"):
        say(environment.make(options.env, logs))
        environment.refuse_foreign_vllm(options.env)
        if not _has_tools(options):
            environment.install(
                options.env,
                TOOLS,
                logs / "tools.log",
                f"pip could not install {', '.join(TOOLS)}",
                offline=options.offline,
            )
    python = str(environment.program(options.env, "python"))
    variables = environment.variables()
    variables["PYTHONPATH"] = str(PROJECT_ROOT / "scripts")
    more = ["--started", str(started)]
    os.execve(python, [python, "-m", "fork.build", *arguments, *more], variables)


def _refuse_unknown(version: str, layout: Layout) -> None:
    """Refuse a version before anything is made for it, without a reader of TOML."""
    text = layout.config.read_text("utf-8")
    known = re.findall(r'^\[upstream\."([^"]+)"\]$', text, re.MULTILINE)
    if version not in known:
        raise not_maintained(version, known, layout.config)


def _has_tools(options: Options) -> bool:
    folders = [*options.env.glob("lib/python3.*/site-packages")]
    return all(any((f / m).is_dir() for f in folders) for m in _MODULES)
