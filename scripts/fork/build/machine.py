# SPDX-License-Identifier: Apache-2.0
"""Looks whether this machine can build the fork, before anything is changed."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fork.build.disk import check_disk
from fork.errors import ForkError

_PYTHONS = ((3, 10), (3, 13))
_GLIBC = (2, 28)
_GIT = (2, 30)
_CXX17 = """#include <optional>
int main() {
  if constexpr (sizeof(int) > 1) return std::optional<int>(0).value();
}
"""


def check(env: Path, build: Path, *, xpu: bool = False) -> list[str]:
    """Return what was found, one line each, or refuse with one sentence.

    With `xpu`, the XPU's own toolchain is needed, too.
    """
    return [
        check_platform(),
        check_python(),
        check_git(),
        check_compiler(),
        *([check_xpu_toolchain()] if xpu else []),
        check_disk(env, build),
    ]


def check_platform() -> str:
    """Refuse machines that the pinned wheels do not run on."""
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise ForkError(
            f"This machine is {system} on {machine}, but the pinned wheels are for "
            "Linux on x86_64: build there."
        )
    libc, version = platform.libc_ver()
    if libc != "glibc" or _numbers(version) < _GLIBC:
        raise ForkError(
            f"The C library is {libc or 'unknown'} {version}, but the pinned wheels "
            f"need glibc {_dotted(_GLIBC)} or newer: use a newer distribution, such "
            "as Debian 11 or Ubuntu 20.04."
        )
    return f"Linux on x86_64, glibc {version}"


def check_python() -> str:
    """Refuse Pythons that vLLM or torch have no wheels for."""
    found = sys.version_info[:2]
    version = platform.python_version()
    advice = "name another one with --python"
    if platform.python_implementation() != "CPython":
        raise ForkError(
            f"{sys.executable} is {platform.python_implementation()}, not CPython: "
            f"{advice}."
        )
    if not _PYTHONS[0] <= found <= _PYTHONS[1]:
        raise ForkError(
            f"{sys.executable} is Python {version}, but Python "
            f"{_dotted(_PYTHONS[0])} to {_dotted(_PYTHONS[1])} is needed: {advice}."
        )
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            raise ForkError(
                f"{sys.executable} has no module {module!r}, which environments are "
                f"made with: install it (`apt install python{_dotted(found)}-venv`)."
            )
    return f"Python {version} ({sys.executable})"


def check_git() -> str:
    """Refuse a git that is missing or older than what the tools ask of it."""
    program = shutil.which("git")
    if program is None:
        raise ForkError("git is not installed: install it (`apt install git`).")
    output = subprocess.run([program, "--version"], capture_output=True, check=False)
    version = output.stdout.decode("utf-8", "replace").strip().split(" ")[-1]
    match = re.search(r"\d+(\.\d+)+", output.stdout.decode("utf-8", "replace"))
    if match is None or _numbers(match[0]) < _GIT:
        raise ForkError(
            f"{program} is version {version or 'unknown'}, but git {_dotted(_GIT)} or "
            "newer is needed: install a newer one."
        )
    return f"git {match[0]}"


def check_compiler() -> str:
    """Refuse where no C++17 program can be compiled and linked."""
    command = shlex.split(os.environ.get("CXX", "")) or _default_compiler()
    if not command or shutil.which(command[0]) is None:
        named = f"$CXX names {command[0]!r}, which" if command else "A C++17 compiler"
        raise ForkError(
            f"{named} was not found: install one (`apt install g++`) or set CXX."
        )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text(_CXX17, "utf-8")
        probe = [*command, "-std=c++17", str(source), "-o", str(source.with_suffix(""))]
        result = subprocess.run(probe, capture_output=True, check=False)
    if result.returncode:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ForkError(
            f"{command[0]} cannot compile and link a C++17 program "
            f"({lines[-1] if lines else 'no message'}): install a newer compiler "
            "(`apt install g++`) or set CXX."
        )
    return f"C++17 compiler {' '.join(command)}"


def check_xpu_toolchain() -> str:
    """Refuse where the XPU's compiler or its runtime is missing.

    CMake looks for the same files (cmake/xpu.cmake); this is before anything is done.
    """
    xtdk = os.environ.get("CLANG_PATH", "")
    xre = os.environ.get("XRE_PATH", "")
    runtime = [f"{folder}/libxpurt.so" for folder in ("so", "lib64", "lib")]
    # A variable, what it is for, and files that must be there, each in one of places.
    wanted = (
        (
            "CLANG_PATH",
            "XTDK, the XPU's compiler",
            (
                [Path(xtdk, "bin/clang++")],
                [Path(place, "include/xpu/kernel/xtdk.h") for place in (xtdk, xre)],
            ),
        ),
        (
            "XRE_PATH",
            "XRE, the XPU's runtime",
            (
                [Path(xre, "include/xpu/runtime.h")],
                [Path(xre, name) for name in runtime],
            ),
        ),
    )
    missing = []
    for variable, what, files in wanted:
        place = os.environ.get(variable, "")
        if not place:
            missing.append(f"{what} (${variable} is not set)")
        elif lacking := [f[0] for f in files if not any(p.exists() for p in f)]:
            name = lacking[0].relative_to(place)
            missing.append(f"{what} (${variable} is {place}, without {name})")
    if missing:
        raise ForkError(
            f"--target kunlun needs {' and '.join(missing)}: say where they are "
            "installed, or add --sim to compile the XPU's kernels for the simulator."
        )
    return f"XTDK in {xtdk}, XRE in {xre}"


def _default_compiler() -> list[str]:
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    return []


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
