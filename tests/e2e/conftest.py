# SPDX-License-Identifier: Apache-2.0
"""Tiny random models, and an environment for engines inside this process."""

import os
from pathlib import Path

import pytest
import torch

# Before anything imports vllm: engines in this process, no compiler, no hub, and
# no address but loopback.
os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    TORCHDYNAMO_DISABLE="1",
    VLLM_HOST_IP="127.0.0.1",
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_KUNLUN_CHECK="1",
)

NUM_LAYERS = 4
VOCAB_SIZE = 512


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Llama small enough to start in seconds, with spread-out logits."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    llama = LlamaForCausalLM(config)
    for parameter in llama.parameters():
        if parameter.ndim > 1:
            # Wide weights keep the two best logits far apart, so that no rounding
            # difference between batch shapes can swap them.
            parameter.data.normal_(0, 0.2)
    folder = tmp_path_factory.mktemp("model")
    llama.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def draft(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a DSpark draft whose layers differ in number from its target layers."""
    from vllm_kunlun.draft.random_checkpoint import write_random_dspark

    folder = tmp_path_factory.mktemp("draft")
    return write_random_dspark(model, folder, target_layer_ids=(0, 3), num_layers=1)
