# SPDX-License-Identifier: Apache-2.0
"""The real series, where the sdist is cached and the build tree is there."""

from __future__ import annotations

import ast
import email
import hashlib
import os
import shutil
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_up
import pytest
from fork import config, fetch, rebase, series, status, verify
from fork.paths import Layout
from packaging.version import parse

# Taken before the tests get a cache of their own.
CACHE = fetch.folder()
LAYOUT = Layout()
UPSTREAMS = config.load(LAYOUT.config).upstreams


@pytest.fixture(params=UPSTREAMS)
def upstream(request: pytest.FixtureRequest) -> config.Upstream:
    """Give each maintained version whose sdist is there."""
    one = UPSTREAMS[request.param]
    if not (CACHE / one.sdist.file).exists():
        pytest.skip(f"run scripts/fetch --upstream {one.version} first")
    return one


@pytest.fixture(params=UPSTREAMS)
def tree(request: pytest.FixtureRequest) -> Path:
    """Give each build tree that is there."""
    path = LAYOUT.tree(request.param)
    if not path.exists():
        pytest.skip(f"run scripts/apply --upstream {request.param} first")
    return path


def test_hostile_settings_give_the_locked_tree(
    upstream: config.Upstream,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Elsewhere(Layout):
        build = tmp_path / "build"

    made_up.hostile_settings(home)
    monkeypatch.setenv("VLLM_KUNLUN_CACHE", str(CACHE.parent))
    lock = verify.verify(Elsewhere(), upstream, offline=True, say=lambda _: None)
    assert lock == upstream.lock


def other_versions() -> list[str]:
    """Versions whose series was made from the default one as that is now."""
    return [
        one.version
        for one in UPSTREAMS.values()
        if one.rebased
        and any("as that is now" in note for note in status.status(LAYOUT, one).notes)
        and (CACHE / one.sdist.file).exists()
    ]


@pytest.mark.skipif(not other_versions(), reason="run scripts/rebase --to first")
def test_a_rebase_again_gives_the_same_patches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_KUNLUN_CACHE", str(CACHE.parent))
    elsewhere = Layout(tmp_path / "project")
    for name in ("patches", "kernel-locks"):
        shutil.copytree(LAYOUT.root / name, elsewhere.root / name)
    (elsewhere.root / "vllm_kunlun").mkdir()
    for name in ("upstream.toml", "vllm_kunlun/kernels.py"):
        shutil.copy(LAYOUT.root / name, elsewhere.root / name)
    version = other_versions()[-1]
    said: list[str] = []
    settings = config.load(elsewhere.config)
    rebase.begin(elsewhere, settings, version, offline=True, say=said.append)
    assert [line for line in said if line[0] == "[" and "as before" not in line] == []
    folder = LAYOUT.series_dir(version)
    assert series.read(elsewhere.series_dir(version)) == series.read(folder)
    assert elsewhere.config.read_text() == LAYOUT.config.read_text()


def functions(
    path: Path, names: set[str], scope: dict[str, Any]
) -> types.SimpleNamespace:
    """Take functions out of a patched file without running the rest of it."""
    wanted = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    for node in wanted:
        node.decorator_list = []
    module = ast.fix_missing_locations(ast.Module(list(wanted), []))
    exec(compile(module, str(path), "exec"), scope)
    return types.SimpleNamespace(**{name: scope[name] for name in names})


def setup_py(tree: Path, root: Path, *, cpu: bool = True) -> types.SimpleNamespace:
    """Return what the series adds to setup.py, in a tree of its own."""
    extensions = ["vllm._C", "vllm._C_AVX2", "vllm.spinloop"]
    scope = {
        "os": os,
        "sys": sys,
        "email": email,
        "hashlib": hashlib,
        "parse": parse,
        "ROOT_DIR": root,
        "ext_modules": [types.SimpleNamespace(name=name) for name in extensions],
        "_is_cpu": lambda: cpu,
        "get_vllm_version": lambda: "0.25.1+kunlun.1.cpu",
    }
    names = {"check_digest", "check_release", "check_stale", "cpu_members"}
    return functions(tree / "setup.py", names, scope)


def donor(folder: Path, version: str = "0.25.1", *names: str) -> zipfile.ZipFile:
    path = folder / "donor.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.dist-info/METADATA", f"Name: x\nVersion: {version}\n")
        for name in names:
            archive.writestr(f"vllm/{name}.abi3.so", name)
    return zipfile.ZipFile(path)


def stopped(call: Callable[[], object]) -> str:
    with pytest.raises(SystemExit) as stop:
        call()
    return str(stop.value)


def test_a_donor_of_another_digest_is_refused(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with donor(tmp_path) as wheel:
        path = str(wheel.filename)
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    check = setup_py(tree, tmp_path).check_digest
    monkeypatch.setenv("VLLM_PRECOMPILED_WHEEL_SHA256", digest)
    check(path)
    monkeypatch.setenv("VLLM_PRECOMPILED_WHEEL_SHA256", "0" * 64)
    assert f"has sha256 {digest}, but" in stopped(lambda: check(path))


def test_a_donor_of_another_release_is_refused(tree: Path, tmp_path: Path) -> None:
    check = setup_py(tree, tmp_path).check_release
    with donor(tmp_path, "0.25.1") as wheel:
        check(wheel)
    with donor(tmp_path, "0.26.0") as wheel:
        assert "holds version 0.26.0, but this tree" in stopped(lambda: check(wheel))


def test_a_donor_of_another_device_is_refused(tree: Path, tmp_path: Path) -> None:
    names = ("_C", "_C_AVX2", "spinloop")
    with donor(tmp_path, "0.25.1", *names) as wheel:
        found = setup_py(tree, tmp_path).cpu_members(wheel)
        assert found == [f"vllm/{name}.abi3.so" for name in names]
        assert setup_py(tree, tmp_path, cpu=False).cpu_members(wheel) == []
    with donor(tmp_path, "0.25.1", "_C", "_C_stable_libtorch") as wheel:
        text = stopped(lambda: setup_py(tree, tmp_path).cpu_members(wheel))
        assert "lacks vllm/_C_AVX2.abi3.so, vllm/spinloop.abi3.so" in text


def test_compiled_files_of_an_earlier_build_are_refused(
    tree: Path, tmp_path: Path
) -> None:
    (tmp_path / "vllm").mkdir()
    left_over = tmp_path / "vllm" / "_C.abi3.so"
    check = setup_py(tree, tmp_path).check_stale
    with donor(tmp_path, "0.25.1", "_C") as wheel:
        check(wheel)
        left_over.write_text("_C")
        check(wheel)
        left_over.write_text("an older one")
        assert "is left over from another build" in stopped(lambda: check(wheel))
    left_over.rename(tmp_path / "vllm" / "_moe_C.abi3.so")
    with donor(tmp_path, "0.25.1", "_C") as wheel:
        assert "_moe_C.abi3.so is left over" in stopped(lambda: check(wheel))


@pytest.mark.parametrize(
    ("recorded", "version", "expected"),
    [
        ("cpu", "0.25.1+kunlun.1", True),
        ("empty", "0.25.1+kunlun.1.cpu", False),
        ("cuda", "0.25.1+cpu", False),
        (None, "0.25.1+cpu", True),
        (None, "0.25.1+kunlun.1.cpu", True),
        (None, "0.25.1+cpufreq.1", False),
        (None, "0.25.1", False),
    ],
)
def test_the_target_decides_not_the_spelling_of_the_version(
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorded: str | None,
    version: str,
    expected: bool,
) -> None:
    built_for = functions(
        tree / "vllm/platforms/__init__.py", {"built_for"}, {}
    ).built_for
    record = types.ModuleType("vllm._build_target") if recorded else None
    if record is not None:
        record.TARGET_DEVICE = recorded  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm._build_target", record)
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    assert built_for("cpu") is expected
