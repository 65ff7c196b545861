# SPDX-License-Identifier: Apache-2.0
"""Every dense DSpark checkpoint loads; what does not fit is refused in a sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import NUM_LAYERS, VOCAB_SIZE
from engine import dspark, engine, tokens
from safetensors.torch import load_file, save_file
from vllm import LLM

Weights = dict[str, torch.Tensor]
PROMPTS = [[7, 3, 11, 200], [5] * 33, list(range(20))]


def edited(
    draft: Path,
    folder: Path,
    config: dict[str, Any] | None = None,
    change: Callable[[Weights], None] = lambda _: None,
) -> Path:
    """Copy a checkpoint with another config and other weights."""
    shutil.copytree(draft, folder, dirs_exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **(config or {})}))
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")
    return folder


def speculator(llm: LLM, look: Callable[[Any], Any]) -> Any:
    """Return what `look` finds in the worker's speculator."""
    found = llm.collective_rpc(lambda w: look(w.model_runner.speculator))
    return found[0]


def accepted(llm: LLM) -> float:
    """Return how many drafts were accepted."""
    name = "vllm:spec_decode_num_accepted_tokens"
    return sum(getattr(m, "value", 0) for m in llm.get_metrics() if m.name == name)


@pytest.fixture(scope="module")
def expected(bigram_model: Path) -> list[list[int]]:
    """Give the target's own tokens."""
    with engine(bigram_model, use_v2=False) as llm:
        return tokens(llm, PROMPTS, 24)


def reduced(target: Path) -> Callable[[Weights], None]:
    """Return what leaves a draft the tokens that are no multiple of 5."""
    kept = torch.tensor([i for i in range(VOCAB_SIZE) if i % 5])
    lm_head = load_file(target / "model.safetensors")["lm_head.weight"]

    def change(weights: Weights) -> None:
        w2 = "markov_head.markov_w2.weight"
        weights[w2] = weights[w2][kept].contiguous()
        weights["lm_head.weight"] = lm_head[kept].contiguous()
        weights["d2t"] = kept - torch.arange(len(kept))
        weights["t2d"] = torch.arange(VOCAB_SIZE) % 5 != 0

    return change


REDUCED = {"draft_vocab_size": VOCAB_SIZE - len(range(0, VOCAB_SIZE, 5))}


@pytest.mark.parametrize(
    "options",
    [{}, {"draft_sample_method": "probabilistic", "rejection_sample_method": "block"}],
    ids=["greedy", "probabilistic, in blocks"],
)
def test_reduced_vocabulary(
    bigram_model: Path,
    bigram_draft: Path,
    tmp_path: Path,
    expected: list[list[int]],
    options: dict[str, Any],
) -> None:
    """Drafts are mapped to the target's vocabulary, and accepted there."""
    draft = edited(bigram_draft, tmp_path, REDUCED, reduced(bigram_model))
    config = dspark(draft, **options)
    with engine(bigram_model, speculative_config=config) as llm:
        assert tokens(llm, PROMPTS, 24) == expected
        assert accepted(llm) > 10
        assert all(tokens(llm, PROMPTS, 24, temperature=0.7, seed=3))


def test_rows_of_the_targets_lm_head(
    bigram_model: Path, bigram_draft: Path, tmp_path: Path, expected: list[list[int]]
) -> None:
    """A reduced vocabulary without an LM head has the target's rows."""
    change = reduced(bigram_model)
    rows: list[torch.Tensor] = []

    def drop_lm_head(weights: Weights) -> None:
        change(weights)
        rows.append(weights.pop("lm_head.weight"))

    draft = edited(bigram_draft, tmp_path, REDUCED, drop_lm_head)
    with engine(bigram_model, speculative_config=dspark(draft)) as llm:
        assert tokens(llm, PROMPTS, 24) == expected
        assert accepted(llm) > 10
        hidden = torch.randn(3, 64, generator=torch.Generator().manual_seed(5))
        logits = speculator(llm, lambda s: s.model.compute_draft_logits(hidden))
    torch.testing.assert_close(logits, hidden @ rows[0].T)


def test_tied_embeddings(
    bigram_model: Path, bigram_draft: Path, tmp_path: Path, expected: list[list[int]]
) -> None:
    """An LM head that is tied to embeddings of the draft's own is not the target's."""
    own = torch.randn(VOCAB_SIZE, 64, generator=torch.Generator().manual_seed(3))

    def add_embeddings(weights: Weights) -> None:
        weights["embed_tokens.weight"] = own

    config = {"tie_word_embeddings": True}
    draft = edited(bigram_draft, tmp_path, config, add_embeddings)
    with engine(bigram_model, speculative_config=dspark(draft)) as llm:
        assert tokens(llm, PROMPTS, 24) == expected
        loaded = speculator(llm, lambda s: s.model.lm_head.weight.data)
        assert torch.equal(loaded[:VOCAB_SIZE], own)


def test_other_heads(
    bigram_model: Path, bigram_draft: Path, tmp_path: Path, expected: list[list[int]]
) -> None:
    """A draft may have fewer heads than its target."""

    def halve(weights: Weights) -> None:
        for name, dim in (("q_proj", 0), ("o_proj", 1)):
            key = f"layers.0.self_attn.{name}.weight"
            weights[key] = weights[key].chunk(2, dim)[0].contiguous()

    draft = edited(bigram_draft, tmp_path, {"num_attention_heads": 2}, halve)
    with engine(bigram_model, speculative_config=dspark(draft)) as llm:
        assert tokens(llm, PROMPTS, 24) == expected
        assert accepted(llm) > 10


@pytest.mark.parametrize("flag", [None, True, False])
def test_speculators_layout(
    bigram_model: Path,
    bigram_draft: Path,
    tmp_path: Path,
    expected: list[list[int]],
    flag: bool | None,
) -> None:
    """The anchor is sampled from where a checkpoint in speculators' format says so."""
    draft = edited(bigram_draft, tmp_path)
    layer = json.loads((draft / "config.json").read_text())
    config = {
        "speculators_model_type": "dspark",
        "speculators_config": {
            "algorithm": "dspark",
            "proposal_methods": [{"speculative_tokens": 3}],
            "verifier": {"name_or_path": str(bigram_model)},
        },
        "transformer_layer_config": layer,
        "aux_hidden_state_layer_ids": [i + 1 for i in layer["target_layer_ids"]],
        "mask_token_id": 0,
        "markov_rank": layer["markov_rank"],
        "markov_head_type": "vanilla",
        "block_size": 7,
        "enable_confidence_head": False,
    }
    if flag is not None:
        config["sample_from_anchor"] = flag
    (draft / "config.json").write_text(json.dumps(config))
    with engine(bigram_model, speculative_config=dspark(draft)) as llm:
        assert tokens(llm, PROMPTS, 24) == expected
        assert accepted(llm) > 10
        assert speculator(llm, lambda s: s.num_query_per_req) == (3 if flag else 4)


@pytest.mark.parametrize("method", ["dflash", "eagle3", None])
def test_method_of_another_name(
    bigram_model: Path,
    bigram_draft: Path,
    tmp_path: Path,
    expected: list[list[int]],
    method: str | None,
) -> None:
    """What the checkpoint is counts, not its path and not another method's name."""
    draft = edited(bigram_draft, tmp_path / "eagle3-dflash-draft")
    config = {**dspark(draft), "method": method}
    with engine(bigram_model, speculative_config=config) as llm:
        assert tokens(llm, PROMPTS, 24) == expected
        assert accepted(llm) > 10


def drop_layer(weights: Weights) -> None:
    """Leave out the MLP of the only layer."""
    for name in [n for n in weights if ".mlp." in n]:
        del weights[name]


def widen_fc(weights: Weights) -> None:
    """Give fc the inputs of one layer more."""
    weights["fc.weight"] = torch.zeros(64, 192)


REFUSED: dict[str, tuple[dict[str, Any], Callable[[Weights], None], str]] = {
    "other vocabulary": (
        {"vocab_size": 520},
        lambda w: None,
        "is for a vocabulary of size 520, but the target model has 512: use a draft",
    ),
    "other hidden size": (
        {"target_hidden_size": 128},
        lambda w: None,
        "for target hidden states of size 128, but the target model has 64: use a",
    ),
    "gated Markov head": (
        {"markov_head_type": "gated"},
        lambda w: None,
        "has a Markov head of type gated and rank 16: only type vanilla of rank 1",
    ),
    "DFlash checkpoint": (
        {"architectures": ["DFlashDraftModel"]},
        lambda w: None,
        "is of architecture DFlashDraftModel, which is no DSpark checkpoint: set",
    ),
    "no map": (
        {"draft_vocab_size": 400},
        lambda w: None,
        "drafts 400 tokens and has no d2t that maps them to the target's 512: use",
    ),
    "map out of range": (
        {"draft_vocab_size": 400},
        lambda w: w.update(d2t=torch.full((400,), 113)),
        "has a d2t of 400 tokens, which does not map its 400 tokens to the target's",
    ),
    "no LM head": (
        {"hidden_size": 128, "target_hidden_size": 64},
        lambda w: w.update({"embed_tokens.weight": torch.zeros(VOCAB_SIZE, 128)}),
        "has no lm_head of width 128, and the target's is of width 64: use a complete",
    ),
    "missing layer": (
        {"num_hidden_layers": 2},
        lambda w: None,
        "lacks 8 of the weights .* the first being layers.1.input_layernorm.weight: ",
    ),
    "missing part of a layer": (
        {},
        drop_layer,
        "lacks 2 of the weights .* the first being layers.0.mlp.down_proj.weight: use",
    ),
    "one layer too many": (
        {"num_hidden_layers": 1},
        lambda w: w.update({"layers.1.mlp.down_proj.weight": torch.zeros(64, 128)}),
        "has a weight layers.1.mlp.down_proj.weight of 64 x 128 that does not fit its",
    ),
    "weight of another size": (
        {},
        widen_fc,
        "has a weight fc.weight of 64 x 192 that does not fit its config.json: use a",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, model: Path, draft: Path, tmp_path: Path) -> None:
    """Both sides of what does not fit are named at start."""
    config, change, sentence = REFUSED[name]
    wrong = edited(draft, tmp_path, config, change)
    with (
        pytest.raises(ValueError, match=sentence),
        engine(model, speculative_config=dspark(wrong)),
    ):
        pass


def test_last_layer_out_of_range(model: Path, draft: Path, tmp_path: Path) -> None:
    """A flat config in which the last layer is the target's number of layers."""
    wrong = edited(draft, tmp_path, {"target_layer_ids": [0, NUM_LAYERS]})
    with (
        pytest.raises(ValueError, match=r"hidden states of layer 4 .* 0 to 3"),
        engine(model, speculative_config=dspark(wrong)),
    ):
        pass
