# SPDX-License-Identifier: Apache-2.0
"""CMake's part in building for the XPU, with a made-up compiler: how it is called."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = f"""
cmake_minimum_required(VERSION 3.24)
project(made_up LANGUAGES CXX)
include({ROOT}/cmake/xpu.cmake)
file(GLOB kernels *.xpu)
file(GLOB wrappers *.cpp)
add_xpu_library(made_up_xpu KERNELS ${{kernels}} WRAPPERS ${{wrappers}})
"""
# Notes how it is called, and has the host's compiler make an object.
COMPILER = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
while [ $# -gt 0 ]; do
  case $1 in -c) source=$2 ;; -o) object=$2 ;; -MF) echo "$3 $4:" > "$2" ;; esac
  shift
done
name=$(basename "$source" | tr -c 'a-z0-9\\n' _)
echo "extern \\"C\\" { int xpu_launch(); int made_$name() { return xpu_launch(); } }" |
  c++ -x c++ -fPIC -c - -o "$object"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a project with a kernel, its wrapper, and a toolchain to build them."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not on PATH")
    source, xtdk, xre = (tmp_path / name for name in ("source", "xtdk", "xre"))
    for folder in (source, xtdk / "bin", xtdk / "include/xpu/kernel", xre / "so"):
        folder.mkdir(parents=True)
    (source / "CMakeLists.txt").write_text(PROJECT)
    (source / "adder.xpu").touch()
    (source / "launch_adder.cpp").touch()
    compiler = xtdk / "bin" / "clang++"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    (xtdk / "include/xpu/kernel/xtdk.h").touch()
    (xre / "include/xpu").mkdir(parents=True)
    (xre / "include/xpu/runtime.h").touch()
    command = ["c++", "-shared", "-fPIC", "-Wl,-soname,libxpurt.so", "-x", "c++", "-"]
    runtime = b'extern "C" int xpu_launch() { return 0; }'
    output = ["-o", str(xre / "so/libxpurt.so")]
    subprocess.run([*command, *output], input=runtime, check=True)
    return tmp_path


def cmake(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run CMake."""
    command = ["cmake", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def configure(project: Path, **paths: object) -> subprocess.CompletedProcess[str]:
    """Configure `project` with its own toolchain but for what `paths` say."""
    chosen = {"CLANG_PATH": project / "xtdk", "XRE_PATH": project / "xre", **paths}
    defines = [f"-D{name}={place}" for name, place in chosen.items()]
    # The host's compiler is not what is tested: spare trying it out.
    defines.append("-DCMAKE_CXX_COMPILER_FORCED=TRUE")
    return cmake("-S", project / "source", "-B", project / "build", *defines)


def test_kernels_and_wrappers_are_compiled_for_the_xpu(project: Path) -> None:
    """Each by XTDK, with the flags of its kind; the library asks for the runtime."""
    done = configure(project)
    assert done.returncode == 0, done.stderr
    done = cmake("--build", project / "build")
    assert done.returncode == 0, done.stdout + done.stderr
    calls = (project / "xtdk/bin/calls").read_text().splitlines()
    (kernel,) = [call for call in calls if "adder.xpu" in call]
    (wrapper,) = [call for call in calls if "launch_adder.cpp" in call]
    for call in (kernel, wrapper):
        assert "--xpu-arch=xpu3" in call
        assert "-fPIC" in call
        assert f"-I{project}/xre/include" in call
    assert "-mllvm -fix-mfence=all -fxpu-launch-return" in kernel
    assert "--xpu-host-only" not in kernel
    assert "-x xpu --xpu-host-only" in wrapper
    library = (project / "build/libmade_up_xpu.so").read_bytes()
    assert b"made_adder_xpu" in library
    assert b"made_launch_adder_cpp" in library
    assert b"libxpurt.so" in library


def test_what_is_missing_is_one_sentence(project: Path) -> None:
    """Every file that is missing is named, with the place that was looked at."""
    (project / "xre/include/xpu/runtime.h").unlink()
    done = configure(project, CLANG_PATH=project / "nowhere")
    assert done.returncode != 0
    message = " ".join(done.stderr.split())
    assert f"bin/clang++ in CLANG_PATH ({project}/nowhere)" in message
    assert f"include/xpu/runtime.h in XRE_PATH ({project}/xre)" in message
    assert "libxpurt.so" not in message
    assert message.count("toolchain is not complete") == 1


def test_the_hosts_clang_is_not_taken_for_xtdk(project: Path) -> None:
    """Without a place there is no compiler, whatever is on PATH."""
    done = configure(project, CLANG_PATH="")
    assert done.returncode != 0
    assert "bin/clang++ in CLANG_PATH ()" in " ".join(done.stderr.split())


def test_two_sources_of_one_name_are_refused(project: Path) -> None:
    """XTDK's intermediate files would overwrite each other."""
    (project / "source/adder.cpp").touch()
    done = configure(project)
    assert done.returncode != 0
    assert "Two sources of made_up_xpu are called adder" in done.stderr
