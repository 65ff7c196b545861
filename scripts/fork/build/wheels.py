# SPDX-License-Identifier: Apache-2.0
"""Builds the two wheels, each from a digest of everything that goes into it."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path

from fork.build import contents, staging, stamps
from fork.build.environment import variables
from fork.build.steps import Command, run, say
from fork.config import Upstream
from fork.errors import ForkError, shown
from fork.files import scratch
from fork.git import Repository
from fork.hermetic import EPOCH
from fork.paths import Layout

# What our wheel is made of; anything else in the project leaves it as it is.
_SOURCES = ("CMakeLists.txt", "LICENSE", "NOTICE", "README.md", "pyproject.toml")
_SOURCE_FOLDERS = ("cmake", "csrc", "vllm_kunlun")
_TOOLCHAIN = ("cmake", "scikit-build-core", "setuptools", "torch")


@dataclass(frozen=True)
class Builder:
    """Builds for one upstream version and one target."""

    layout: Layout
    upstream: Upstream
    target: str
    jobs: int
    offline: bool
    # Whether our wheel has kernels for the XPU, made by the XPU's compiler.
    xpu: bool = False

    @property
    def dist(self) -> Path:
        """Where the wheels are put."""
        return self.layout.root / "dist"

    @property
    def fork_version(self) -> str:
        """The version of our wheel."""
        return f"{self.upstream.version}+kunlun.{self.upstream.revision}"

    @property
    def vllm_version(self) -> str:
        """The version of the patched vLLM, which names the host target."""
        return self.fork_version + (".cpu" if self.target == "host" else "")

    def vllm(self, tree: Path, donor: Path | None) -> Path:
        """Build the patched vLLM with upstream's own setup.py."""
        repository = Repository(tree)
        pinned = self.upstream.donor.sha256 if donor else ""
        inputs = {"tree": repository.tree_id("HEAD"), "donor": pinned}
        inputs |= {"version": self.vllm_version} | _toolchain()
        settings = {
            "VLLM_TARGET_DEVICE": "cpu" if donor else "empty",
            "VLLM_VERSION_OVERRIDE": self.vllm_version,
            # The wheel must not depend on whether this machine has Rust.
            "CARGO": str(self.layout.build / "no-cargo"),
        }
        if donor:
            settings["VLLM_USE_PRECOMPILED"] = "1"
            settings["VLLM_PRECOMPILED_WHEEL_LOCATION"] = str(donor)
            settings["VLLM_PRECOMPILED_WHEEL_SHA256"] = pinned

        def build(folder: Path) -> Path:
            stage = folder / "vllm"
            # A copy, so that building leaves nothing behind in the tree.
            repository.run("checkout-index", "--all", f"--prefix={stage}/")
            wheel = self._pip_wheel(stage, folder / "wheel", "vllm", settings)
            contents.check_vllm(wheel, self.vllm_version, self.upstream.torch, donor)
            return wheel

        return self._once("vllm", stamps.key(inputs), build)

    def kunlun(self) -> Path:
        """Build `vllm_kunlun` and its kernels."""
        root = self.layout.root
        sources = [root / name for name in (*_SOURCES, *_SOURCE_FOLDERS)]
        digest = stamps.digest_of_files(root, _without_products(sources))
        inputs = {"sources": digest, "compiler": _compiler()} | _toolchain()
        inputs |= {"target": self.target, "version": self.fork_version}
        settings = {}
        if self.xpu:
            inputs["xtdk"] = _version_of([f"{os.environ['CLANG_PATH']}/bin/clang++"])
            inputs["xre"] = os.environ["XRE_PATH"]
            settings["SKBUILD_CMAKE_DEFINE"] = "VLLM_KUNLUN_XPU=ON"

        def build(folder: Path) -> Path:
            place = self._sources(_without_products(sources), folder / "sources")
            wheel = self._pip_wheel(place, folder / "wheel", "vllm-kunlun", settings)
            contents.check_kunlun(wheel, self.fork_version, xpu=self.xpu)
            return wheel

        return self._once("vllm_kunlun", stamps.key(inputs), build)

    def _sources(self, sources: list[Path], folder: Path) -> Path:
        """Return our sources as this upstream version wants them."""
        root = self.layout.root
        if staging.version_of(root) == self.fork_version:
            return root
        torch = self.upstream.torch
        return staging.stage(root, sources, folder, self.fork_version, torch)

    def _once(self, name: str, key: str, build: Callable[[Path], Path]) -> Path:
        label = f"{name}-{self.target}-{self.fork_version}"
        if wheel := stamps.find(self.dist, label, key):
            say(f"{shown(wheel)} is there")
            return wheel
        self.dist.mkdir(exist_ok=True)
        with scratch(self.layout.build, f"wheel-{name}") as folder:
            built = build(folder)
            wheel = self.dist / built.name
            os.replace(built, wheel)
        stamps.record(self.dist, label, key, wheel)
        say(f"{shown(wheel)}, {wheel.stat().st_size / 1e6:.1f} MB")
        return wheel

    def _pip_wheel(
        self, source: Path, folder: Path, name: str, settings: Mapping[str, str]
    ) -> Path:
        environment = _build_variables(self.offline) | dict(settings)
        environment["CMAKE_BUILD_PARALLEL_LEVEL"] = str(self.jobs)
        environment["MAX_JOBS"] = str(self.jobs)
        # setuptools-scm would ask the project's own repository around the copy.
        environment["GIT_CEILING_DIRECTORIES"] = str(source.parent)
        arguments = [sys.executable, "-m", "pip", "wheel", "--no-input", "-v"]
        arguments += ["--no-build-isolation", "--no-deps", "--wheel-dir", str(folder)]
        log = self.layout.build / "logs" / f"wheel-{name}.log"
        failure = f"The wheel {name} could not be built"
        run(Command([*arguments, str(source)], log, failure, env=environment))
        wheels = [*folder.glob("*.whl")]
        if len(wheels) != 1:
            raise ForkError(f"{failure} (pip left {len(wheels)} wheels): see {log}.")
        return wheels[0]


def _build_variables(offline: bool) -> dict[str, str]:
    """Leave out what would steer upstream's build from the outside."""
    steering = ("VLLM_", "SETUPTOOLS_", "DIST_EXTRA_CONFIG", "SKBUILD_", "GIT_")
    inherited = variables(offline=offline)
    kept = {key: v for key, v in inherited.items() if not key.startswith(steering)}
    # Equal times inside the wheels make equal wheels.
    return kept | {"SOURCE_DATE_EPOCH": EPOCH.partition(" ")[0]}


def _without_products(sources: list[Path]) -> list[Path]:
    """Leave out `vllm_kunlun/lib`, where an editable build puts its libraries."""
    result: list[Path] = []
    for path in sources:
        if path.name == "vllm_kunlun" and path.is_dir():
            result += [
                p for p in path.iterdir() if p.name not in ("lib", "__pycache__")
            ]
        else:
            result.append(path)
    return result


def _toolchain() -> dict[str, str]:
    found = {name: installed_version(name) for name in _TOOLCHAIN}
    return found | {"python": platform.python_version()}


def _compiler() -> str:
    return _version_of(shlex.split(os.environ.get("CXX", "c++")) or ["c++"])


def _version_of(command: list[str]) -> str:
    probe = subprocess.run([*command, "--version"], capture_output=True, check=False)
    return probe.stdout.decode("utf-8", "replace")
