# SPDX-License-Identifier: Apache-2.0
"""Tiny random models, and an environment for engines inside this process."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

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
    return write_llama(tmp_path_factory.mktemp("model"), VOCAB_SIZE, 0.2)


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one with a tokenizer of bytes, and flatter logits, for sampling."""
    folder = tmp_path_factory.mktemp("text-model")
    return write_llama(folder, write_byte_tokenizer(folder), 0.08, tie=False)


@pytest.fixture(scope="session")
def bigram_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Llama whose next token depends mostly on the last one."""
    folder = tmp_path_factory.mktemp("bigram-model")
    return write_llama(folder, VOCAB_SIZE, 0.2, context=0.004, tie=False)


@pytest.fixture(scope="session")
def bigram_draft(bigram_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a draft for it that is often right: its Markov head knows the bigrams."""
    folder = write_draft(bigram_model, tmp_path_factory.mktemp("bigram-draft"), 64)
    target = load_file(bigram_model / "model.safetensors")
    weights = load_file(folder / "model.safetensors")
    embeddings = target["model.embed_tokens.weight"]
    rms = embeddings.pow(2).mean(dim=1, keepdim=True).sqrt()
    weights["norm.weight"].zero_()
    weights["markov_head.markov_w1.weight"] = embeddings / rms
    weights["markov_head.markov_w2.weight"] = target["lm_head.weight"]
    save_file(weights, folder / "model.safetensors")
    return folder


def write_llama(
    folder: Path,
    vocab_size: int,
    width: float,
    *,
    context: float = 1.0,
    tie: bool = True,
    family: str = "Llama",
) -> Path:
    """Write a random Llama.

    Args:
        folder: where.
        vocab_size: size of its vocabulary.
        width: of its weights; the wider, the more decided are its logits.
        context: how much attention and MLPs add to the last token's embedding.
        tie: whether the LM head is the embedding.
        family: another one that Llama's settings make a model of.
    """
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=tie,
    )
    llama = getattr(transformers, f"{family}ForCausalLM")(config)
    for name, parameter in llama.named_parameters():
        if parameter.ndim > 1:
            # Wide weights keep the two best logits far apart, so that no rounding
            # difference between batch shapes can swap them.
            parameter.data.normal_(0, width)
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            parameter.data.mul_(context)
    llama.save_pretrained(folder)
    return folder


def write_byte_tokenizer(folder: Path) -> int:
    """Write a tokenizer with a token for each byte; return how many it has."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: i for i, symbol in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    return len(vocabulary)


@pytest.fixture(scope="session")
def draft(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a DSpark draft whose layers differ in number from its target layers."""
    return write_draft(model, tmp_path_factory.mktemp("draft"))


@pytest.fixture(scope="session")
def text_draft(text_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a draft for the model with a tokenizer."""
    return write_draft(text_model, tmp_path_factory.mktemp("text-draft"))


def write_draft(target: Path, folder: Path, markov_rank: int = 16) -> Path:
    """Write a random draft."""
    from vllm_kunlun.draft.random_checkpoint import write_random_dspark

    return write_random_dspark(
        target,
        folder,
        target_layer_ids=(0, 3),
        num_layers=1,
        markov_rank=markov_rank,
    )
