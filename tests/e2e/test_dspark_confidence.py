# SPDX-License-Identifier: Apache-2.0
"""Drafts are cut by the confidence head, and only by it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from engine import dspark, engine, tokens
from safetensors.torch import load_file, save_file
from vllm import LLM

from vllm_kunlun.draft.dspark.confidence import likely_prefix

PROMPTS = [[7, 3, 11, 200], [5] * 33, list(range(20))]


def counts(llm: LLM) -> tuple[float, float]:
    """Return how many drafts were verified and accepted."""
    prefix = "vllm:spec_decode_num_"
    found = {m.name: getattr(m, "value", 0) for m in llm.get_metrics()}
    return found[f"{prefix}draft_tokens"], found[f"{prefix}accepted_tokens"]


def with_head(draft: Path, folder: Path, bias: float, with_markov: bool) -> Path:
    """Copy a checkpoint and add a head: chances of sigmoid(bias), about."""
    shutil.copytree(draft, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["enable_confidence_head"] = True
    config["confidence_head_with_markov"] = with_markov
    path.write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    width = config["hidden_size"] + (config["markov_rank"] if with_markov else 0)
    weights["confidence_head.proj.weight"] = torch.full((1, width), 1e-4)
    weights["confidence_head.proj.bias"] = torch.tensor([bias])
    save_file(weights, folder / "model.safetensors")
    return folder


def test_likely_prefix() -> None:
    """A prefix survives as a whole: chances multiply."""
    chances = torch.tensor([[0.9, 0.9, 0.9], [0.4, 1.0, 1.0], [1.0, 0.5, 0.9]])
    assert likely_prefix(chances, 0.8).tolist() == [2, 0, 1]
    assert likely_prefix(chances, 0.5).tolist() == [3, 0, 2]


@pytest.mark.parametrize("with_markov", [False, True])
def test_cut(
    with_markov: bool, bigram_model: Path, bigram_draft: Path, tmp_path: Path
) -> None:
    """With chances of 0.73 each, a threshold of 0.5 keeps 2 of 5; tokens stay."""
    draft = with_head(bigram_draft, tmp_path / "draft", 1.0, with_markov)
    with engine(bigram_model, use_v2=False) as llm:
        expected = tokens(llm, PROMPTS, 24)
    with engine(bigram_model, speculative_config=dspark(draft, 5)) as llm:
        assert tokens(llm, PROMPTS, 24) == expected
        all_drafts, all_accepted = counts(llm)
    for threshold, kept in ((0.5, 2), (0.8, 0)):
        config = dspark(draft, 5, draft_confidence_threshold=threshold)
        with engine(bigram_model, speculative_config=config) as llm:
            assert tokens(llm, PROMPTS, 24) == expected
            if kept == 0:
                assert counts(llm) == (0, 0)
                continue
            drafts, accepted = counts(llm)
            # The share that is accepted rises; the steps become more.
            assert drafts < all_drafts
            assert accepted / drafts > all_accepted / all_drafts


def test_threshold_without_a_head(bigram_model: Path, bigram_draft: Path) -> None:
    """It is refused at start."""
    config = dspark(bigram_draft, draft_confidence_threshold=0.5)
    with (
        pytest.raises(
            ValueError, match=r"draft_confidence_threshold=0\.5 needs a DSpark draft"
        ),
        engine(bigram_model, speculative_config=config),
    ):
        pass
