# SPDX-License-Identifier: Apache-2.0
"""Other kinds of models and of serving: V2 gives what V1 gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import NUM_LAYERS, write_byte_tokenizer
from engine import GREEDY, dspark, engine, tokens
from safetensors.torch import save_file
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

PROMPTS = [[1, 5, 9, 20, 33], list(range(40, 100)), [7]]
LORA_RANK = 8


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[LoRARequest]:
    """Make two LoRA adapters for the tiny Llama."""
    made = []
    for number in (1, 2):
        folder = tmp_path_factory.mktemp(f"adapter-{number}")
        g = torch.Generator().manual_seed(number)
        weights = {}
        sizes = {"self_attn.q_proj": (64, 128), "mlp.down_proj": (128, 64)}
        for layer in range(NUM_LAYERS):
            for name, (columns, rows) in sizes.items():
                prefix = f"base_model.model.model.layers.{layer}.{name}"
                a = torch.randn(LORA_RANK, columns, generator=g)
                b = torch.randn(rows, LORA_RANK, generator=g)
                weights[f"{prefix}.lora_A.weight"] = 0.3 * a
                weights[f"{prefix}.lora_B.weight"] = 0.3 * b
        save_file(weights, folder / "adapter_model.safetensors")
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "tiny",
            "r": LORA_RANK,
            "lora_alpha": LORA_RANK,
            "target_modules": ["q_proj", "down_proj"],
            "bias": "none",
        }
        (folder / "adapter_config.json").write_text(json.dumps(config))
        made.append(LoRARequest(f"adapter-{number}", number, str(folder)))
    return made


def test_lora(model: Path, adapters: list[LoRARequest]) -> None:
    """A batch of requests with one of two adapters, and one without any.

    Not in one batch: upstream's LoRA on CPUs then takes an adapter for all of them.
    """
    options = {"enable_lora": True, "max_loras": 2, "max_lora_rank": LORA_RANK}
    with engine(model, use_v2=False, **options) as llm:
        expected = with_adapters(llm, [*adapters])
    with engine(model, use_v2=False) as llm:
        without = tokens(llm, PROMPTS, 12)
    with engine(model, use_v2=True, **options) as llm:
        assert with_adapters(llm, [*adapters]) == expected
        assert with_adapters(llm, [None]) == without
    n = len(PROMPTS)
    assert all(a != b for a, b in zip(expected[:n], expected[n:], strict=True))
    assert all(a != b for a, b in zip(expected[:n], without, strict=True))


def with_adapters(llm: LLM, choices: list[LoRARequest | None]) -> list[list[int]]:
    """Answer all prompts with each of the adapters, in one batch."""
    requests: list[Any] = [{"prompt_token_ids": p} for _ in choices for p in PROMPTS]
    outputs = llm.generate(
        requests,
        SamplingParams(**GREEDY, max_tokens=12),
        lora_request=[choice for choice in choices for _ in PROMPTS],
        use_tqdm=False,
    )
    return [list(o.outputs[0].token_ids) for o in outputs]


def test_embeddings(text_model: Path) -> None:
    """A pooling model, whose requests end with their prefill."""
    options = {
        "runner": "pooling",
        "convert": "embed",
        "skip_tokenizer_init": False,
        "max_num_batched_tokens": 48,  # prompts in several chunks
        "max_num_seqs": 4,
    }
    found = []
    for use_v2 in (False, True):
        with engine(text_model, use_v2=use_v2, **options) as llm:
            requests: list[Any] = [{"prompt_token_ids": p} for p in PROMPTS]
            outputs = llm.embed(requests, use_tqdm=False)
        found.append(torch.tensor([o.outputs.embedding for o in outputs]))
    v1, v2 = found
    assert not torch.allclose(v1[0], v1[1], atol=0.01)
    torch.testing.assert_close(v2, v1, atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Whisper of random weights."""
    from transformers import (
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
    )

    folder = tmp_path_factory.mktemp("whisper")
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=write_byte_tokenizer(folder),
        d_model=128,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_mel_bins=80,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    whisper = WhisperForConditionalGeneration(config)
    for parameter in whisper.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.2)
    whisper.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    return folder


def test_encoder_and_decoder(whisper: Path) -> None:
    """Whisper: what was heard decides what is said."""
    options = {
        "skip_tokenizer_init": False,
        "max_model_len": 128,
        "max_num_batched_tokens": 2048,
    }
    with engine(whisper, use_v2=False, **options) as llm:
        expected = transcripts(llm)
    with engine(whisper, use_v2=True, **options) as llm:
        assert transcripts(llm) == expected
    assert len({str(ids) for ids in expected}) > 1


def transcripts(llm: LLM) -> list[list[int]]:
    """Decode after different sounds, in one batch."""
    seconds = np.arange(16_000, dtype=np.float32) / 16_000
    sounds = [np.sin(2 * np.pi * pitch * seconds) for pitch in (80, 440, 3000)]
    requests: list[Any] = [
        {
            "encoder_prompt": {
                "prompt": "",
                "multi_modal_data": {"audio": (sound, 16_000)},
            },
            "decoder_prompt": {"prompt_token_ids": [0, 5]},
        }
        for sound in sounds
    ]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    outputs = llm.generate(requests, params, use_tqdm=False)
    return [list(o.outputs[0].token_ids) for o in outputs]


@pytest.mark.parametrize("with_drafts", [False, True], ids=["plain", "dspark"])
def test_kernel_blocks_smaller_than_kv_blocks(
    with_drafts: bool, model: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KV block of 128 tokens is four blocks for attention, also for the drafts."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    with engine(model, use_v2=False, block_size=128) as llm:
        expected = tokens(llm, PROMPTS, 80)
    monkeypatch.setattr(
        CPUAttentionBackend,
        "get_supported_kernel_block_sizes",
        staticmethod(lambda: [32]),
    )
    speculative = dspark(draft, 7) if with_drafts else None
    with engine(
        model, use_v2=True, block_size=128, speculative_config=speculative
    ) as llm:
        assert kernel_blocks(llm) == [32]
        assert tokens(llm, PROMPTS, 80) == expected


def kernel_blocks(llm: LLM) -> list[int]:
    """Return the size of attention's blocks in each group of the KV cache."""
    found: list[list[int]] = llm.collective_rpc(
        lambda worker: worker.model_runner.block_tables.kernel_block_sizes
    )
    return found[0]
