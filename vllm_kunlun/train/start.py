# SPDX-License-Identifier: Apache-2.0
"""The weights a draft starts from, and the tokens it can draft."""

from collections.abc import Iterable

import torch

from vllm_kunlun.train.model import Draft, Shape
from vllm_kunlun.train.states import Target
from vllm_kunlun.train.texts import Text

WIDTH = 0.02


def frequent_tokens(
    texts: Iterable[Text], number: int, vocab_size: int
) -> torch.Tensor:
    """Return the tokens that are answered most, ascending.

    Args:
        texts: of the target.
        number: how many.
        vocab_size: the target's.

    Returns:
        [number], int64. Where fewer were answered, the first others fill it up.
    """
    counts = torch.zeros(vocab_size, dtype=torch.long)
    for text in texts:
        counts += torch.bincount(torch.tensor(text.answer), minlength=vocab_size)
    chosen = counts.sort(descending=True, stable=True).indices[:number]
    return chosen.sort().values


def inverse(to_target: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Return the draft's token for each of the target's, -1 for none."""
    to_draft = torch.full((vocab_size,), -1)
    to_draft[to_target] = torch.arange(len(to_target))
    return to_draft


def start(shape: Shape, target: Target, to_target: torch.Tensor, seed: int) -> Draft:
    """Return a draft that is yet to learn.

    Its output is scaled as the target's is. Its Markov head starts from the principal
    components of the target's embeddings, so that what it learns of a token holds for
    those alike, of which some may never come in training.

    Args:
        shape: of the draft.
        target: whose draft it is.
        to_target: [draft_vocab_size], int64.
        seed: for all other weights.
    """
    torch.manual_seed(seed)
    embeddings = target.embeddings.float()
    draft = Draft(shape, embeddings, target.lm_head[to_target].float())
    for parameter in draft.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=WIDTH)
    with torch.no_grad():
        draft.norm.weight.copy_(target.norm)
        u, s, _ = torch.pca_lowrank(embeddings, shape.markov_rank)
        components = u * s
        draft.markov_head.markov_w1.weight.copy_(components / components.std())
    return draft
