# SPDX-License-Identifier: Apache-2.0
"""A draft that is trained here learns, and the engine drafts what the trainer does."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import VOCAB_SIZE
from engine import dspark, engine, tokens
from rich.console import Console

from vllm_kunlun.train.checkpoint import shape_for, write_draft
from vllm_kunlun.train.command import Options, train_draft
from vllm_kunlun.train.fit import Recipe, Trainer, surviving
from vllm_kunlun.train.losses import Teacher
from vllm_kunlun.train.model import Draft
from vllm_kunlun.train.start import frequent_tokens, inverse, start
from vllm_kunlun.train.states import Sequenced, Target, states_of
from vllm_kunlun.train.texts import Text

LAYERS = [0, 3]
BLOCK = 4
DRAFT_VOCAB = 300
RECIPE = Recipe(steps=60, batch_size=8, num_anchors=8, dtype="float32")


@pytest.fixture(scope="module")
def texts(bigram_model: Path) -> list[Text]:
    """Have the target answer prompts of different lengths."""
    draw = torch.Generator().manual_seed(0)
    prompts = [
        torch.randint(VOCAB_SIZE, (4 + i % 5,), generator=draw).tolist()
        for i in range(64)
    ]
    with engine(bigram_model) as llm:
        answers = tokens(llm, prompts, 24)
    return [Text(p, a) for p, a in zip(prompts, answers, strict=True)]


class Trained:
    """All that a training needs and gives."""

    def __init__(self, model: Path, texts: list[Text], state: Path) -> None:
        self.shape = shape_for(
            model,
            num_features=len(LAYERS),
            intermediate_size=96,
            markov_rank=16,
            draft_vocab_size=DRAFT_VOCAB,
            block_size=BLOCK,
        )
        self.target = Target(model, LAYERS, torch.float32)
        self.to_target = frequent_tokens(texts, DRAFT_VOCAB, VOCAB_SIZE)
        self.to_draft = inverse(self.to_target, VOCAB_SIZE)
        self.sequences: list[Sequenced] = states_of(self.target, texts)
        self.teacher = Teacher(
            self.target.norm,
            self.shape.rms_norm_eps,
            self.target.lm_head[self.to_target],
        )
        self.state = state

    def trainer(self, recipe: Recipe) -> Trainer:
        """Return a trainer that goes on from the state file, if there is one."""
        draft = start(self.shape, self.target, self.to_target, recipe.seed)
        return Trainer(
            draft, self.to_draft, self.teacher, self.sequences, recipe, self.state
        )

    def surviving(self, draft: Draft) -> list[float]:
        """Return how often the places of a block are right."""
        return surviving(draft, self.to_draft, self.teacher, self.sequences, "float32")

    def propose(self, draft: Draft, text: list[int], anchor: int) -> list[int]:
        """Return the drafts after a text's token."""
        ids = torch.tensor([text])
        anchors = torch.tensor([[anchor]])
        states = self.target.states(ids)
        found: list[int] = draft.propose(ids, states, anchors, self.to_target)[
            0, 0
        ].tolist()
        return found


@pytest.fixture
def training(bigram_model: Path, texts: list[Text], tmp_path: Path) -> Trained:
    """Prepare a training."""
    return Trained(bigram_model, texts, tmp_path / "training.pt")


def recorded(llm: Any, prompt: list[int], number: int) -> dict[int, list[int]]:
    """Return what the engine drafts, by the position of the token before."""
    found: dict[int, list[int]] = {}

    def record(worker: Any) -> None:
        speculator = worker.model_runner.speculator
        original = speculator.propose

        def propose(*args: Any, **kwargs: Any) -> torch.Tensor:
            drafts: torch.Tensor = original(*args, **kwargs)
            anchor = int(speculator.input_buffers.seq_lens[0]) - BLOCK
            found[anchor] = drafts[0].tolist()
            return drafts

        speculator.propose = propose

    llm.collective_rpc(record)
    tokens(llm, [prompt], number)
    return found


def test_learns_and_is_what_the_engine_runs(
    training: Trained, bigram_model: Path, tmp_path: Path
) -> None:
    """The loss falls, drafts are right, and both sides draft the same tokens."""
    trainer = training.trainer(RECIPE)
    before = training.surviving(trainer.draft)
    first, _, _ = trainer.advance()
    *_, last = trainer.run()
    assert last.loss < 0.8 * first
    after = training.surviving(trainer.draft)
    assert after[0] > before[0] + 0.1

    draft = tmp_path / "draft"
    write_draft(trainer.draft, training.to_target, LAYERS, bigram_model, draft)
    # As the checkpoint has them.
    rounded = {k: v.bfloat16().float() for k, v in trainer.draft.state_dict().items()}
    trainer.draft.load_state_dict(rounded)
    prompt = [7, 3, 11, 200, 5]
    config = dspark(draft, BLOCK)
    with engine(bigram_model, speculative_config=config) as llm:
        (answer,) = tokens(llm, [prompt], 24)
        found = recorded(llm, prompt, 24)
    text = prompt + answer
    found = {anchor: drafts for anchor, drafts in found.items() if anchor < len(text)}
    assert len(found) >= 5
    for anchor, drafts in found.items():
        assert drafts == training.propose(trainer.draft, text[: anchor + 1], anchor)


def test_goes_on_where_it_was(training: Trained) -> None:
    """A training that was stopped ends as one that was not."""
    whole = training.trainer(replace(RECIPE, steps=8))
    list(whole.run())
    training.state.unlink()

    stopped = training.trainer(replace(RECIPE, steps=8))
    for _ in range(3):
        stopped.advance()
    stopped.save()
    went_on = training.trainer(replace(RECIPE, steps=8))
    assert went_on.step == 3
    list(went_on.run())
    for name, weight in whole.draft.state_dict().items():
        assert torch.equal(weight, went_on.draft.state_dict()[name]), name


def test_too_few_texts(training: Trained) -> None:
    """A batch must be filled."""
    with pytest.raises(
        ValueError, match=r"There are 64 texts .* a batch has 65: raise"
    ):
        training.trainer(replace(RECIPE, batch_size=65))


def options(model: Path, folder: Path) -> Options:
    """Return those of a training of seconds."""
    return Options(
        model=model,
        draft=folder / "draft",
        work=folder / "work",
        prompts=256,
        tokens=4,
        layers="0,3",
        vocabulary=200,
        intermediate=32,
        rank=8,
        block=3,
        steps=3,
        seed=0,
        seconds=None,
    )


def test_command(text_model: Path, tmp_path: Path) -> None:
    """From prompts to a checkpoint, and on from where it was stopped."""
    template = tmp_path / "target"
    template.mkdir()
    for file in text_model.iterdir():
        (template / file.name).symlink_to(file)
    path = template / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["chat_template"] = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    path.unlink()
    path.write_text(json.dumps(config))
    told = io.StringIO()
    console = Console(file=told, width=200)
    given = options(template, tmp_path)
    assert not train_draft(console, replace(given, seconds=0.0))
    assert "texts 1 of 2" in told.getvalue()
    assert not given.draft.exists()
    first = (given.work / "texts-000.json").read_text()
    assert train_draft(console, given)
    assert (given.work / "texts-000.json").read_text() == first
    assert told.getvalue().count("texts 1 of 2") == 1
    assert "hidden states 2 of 2" in told.getvalue()
    assert "step 3 of 3: loss" in told.getvalue()
    assert "is written; of 64 texts it did not see: length 1." in told.getvalue()
    assert json.loads((given.draft / "config.json").read_text())["block_size"] == 3
    with pytest.raises(ValueError, match=r"begun with tokens=4, not 5: go on with"):
        train_draft(console, replace(given, tokens=5))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"prompts": 127}, r"^--prompts must be 128 to 1000000, but is 127\.$"),
        ({"layers": "0,x"}, r"^--layers must be numbers .*, but is '0,x'\.$"),
        ({"block": 16}, r"^--block must be 1 to 15, but is 16\.$"),
        (
            {"model": Path("nowhere")},
            r"^nowhere is no model: it has no config\.json\.$",
        ),
    ],
)
def test_bad_options(
    model: Path, tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    """They are refused before anything is done."""
    given = replace(options(model, tmp_path), **change)
    with pytest.raises(ValueError, match=sentence):
        train_draft(Console(quiet=True), given)
    assert not given.work.exists()


def test_teacher_is_the_end_of_the_target(training: Trained) -> None:
    """What it says most likely follows is what the target says, where it can."""
    for sequence in training.sequences[:8]:
        answer = range(sequence.prompt_length, len(sequence.tokens))
        said = training.teacher(sequence.states).argmax(dim=-1)
        for i in answer:
            label = training.to_draft[sequence.tokens[i]]
            assert label in (-1, said[i - 1])


def test_last_layer_is_not_at_the_end(model: Path) -> None:
    """Its output is what the target's probabilities are computed from."""
    with pytest.raises(ValueError, match=r"last layer of .* is 3, but ends with 1"):
        Target(model, [0, 1], torch.float32)


def test_no_such_layer(model: Path) -> None:
    """Both sides are named."""
    with pytest.raises(ValueError, match=r"names layer 4, but .* has the layers 0 to"):
        Target(model, [4], torch.float32)
