# SPDX-License-Identifier: Apache-2.0
"""A DSpark checkpoint with random weights.

It loads and drafts like a trained one but agrees with its target only by chance.
That is enough to show that the path works and loses nothing.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

_SCALE = 0.02


def write_random_dspark(
    target: Path,
    folder: Path,
    *,
    target_layer_ids: Sequence[int],
    num_layers: int = 1,
    block_size: int = 7,
    markov_rank: int = 16,
    seed: int = 0,
) -> Path:
    """Write a dense DSpark checkpoint in DeepSpec's format for `target`.

    Args:
        target: folder of the target model in Hugging Face format (its sizes are
            taken over; embeddings and LM head are left out and so are the target's).
        folder: where to write ``config.json`` and ``model.safetensors``.
        target_layer_ids: target layers whose hidden states feed the draft.
        num_layers: number of draft layers; need not equal the number of
            `target_layer_ids`.
        block_size: tokens that a trained draft of this shape would draft at once.
        markov_rank: rank of the Markov head.
        seed: for the weights.

    Returns:
        `folder`.
    """
    config = _config(
        json.loads((target / "config.json").read_text()),
        list(target_layer_ids),
        num_layers,
        block_size,
        markov_rank,
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_file(_weights(config, seed), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return folder


def _config(
    target: dict[str, Any],
    target_layer_ids: list[int],
    num_layers: int,
    block_size: int,
    markov_rank: int,
) -> dict[str, Any]:
    heads = target["num_attention_heads"]
    return {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "hidden_size": target["hidden_size"],
        "intermediate_size": target["intermediate_size"],
        "num_hidden_layers": num_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": target.get("num_key_value_heads", heads),
        "head_dim": target.get("head_dim") or target["hidden_size"] // heads,
        "vocab_size": target["vocab_size"],
        "max_position_embeddings": target["max_position_embeddings"],
        "rms_norm_eps": target["rms_norm_eps"],
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "rope_theta": 10000.0,
        "block_size": block_size,
        "mask_token_id": 0,
        "target_layer_ids": target_layer_ids,
        "markov_rank": markov_rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": False,
        "confidence_head_with_markov": False,
        "dtype": "float32",
    }


def _weights(config: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def linear(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * _SCALE

    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim, vocab = config["head_dim"], config["vocab_size"]
    q_size = config["num_attention_heads"] * head_dim
    kv_size = config["num_key_value_heads"] * head_dim
    rank = config["markov_rank"]
    weights = {
        "fc.weight": linear(hidden, hidden * len(config["target_layer_ids"])),
        "hidden_norm.weight": torch.ones(hidden),
        "norm.weight": torch.ones(hidden),
        "markov_head.markov_w1.weight": linear(vocab, rank),
        "markov_head.markov_w2.weight": linear(vocab, rank),
    }
    for i in range(config["num_hidden_layers"]):
        layer = f"layers.{i}"
        weights |= {
            f"{layer}.self_attn.q_proj.weight": linear(q_size, hidden),
            f"{layer}.self_attn.k_proj.weight": linear(kv_size, hidden),
            f"{layer}.self_attn.v_proj.weight": linear(kv_size, hidden),
            f"{layer}.self_attn.o_proj.weight": linear(hidden, q_size),
            f"{layer}.self_attn.q_norm.weight": torch.ones(head_dim),
            f"{layer}.self_attn.k_norm.weight": torch.ones(head_dim),
            f"{layer}.mlp.gate_proj.weight": linear(inner, hidden),
            f"{layer}.mlp.up_proj.weight": linear(inner, hidden),
            f"{layer}.mlp.down_proj.weight": linear(hidden, inner),
            f"{layer}.input_layernorm.weight": torch.ones(hidden),
            f"{layer}.post_attention_layernorm.weight": torch.ones(hidden),
        }
    return weights
