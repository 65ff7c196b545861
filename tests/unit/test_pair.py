# SPDX-License-Identifier: Apache-2.0
"""The two wheels of one build, and nothing else."""

import importlib.metadata

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
