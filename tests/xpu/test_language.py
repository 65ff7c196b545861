# SPDX-License-Identifier: Apache-2.0
"""The kernels are C++11 and C++17, with the simulator's types and with plain ones."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
KERNELS = sorted((CSRC / "xpu" / "kernels").glob("*.xpu"))
DEVICE_CODE = [
    *KERNELS,
    *(CSRC / "xpu").glob("*.h"),
    *(CSRC / "xpu/kernels").glob("*.h"),
]
WRAPPERS = sorted((CSRC / "xpu" / "wrappers").glob("*.cpp"))
# The XPU's own compiler is a clang.
COMPILERS = [c for c in ("g++", "clang++") if shutil.which(c)]
LANGUAGES = {
    "simulated": ["-DVLLM_KUNLUN_SIMULATED"],
    "plain": [f"-I{Path(__file__).parent / 'xtdk'}"],
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("standard", ["c++11", "c++17"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_kernels_compile(compiler: str, standard: str, language: str) -> None:
    """Without a warning, and so without what only one compiler knows."""
    command = [compiler, f"-std={standard}", "-fsyntax-only"]
    command += ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]
    command += [*LANGUAGES[language], f"-I{CSRC}", "-x", "c++", *map(str, KERNELS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_wrappers_compile_for_the_xpu(compiler: str) -> None:
    """With plain pointers, and a call where XTDK has a launch."""
    command = [compiler, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    launch = "VLLM_KUNLUN_LAUNCH(stream, kernel, ...)"
    command += [f"-D{launch}=(void(stream), kernel(__VA_ARGS__), 0)"]
    command += [
        "-Wno-attributes",
        *LANGUAGES["plain"],
        f"-I{CSRC}",
        *map(str, WRAPPERS),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", DEVICE_CODE, ids=lambda file: file.name)
def test_memory_is_checked(file: Path) -> None:
    """No array but those that the simulator sees, and no library behind its back."""
    if file.name in ("host_side.h", "kernels.h", "language.h"):  # the host's side
        return
    code = re.sub(r"//.*", "", file.read_text())
    assert re.findall(r"\b\w+ \w+\[\w+\](?: =|;)", code) == []
    assert re.findall(r"#include <.*", code) == []
    assert "reinterpret_cast" not in code
