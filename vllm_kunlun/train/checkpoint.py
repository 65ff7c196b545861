# SPDX-License-Identifier: Apache-2.0
"""A trained draft as a DSpark checkpoint in DeepSpec's format."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from vllm_kunlun.files import write_json, write_whole
from vllm_kunlun.train.model import Draft, Shape


def shape_for(
    target: Path,
    *,
    num_features: int,
    intermediate_size: int,
    markov_rank: int,
    draft_vocab_size: int,
    block_size: int,
) -> Shape:
    """Return the shape of a draft of one layer for a target.

    Args:
        target: its folder; the sizes of its attention are taken over.
        num_features: layers of the target whose outputs the draft is given.
        intermediate_size: of the draft's MLP.
        markov_rank: of its Markov head.
        draft_vocab_size: how many tokens can be drafted.
        block_size: how many are at once.
    """
    config = json.loads((target / "config.json").read_text())
    heads = config["num_attention_heads"]
    return Shape(
        hidden_size=config["hidden_size"],
        num_features=num_features,
        num_layers=1,
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads", heads),
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        intermediate_size=intermediate_size,
        markov_rank=markov_rank,
        vocab_size=config["vocab_size"],
        draft_vocab_size=draft_vocab_size,
        block_size=block_size,
        rope_theta=10000.0,
        rms_norm_eps=config["rms_norm_eps"],
        mask_token_id=0,
    )


def config_of(
    shape: Shape, layer_ids: Sequence[int], max_positions: int
) -> dict[str, Any]:
    """Return the ``config.json`` of a draft.

    Args:
        shape: its sizes.
        layer_ids: the target's layers whose outputs it is given.
        max_positions: the target's longest text, in tokens.
    """
    return {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "draft_vocab_size": shape.draft_vocab_size,
        "max_position_embeddings": max_positions,
        "rms_norm_eps": shape.rms_norm_eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "rope_theta": shape.rope_theta,
        "block_size": shape.block_size,
        "mask_token_id": shape.mask_token_id,
        "target_layer_ids": list(layer_ids),
        "markov_rank": shape.markov_rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "dtype": "bfloat16",
    }


def write_draft(
    draft: Draft,
    to_target: torch.Tensor,
    layer_ids: Sequence[int],
    target: Path,
    folder: Path,
) -> None:
    """Write a draft, without what is the target's.

    Args:
        draft: the draft.
        to_target: [draft_vocab_size], int64: its tokens in the target's vocabulary.
        layer_ids: the target's layers whose outputs it is given.
        target: folder of the target.
        folder: for ``config.json`` and ``model.safetensors``.
    """
    weights = {
        name: weight.to(torch.bfloat16).contiguous()
        for name, weight in draft.state_dict().items()
    }
    weights["d2t"] = to_target - torch.arange(len(to_target))
    config = json.loads((target / "config.json").read_text())
    write_whole(
        folder / "model.safetensors", lambda scratch: save_file(weights, scratch)
    )
    write_json(
        folder / "config.json",
        config_of(draft.shape, layer_ids, config["max_position_embeddings"]),
        indent=2,
    )
