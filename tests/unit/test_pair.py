# SPDX-License-Identifier: Apache-2.0
"""The two wheels of one build, and nothing else."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

from vllm_kunlun import _pair


@pytest.mark.parametrize(
    ("vllm_version", "fits"),
    [
        ("0.25.1+kunlun.1", True),
        ("0.25.1+kunlun.1.cpu", True),
        ("0.25.1+kunlun.10", False),
        ("0.25.1+kunlun.2.cpu", False),
        ("0.25.1", False),
        ("0.25.1+cpu", False),
        ("0.26.0+kunlun.1", False),
    ],
)
def test_belongs(vllm_version: str, fits: bool) -> None:
    """Only the fork's own version, with or without a target label, belongs."""
    assert _pair.belongs(vllm_version, "0.25.1+kunlun.1") is fits


def _versions(monkeypatch: pytest.MonkeyPatch, vllm: str | None) -> None:
    def version(name: str) -> str:
        if name == "vllm-kunlun":
            return "0.25.1+kunlun.1"
        if vllm is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return vllm

    monkeypatch.setattr(_pair, "version", version)


def test_a_foreign_vllm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names both versions and what to install."""
    _versions(monkeypatch, "0.25.1")
    with pytest.raises(ImportError, match=r"kunlun\.1 needs .* found vllm 0\.25\.1:"):
        _pair.check_pair()


def test_no_vllm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without vllm there is nothing to run."""
    _versions(monkeypatch, None)
    with pytest.raises(ImportError, match="found vllm none: install both wheels"):
        _pair.check_pair()


def test_the_installed_pair_fits() -> None:
    """What the tests run on is a pair."""
    assert _pair.check_pair() == importlib.metadata.version("vllm-kunlun")


def _install(site: Path, version: str) -> None:
    folder = site / f"vllm_kunlun-{version}.dist-info"
    folder.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: vllm_kunlun\nVersion: {version}\n"
    (folder / "METADATA").write_text(text)


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_the_vendors_plugin_is_refused(
    first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its distribution has our name, and a version that is not ours."""
    _install(tmp_path, "0.15.1")
    entries = [str(tmp_path), *sys.path] if first else [*sys.path, str(tmp_path)]
    monkeypatch.setattr(sys, "path", entries)
    with pytest.raises(
        ImportError, match=r"vendor's plugin .* \(vllm-kunlun 0\.15\.1\)"
    ) as found:
        _pair.check_pair()
    assert "pip uninstall vllm-kunlun" in str(found.value)
    assert "\n" not in str(found.value)


def test_the_vendors_files_are_refused(tmp_path: Path) -> None:
    """An installation over another leaves files that the new one does not know."""
    (tmp_path / "platforms").mkdir()
    (tmp_path / "platforms" / "kunlun.py").touch()
    with pytest.raises(ImportError, match=r"platforms/kunlun\.py\), under the same"):
        _pair.refuse_vendor_plugin(tmp_path)


def test_another_copy_of_ours_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout in front of an installation is still this project."""
    _install(tmp_path, "0.25.1+kunlun.1")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    _pair.refuse_vendor_plugin(tmp_path)
