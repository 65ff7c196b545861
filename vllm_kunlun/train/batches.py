# SPDX-License-Identifier: Apache-2.0
"""Batches of texts, and where in them blocks begin."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

from vllm_kunlun.train.states import Sequenced

POOL = 16
"""Batches that are made of texts of about the same length together."""


@dataclass(frozen=True)
class Batch:
    """Texts, padded at the end, and blocks in them.

    Attributes:
        tokens: [B, L], int64.
        states: [B, L, features].
        anchors: [B, A], int64: the tokens that blocks begin at.
        lengths: [B], int64.
    """

    tokens: torch.Tensor
    states: torch.Tensor
    anchors: torch.Tensor
    lengths: torch.Tensor


def usable(sequences: Sequence[Sequenced]) -> list[Sequenced]:
    """Return those in which a draft can be right: answers of two tokens or more."""
    return [s for s in sequences if len(s.tokens) - s.prompt_length >= 2]


def batch_of(sequences: Sequence[Sequenced], num_anchors: int, seed: int) -> Batch:
    """Return the batch of some texts, with blocks anywhere in their answers.

    Args:
        sequences: the texts.
        num_anchors: blocks in each.
        seed: for where they begin.
    """
    draw = torch.Generator().manual_seed(seed)
    anchors = [
        torch.randint(
            s.prompt_length, len(s.tokens) - 1, (num_anchors,), generator=draw
        )
        for s in sequences
    ]
    return Batch(
        pad_sequence([s.tokens for s in sequences], batch_first=True),
        pad_sequence([s.states for s in sequences], batch_first=True),
        torch.stack(anchors),
        torch.tensor([len(s.tokens) for s in sequences]),
    )


def order(sequences: Sequence[Sequenced], size: int, seed: int) -> list[list[int]]:
    """Return the batches of an epoch; what does not fill one is left out.

    Args:
        sequences: all texts.
        size: of a batch, at most their number.
        seed: for the order.
    """
    draw = random.Random(seed)
    shuffled = list(range(len(sequences)))
    draw.shuffle(shuffled)
    batches = []
    for begin in range(0, len(shuffled), size * POOL):
        pool = shuffled[begin : begin + size * POOL]
        pool.sort(key=lambda i: len(sequences[i].tokens))
        for i in range(0, len(pool) - size + 1, size):
            batches.append(pool[i : i + size])
    draw.shuffle(batches)
    return batches
