# SPDX-License-Identifier: Apache-2.0
"""The steps from the third on, run by the environment's own Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fork import apply, config, fetch
from fork.build import environment, installed
from fork.build.options import Options
from fork.build.steps import Steps, run_in_sight, say
from fork.build.wheels import Builder
from fork.errors import ForkError, shown
from fork.files import exclusive, sha256
from fork.paths import Layout

# What builds our own wheel, beside what upstream asks for.
_BUILD_TOOLS = ["scikit-build-core>=0.11", "cmake>=3.26.1", "ninja"]


def pipeline(options: Options, started: float) -> None:
    """Fetch, apply, build, install, and show that it runs."""
    # Wheels carry file modes: they must not depend on the user's umask.
    os.umask(0o022)
    layout = Layout()
    settings = config.load(layout.config)
    upstream = settings.upstream(options.upstream)
    steps = Steps(started, options.steps, done=2)
    builder = Builder(
        layout,
        upstream,
        options.target,
        options.jobs,
        options.offline,
        xpu=options.xpu,
    )
    with exclusive(layout.build, ".build.lock"):
        with steps.step("Fetching the pinned files"):
            pinned = {"sdist": upstream.sdist}
            if options.target == "host":
                pinned["donor"] = upstream.donor
                pinned |= settings.weights if options.demo else {}
            files = {
                name: fetch.fetch(artifact, offline=options.offline, say=say)
                for name, artifact in pinned.items()
            }
            say(f"{len(files)} files in {fetch.folder()}, all as pinned")
        with steps.step(f"Applying the patches to vLLM {upstream.version}"):
            tree = apply.apply(layout, upstream, offline=options.offline, say=say)
        with steps.step(f"Installing torch {upstream.torch} and what builds need"):
            _install_requirements(options, tree, upstream.torch, layout)
        with steps.step("Building the wheel vllm"):
            vllm = builder.vllm(tree, files.get("donor"))
        with steps.step("Building the wheel vllm-kunlun"):
            ours = builder.kunlun()
        with steps.step("Installing both wheels"):
            _install_wheels(options, {"vllm": vllm, "vllm-kunlun": ours}, layout)
    if options.target == "host":
        _prove(options, steps)
    else:
        say("docs/kunlun.md says how to go on, on a Kunlun machine.")
    activate = shown(environment.program(options.env, "activate"))
    print(f"Done in {steps.total()}: `. {activate}`, then `vllm serve`.")


def _install_requirements(
    options: Options, tree: Path, torch: str, layout: Layout
) -> None:
    wanted = installed.read_requirements(tree / "requirements" / "build" / "cpu.txt")
    wanted = [f"torch=={torch}", *wanted, *_BUILD_TOOLS]
    lacking = installed.missing(wanted)
    if not lacking:
        say("all are there")
        return
    say(f"{', '.join(lacking)} (torch brings gigabytes where only PyPI is asked)")
    environment.install(
        options.env,
        wanted,
        layout.build / "logs" / "requirements.log",
        "pip could not install what the build needs",
        offline=options.offline,
    )


def _install_wheels(options: Options, wheels: dict[str, Path], layout: Layout) -> None:
    digests = {name: sha256(wheel) for name, wheel in wheels.items()}
    logs = layout.build / "logs"

    def stale() -> list[str]:
        return [n for n, d in digests.items() if not installed.is_installed(n, d)]

    if not stale() and not any(installed.unsatisfied_by(name) for name in wheels):
        say("both are installed")
        return
    # Both at once: pip sees the requirements of the pair together.
    environment.install(
        options.env,
        [str(wheel) for wheel in wheels.values()],
        logs / "install.log",
        "pip could not install the wheels",
        offline=options.offline,
    )
    # pip leaves another build of the same version where it is.
    if again := stale():
        environment.install(
            options.env,
            ["--force-reinstall", "--no-deps", *(str(wheels[n]) for n in again)],
            logs / "reinstall.log",
            "pip could not install the wheels again",
            offline=options.offline,
        )
    say(", ".join(wheel.name for wheel in wheels.values()))


def _prove(options: Options, steps: Steps) -> None:
    """Run what a user would run first."""
    ours = environment.program(options.env, "vllm-kunlun")
    variables = environment.variables(offline=options.offline)
    with steps.step("Examining the installation"):
        if run_in_sight([ours, "doctor"], variables):
            raise ForkError(
                f"`{shown(ours)} doctor` found what is shown above: run it again when "
                "that is put right."
            )
    if not options.demo:
        return
    with steps.step("Generating text"):
        offline = ["--offline"] if options.offline else []
        sys.stdout.flush()
        if run_in_sight([ours, "demo", *offline], variables):
            raise ForkError(
                f"`{shown(ours)} demo` failed as shown above: the wheels are "
                "installed, and that command repeats this step alone."
            )
