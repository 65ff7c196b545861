# SPDX-License-Identifier: Apache-2.0
"""The build for Kunlun, all of it, with g++ in the place of XTDK.

What a Kunlun machine runs and no other machine does is compiled here: the kernels and
wrappers with plain pointers, by cmake/xpu.cmake, and the registration of the ops for
the device's tensors.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
XTDK = ROOT / "tests/xpu/xtdk"
# CMake and Ninja are installed beside Python.
TOOLS = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
# Leaves out what only XTDK knows, and calls where it launches.
COMPILER = """#!/bin/sh
for word do
  shift
  case $word in
    --sysroot=* | --target=* | --xpu-* | -fxpu-* | -mllvm | -fix-* | -x | xpu) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec c++ -O0 -Wall -Wextra -Werror -Wno-attributes \
  '-DVLLM_KUNLUN_LAUNCH(stream, kernel, ...)=(void(stream), kernel(__VA_ARGS__), 0)' \
  -x c++ "$@"
"""
# Loads the library as a process on a Kunlun machine does, and says what is in it.
PROGRAM = """
import json, sys, torch
torch.ops.load_library(sys.argv[1])
names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
print(json.dumps({
    "registered": [n for n in names if n.startswith("vllm_kunlun::")],
    "kernels": torch.ops.vllm_kunlun.xpu_kernels(),
}))
"""


def start(*command: object) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    return subprocess.run(
        [*map(str, command)],
        env=os.environ | {"PATH": TOOLS},
        capture_output=True,
        text=True,
        check=False,
    )


def run(*command: object) -> str:
    """Run a command that succeeds and return what it printed."""
    done = start(*command)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def toolchain(folder: Path) -> dict[str, Path]:
    """Make a compiler and a runtime where CMake looks for XTDK and XRE."""
    xtdk, xre = folder / "xtdk", folder / "xre"
    (xtdk / "bin").mkdir(parents=True, exist_ok=True)
    (xre / "so").mkdir(parents=True, exist_ok=True)
    for place in (xtdk / "include", xre / "include"):
        place.unlink(missing_ok=True)
        place.symlink_to(XTDK)
    (xtdk / "bin/clang++").write_text(COMPILER)
    (xtdk / "bin/clang++").chmod(0o755)
    library = xre / "so/libxpurt.so"
    run(
        "c++", "-shared", "-fPIC", f"-I{XTDK}", "-Wl,-soname,libxpurt.so",
        XTDK / "xpu/runtime.cpp", "-o", library,
    )  # fmt: skip
    return {"CLANG_PATH": xtdk, "XRE_PATH": xre}


@pytest.fixture(scope="module")
def library() -> Iterator[Path]:
    """Build and install for Kunlun; return the library of the ops.

    The folder is kept, so that only the first run compiles everything.
    """
    folder = ROOT / "build" / "kunlun-test"
    places = toolchain(folder)
    defines = [f"-D{name}={place}" for name, place in places.items()]
    defines += ["-DVLLM_KUNLUN_XPU=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    # Unoptimised: it is not run, and half of the time is saved.
    defines.append("-DCMAKE_BUILD_TYPE=Debug")
    build = folder / "build"
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", build, *defines)
    run("cmake", "--build", build, "-j", len(os.sched_getaffinity(0)))
    run("cmake", "--install", build, "--prefix", folder / "installed")
    libraries = folder / "installed/vllm_kunlun/lib"
    assert {p.name for p in libraries.iterdir()} == {
        "libvllm_kunlun_host.so",
        "libvllm_kunlun_xpu.so",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(places["XRE_PATH"] / "so"))
        yield libraries / "libvllm_kunlun_host.so"


@pytest.fixture(scope="module")
def loaded(library: Path) -> Any:
    """What a process says that has loaded the library."""
    return json.loads(run(sys.executable, "-c", PROGRAM, library))


def test_the_simulator_is_not_for_the_device(tmp_path: Path) -> None:
    """Both kinds of kernels are the same functions, of which a build has one."""
    options = ["-DVLLM_KUNLUN_XPU=ON", "-DVLLM_KUNLUN_SIM=ON"]
    options += [f"-DPython_EXECUTABLE={sys.executable}"]
    options += ["-DCMAKE_CXX_COMPILER_FORCED=TRUE"]
    done = start("cmake", "-S", ROOT, "-B", tmp_path, *options)
    assert done.returncode != 0
    assert "XPU and VLLM_KUNLUN_SIM are both on" in " ".join(done.stderr.split())


def test_each_kernel_is_registered_for_the_device(loaded: Any) -> None:
    """The list of ops that have an XPU kernel is what the dispatcher knows."""
    names = {n.removeprefix("vllm_kunlun::") for n in loaded["registered"]}
    assert {n.partition(".")[0] for n in names} == set(loaded["kernels"])
    assert "apply_write.MULTI_GROUP" in names
