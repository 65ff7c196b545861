# SPDX-License-Identifier: Apache-2.0
"""The training loop; it can be stopped anywhere and goes on where it was."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vllm_kunlun.files import write_whole
from vllm_kunlun.train.batches import Batch, batch_of, order
from vllm_kunlun.train.losses import Teacher, judge
from vllm_kunlun.train.model import Draft
from vllm_kunlun.train.states import Sequenced

SAVE_SECONDS = 60.0
REPORT_STEPS = 50
WARM_UP = 0.03
"""The share of the steps in which the learning rate rises."""
LAST_RATE = 0.05
"""What of it is left in the last step."""


@dataclass(frozen=True)
class Recipe:
    """How a draft is trained.

    Attributes:
        steps: batches in all.
        batch_size: texts in a batch.
        num_anchors: blocks in each text.
        learning_rate: the highest.
        decay: of the loss, in places of a block.
        seed: of weights, order and blocks.
        dtype: that products are computed in.
    """

    steps: int
    batch_size: int = 16
    num_anchors: int = 32
    learning_rate: float = 2e-3
    decay: float = 4.0
    seed: int = 0
    dtype: str = "bfloat16"


@dataclass(frozen=True)
class Progress:
    """What a stretch of steps gave: means over it.

    Attributes:
        step: steps so far.
        loss: of tokens.
        confidence_loss: of chances.
        length: tokens of a step of the target, with the drafts and its own.
    """

    step: int
    loss: float
    confidence_loss: float
    length: float


class Trainer:
    """A draft in training."""

    def __init__(
        self,
        draft: Draft,
        to_draft: torch.Tensor,
        teacher: Teacher,
        sequences: Sequence[Sequenced],
        recipe: Recipe,
        state: Path,
    ) -> None:
        """Go on from `state`, if there is one.

        Args:
            draft: with its initial weights.
            to_draft: as `judge` has it.
            teacher: as `judge` has it.
            sequences: to learn from.
            recipe: how.
            state: file that the training's state is in.

        Raises:
            ValueError: there are fewer texts than a batch has.
        """
        if len(sequences) < recipe.batch_size:
            raise ValueError(
                f"There are {len(sequences)} texts to learn from and a batch has "
                f"{recipe.batch_size}: raise --prompts."
            )
        self.draft = draft
        self.step = 0
        self._to_draft = to_draft
        self._teacher = teacher
        self._sequences = sequences
        self._recipe = recipe
        self._state = state
        self._per_epoch = len(sequences) // recipe.batch_size
        self._epoch = -1
        self._batches: list[list[int]] = []
        weights = [p for p in draft.parameters() if p.ndim > 1]
        scales = [p for p in draft.parameters() if p.ndim == 1]
        self._optimizer = torch.optim.AdamW(
            [{"params": weights, "weight_decay": 0.02}, {"params": scales}],
            lr=recipe.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0.0,
            fused=True,
        )
        if state.exists():
            saved = torch.load(state, weights_only=True)
            self.step = saved["step"]
            draft.load_state_dict(saved["draft"])
            self._optimizer.load_state_dict(saved["optimizer"])

    def save(self) -> None:
        """Write the training's state."""
        saved = {
            "step": self.step,
            "draft": self.draft.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        write_whole(self._state, lambda scratch: torch.save(saved, scratch))

    def run(self) -> Iterator[Progress]:
        """Train to the last step.

        Yields:
            Now and then how it goes. Whoever stops there calls `save`.
        """
        done: list[tuple[float, float, float]] = []
        saved = time.monotonic()
        while self.step < self._recipe.steps:
            done.append(self.advance())
            if time.monotonic() - saved > SAVE_SECONDS:
                self.save()
                saved = time.monotonic()
            if self.step % REPORT_STEPS == 0 or self.step == self._recipe.steps:
                means = [sum(column) / len(done) for column in zip(*done, strict=True)]
                yield Progress(self.step, *means)
                done = []
        self.save()

    def advance(self) -> tuple[float, float, float]:
        """Take one step; return its figures in the order of `Progress`."""
        epoch, place = divmod(self.step, self._per_epoch)
        if epoch != self._epoch:
            seed = self._recipe.seed + epoch
            self._batches = order(self._sequences, self._recipe.batch_size, seed)
            self._epoch = epoch
        chosen = self._batches[place]
        figures = self._take([self._sequences[i] for i in chosen])
        self.step += 1
        return figures

    def _take(self, sequences: Sequence[Sequenced]) -> tuple[float, float, float]:
        recipe = self._recipe
        seed = recipe.seed * 1_000_003 + self.step
        batch = batch_of(sequences, recipe.num_anchors, seed)
        for group in self._optimizer.param_groups:
            group["lr"] = recipe.learning_rate * rate(self.step, recipe.steps)
        with autocast(recipe.dtype):
            outcome = judge(
                self.draft, batch, self._to_draft, self._teacher, recipe.decay
            )
        self._optimizer.zero_grad()
        (outcome.loss + outcome.confidence_loss).backward()
        torch.nn.utils.clip_grad_norm_(self.draft.parameters(), 1.0)
        self._optimizer.step()
        length = 1 + outcome.survived.float().sum(dim=1).mean()
        return outcome.loss.item(), outcome.confidence_loss.item(), length.item()


def rate(step: int, steps: int) -> float:
    """Return what of the learning rate a step has: up in a line, down in a cosine."""
    warm = max(1, round(steps * WARM_UP))
    if step < warm:
        return (step + 1) / warm
    along = (step - warm) / max(1, steps - warm)
    return LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * along)) / 2


def autocast(dtype: str) -> Any:
    """Return a context in which products are computed in `dtype`."""
    return torch.autocast(
        "cpu", dtype=getattr(torch, dtype), enabled=dtype != "float32"
    )


def surviving(
    draft: Draft,
    to_draft: torch.Tensor,
    teacher: Teacher,
    sequences: Sequence[Sequenced],
    dtype: str,
    num_anchors: int = 32,
) -> list[float]:
    """Return for each place the share of blocks that are right up to there.

    Args:
        draft: the draft.
        to_draft: as `judge` has it.
        teacher: as `judge` has it.
        sequences: texts that it did not learn from.
        dtype: that products are computed in.
        num_anchors: blocks in each text.
    """
    found: list[torch.Tensor] = []
    for i in range(0, len(sequences), 16):
        batch: Batch = batch_of(sequences[i : i + 16], num_anchors, seed=i)
        with torch.inference_mode(), autocast(dtype):
            found.append(judge(draft, batch, to_draft, teacher, decay=1.0).survived)
    return list(torch.cat(found).float().mean(dim=0).tolist())
