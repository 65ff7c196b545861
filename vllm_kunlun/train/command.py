# SPDX-License-Identifier: Apache-2.0
"""What ``vllm-kunlun train-draft`` does with its options."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from vllm_kunlun.files import check_model
from vllm_kunlun.train.settings import same_settings
from vllm_kunlun.train.texts import num_shards, read_shard, shard, write_texts

HELD_OUT = 64
"""Texts that are only looked at to say how good a draft is."""


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    model: Path
    draft: Path
    work: Path
    prompts: int
    tokens: int
    layers: str
    vocabulary: int
    intermediate: int
    rank: int
    block: int
    steps: int
    seed: int
    seconds: float | None


def train_draft(console: Console, options: Options) -> bool:
    """Make texts, train on them, write the draft.

    Returns:
        Whether it is done; False if the time was over before.

    Raises:
        OSError: a file cannot be written.
        ValueError: an option is bad.
    """
    layers = check(options)
    settings = {
        "model": str(options.model.resolve()),
        "prompts": options.prompts,
        "tokens": options.tokens,
        "layers": layers,
        "seed": options.seed,
    }
    same_settings(options.work / "settings.json", settings)
    started = time.monotonic()
    for done in work(options, layers):
        seconds = time.monotonic() - started
        console.print(f"{seconds:6.0f} s  {done}", highlight=False)
        if options.seconds is not None and seconds > options.seconds:
            console.print("The time is over: the same command goes on from here.")
            return False
    return True


def check(options: Options) -> list[int]:
    """Return the target layers, after a look at all options.

    Raises:
        ValueError: an option is bad.
    """
    check_model(options.model)
    for name, value, least, most in (
        ("--prompts", options.prompts, 2 * HELD_OUT, 1_000_000),
        ("--tokens", options.tokens, 2, 512),
        ("--vocabulary", options.vocabulary, 1, 1_000_000),
        ("--intermediate", options.intermediate, 1, 100_000),
        ("--rank", options.rank, 1, 1024),
        ("--block", options.block, 1, 15),
        ("--steps", options.steps, 1, 10_000_000),
    ):
        if not least <= value <= most:
            raise ValueError(f"{name} must be {least} to {most}, but is {value}.")
    parts = [part.strip() for part in options.layers.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(
            "--layers must be numbers of the target's layers, separated by commas, but "
            f"is {options.layers!r}."
        )
    return [int(part) for part in parts]


def work(options: Options, layers: list[int]) -> Iterator[str]:
    """Do what is not done yet.

    Yields:
        After each piece what it was; all of it is on disk or will be when this
        generator is closed.
    """
    yield from write_texts(
        options.model, options.work, options.prompts, options.tokens, options.seed
    )

    import torch

    from vllm_kunlun.train.batches import usable
    from vllm_kunlun.train.checkpoint import shape_for, write_draft
    from vllm_kunlun.train.fit import Recipe, Trainer, surviving
    from vllm_kunlun.train.losses import Teacher
    from vllm_kunlun.train.start import frequent_tokens, inverse, start
    from vllm_kunlun.train.states import Target, read_states, write_states

    shape = shape_for(
        options.model,
        num_features=len(layers),
        intermediate_size=options.intermediate,
        markov_rank=options.rank,
        draft_vocab_size=options.vocabulary,
        block_size=options.block,
    )
    if options.vocabulary > shape.vocab_size:
        raise ValueError(
            f"--vocabulary must be at most the target's {shape.vocab_size}, but is "
            f"{options.vocabulary}."
        )
    recipe = Recipe(steps=options.steps, seed=options.seed)
    same_settings(options.work / "recipe.json", asdict(shape) | asdict(recipe))

    target = Target(options.model, layers, torch.bfloat16)
    yield from write_states(target, options.work, options.prompts)
    sequences = read_states(options.work, options.prompts)
    held_out, sequences = usable(sequences[:HELD_OUT]), usable(sequences[HELD_OUT:])
    texts = [
        text
        for i in range(num_shards(options.prompts))
        for text in read_shard(shard(options.work, i))
    ][HELD_OUT:]
    to_target = frequent_tokens(texts, options.vocabulary, shape.vocab_size)
    to_draft = inverse(to_target, shape.vocab_size)
    draft = start(shape, target, to_target, options.seed)
    teacher = Teacher(target.norm, shape.rms_norm_eps, draft.lm_head)
    del target
    trainer = Trainer(
        draft, to_draft, teacher, sequences, recipe, options.work / "training.pt"
    )
    try:
        for progress in trainer.run():
            yield (
                f"step {progress.step} of {recipe.steps}: loss {progress.loss:.3f}, "
                f"confidence {progress.confidence_loss:.3f}, "
                f"length {progress.length:.2f}"
            )
    finally:
        trainer.save()
    shares = surviving(draft, to_draft, teacher, held_out, recipe.dtype)
    write_draft(draft, to_target, layers, options.model, options.draft)
    rates = ", ".join(f"{share:.2f}" for share in shares)
    yield (
        f"{options.draft} is written; of {len(held_out)} texts it did not see: length "
        f"{1 + sum(shares):.2f}, right up to each place {rates}"
    )
