# SPDX-License-Identifier: Apache-2.0
"""A machine that cannot build the fork is told so before anything is changed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fork import config
from fork.build import machine
from fork.errors import ForkError
from fork.paths import Layout
from made_up import SCRIPTS


def test_this_machine_is_fine(
    tmp_path: Path, leave_free: Callable[[float], None]
) -> None:
    # But perhaps for its disk, which a test has no use for.
    leave_free(1000)
    assert len(machine.check(tmp_path / "env", tmp_path / "build")) == 5


@pytest.mark.parametrize(
    ("function", "value", "match"),
    [
        ("machine", "aarch64", "is Linux on aarch64, but the pinned wheels are for"),
        ("system", "Darwin", "is Darwin on x86_64"),
        ("libc_ver", ("glibc", "2.27"), r"glibc 2\.27, .* glibc 2\.28 or newer"),
        ("libc_ver", ("", ""), "C library is unknown"),
    ],
)
def test_unsupported_platform(
    monkeypatch: pytest.MonkeyPatch, function: str, value: object, match: str
) -> None:
    monkeypatch.setattr(platform, function, lambda: value)
    with pytest.raises(ForkError, match=match):
        machine.check_platform()


@pytest.mark.parametrize("version", [(3, 9, 1), (3, 14, 0)])
def test_unsupported_python(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...]
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(ForkError, match=r"Python 3\.10 to 3\.13 is needed: name anoth"):
        machine.check_python()


def test_python_without_venv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ForkError, match=r"apt install python3\.\d+-venv"):
        machine.check_python()


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_git_missing_or_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(ForkError, match="git is not installed: install it"):
        machine.check_git()
    program(tools, "git", "echo git version 2.17.1")
    with pytest.raises(ForkError, match=r"but git 2\.30 or newer is needed"):
        machine.check_git()


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ForkError, match=r"compiler was not found: install one"):
        machine.check_compiler()
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(ForkError, match=r"\$CXX names 'no-such-compiler'"):
        machine.check_compiler()


def test_old_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(
        tmp_path / "bin", "old", "echo 'old: unknown option -std=c++17' >&2; exit 1"
    )
    monkeypatch.setenv("CXX", str(tmp_path / "bin" / "old"))
    with pytest.raises(ForkError, match=r"cannot compile .*unknown option -std=c"):
        machine.check_compiler()


def script(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(SCRIPTS / "apply_and_build.sh"), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | variables,
        check=False,
    )


def test_script_refuses_a_python_that_is_none(tmp_path: Path) -> None:
    result = script("--python", str(tmp_path / "python9"))
    assert result.returncode == 1
    assert "python9 is no working Python 3.10 to 3.13: name one." in result.stderr


def test_script_finds_no_python(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    program(tools, "python3", "exit 1")
    (tools / "dirname").symlink_to(shutil.which("dirname") or "")
    result = script(PATH=str(tools))
    assert result.returncode == 1
    assert result.stderr.startswith("error: there is no Python 3.10 to 3.13 here")
    assert result.stderr.count("\n") == 1


def test_script_stops_at_a_missing_compiler_and_changes_nothing(tmp_path: Path) -> None:
    env = tmp_path / "env"
    result = script("--python", sys.executable, "--env", str(env), CXX="none-such")
    assert result.returncode == 1
    assert "error: $CXX names 'none-such'" in result.stderr
    assert not env.exists()


def test_script_stops_at_an_unknown_version_and_changes_nothing(tmp_path: Path) -> None:
    env = tmp_path / "env"
    arguments = ["--upstream", "9.9", "--python", sys.executable, "--env", str(env)]
    result = script(*arguments)
    assert result.returncode == 1
    (sentence,) = result.stderr.strip().splitlines()
    assert "vLLM 9.9 is not maintained here" in sentence
    known = ", ".join(config.load(Layout().config).upstreams)
    assert f"has {known}; name one of them" in sentence
    assert not env.exists()


def make_toolchain(folder: Path) -> dict[str, str]:
    """Make the files that XTDK and XRE are known by; return where they are."""
    xtdk, xre = folder / "xtdk", folder / "xre"
    (xtdk / "bin").mkdir(parents=True)
    (xtdk / "bin" / "clang++").touch()
    (xtdk / "include" / "xpu" / "kernel").mkdir(parents=True)
    (xtdk / "include" / "xpu" / "kernel" / "xtdk.h").touch()
    (xre / "include" / "xpu").mkdir(parents=True)
    (xre / "include" / "xpu" / "runtime.h").touch()
    (xre / "so").mkdir()
    (xre / "so" / "libxpurt.so").touch()
    return {"CLANG_PATH": str(xtdk), "XRE_PATH": str(xre)}


def test_xpu_toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = make_toolchain(tmp_path)
    for name, place in places.items():
        monkeypatch.setenv(name, place)
    found = machine.check_xpu_toolchain()
    assert all(place in found for place in places.values())
    library = Path(places["XRE_PATH"]) / "so" / "libxpurt.so"
    library.rename(tmp_path / "libxpurt.so")
    with pytest.raises(ForkError, match=r"\$XRE_PATH is .*, without so/libxpurt\.so\)"):
        machine.check_xpu_toolchain()
    (tmp_path / "libxpurt.so").rename(library)
    header = Path(places["CLANG_PATH"]) / "include" / "xpu" / "kernel" / "xtdk.h"
    header.unlink()
    with pytest.raises(ForkError, match=r"without include/xpu/kernel/xtdk\.h\)"):
        machine.check_xpu_toolchain()
    # XRE may have it, too.
    shared = Path(places["XRE_PATH"]) / "include" / "xpu" / "kernel"
    shared.mkdir()
    (shared / "xtdk.h").touch()
    machine.check_xpu_toolchain()
    header.touch()
    monkeypatch.delenv("XRE_PATH")
    with pytest.raises(ForkError) as error:
        machine.check_xpu_toolchain()
    assert "XRE, the XPU's runtime ($XRE_PATH is not set): say" in str(error.value)
    assert "XTDK" not in str(error.value)


def test_toolchain_comes_before_disk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leave_free: Callable[[float], None],
) -> None:
    leave_free(0)
    monkeypatch.delenv("CLANG_PATH", raising=False)
    with pytest.raises(ForkError, match="XTDK, the XPU's compiler"):
        machine.check(tmp_path / "env", tmp_path / "build", xpu=True)
    with pytest.raises(ForkError, match="GB are needed"):
        machine.check(tmp_path / "env", tmp_path / "build")


def test_script_names_the_whole_toolchain_and_changes_nothing(tmp_path: Path) -> None:
    env = tmp_path / "env"
    places = {"CLANG_PATH": str(tmp_path), "XRE_PATH": ""}
    arguments = ["--target", "kunlun", "--python", sys.executable, "--env", str(env)]
    result = script(*arguments, **places)
    assert result.returncode == 1
    (sentence,) = result.stderr.strip().splitlines()
    assert f"($CLANG_PATH is {tmp_path}, without bin/clang++)" in sentence
    assert "($XRE_PATH is not set)" in sentence
    assert "add --sim" in sentence
    assert not env.exists()


def test_script_refuses_sim_for_the_host() -> None:
    result = script("--sim", "--python", sys.executable)
    assert result.returncode == 2
    assert "--sim goes with --target kunlun" in result.stderr


def test_script_helps() -> None:
    result = script("--help")
    assert result.returncode == 0
    assert "--target {host,kunlun}" in result.stdout
    assert "--sim" in result.stdout
    assert "--started" not in result.stdout
