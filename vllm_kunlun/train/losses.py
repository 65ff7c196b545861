# SPDX-License-Identifier: Apache-2.0
"""What a draft is trained for, and how it is told that it got better."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from vllm_kunlun.train.batches import Batch
from vllm_kunlun.train.model import Draft

SOFT = 0.5
"""The share of the target's probabilities in what a draft is to say."""


class Teacher(nn.Module):
    """What the target thinks would follow, from the output of its last layer."""

    def __init__(self, norm: torch.Tensor, eps: float, lm_head: torch.Tensor) -> None:
        """Take over the end of the target.

        Args:
            norm: [hidden_size], the scales before the LM head.
            eps: of the norm.
            lm_head: [draft_vocab_size, hidden_size].
        """
        super().__init__()
        self._norm, self._eps, self._lm_head = norm.float(), eps, lm_head

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return probabilities among the draft's tokens.

        Args:
            states: [..., layers * hidden_size], the last layer's last.

        Returns:
            [..., draft_vocab_size], f32.
        """
        width = self._norm.shape[0]
        last = states[..., -width:].float()
        hidden = F.rms_norm(last, (width,), self._norm, self._eps)
        return F.linear(hidden, self._lm_head).float().softmax(dim=-1)


@dataclass(frozen=True)
class Outcome:
    """A draft's work on a batch.

    Attributes:
        loss: [], of tokens: cross-entropy with what the target says.
        confidence_loss: [], of the chances the confidence head gave.
        survived: [blocks, block_size], bool: this draft and those before it are right.
    """

    loss: torch.Tensor
    confidence_loss: torch.Tensor
    survived: torch.Tensor


def judge(
    draft: Draft,
    batch: Batch,
    to_draft: torch.Tensor,
    teacher: Teacher,
    decay: float,
) -> Outcome:
    """Run a draft on a batch.

    A draft is to say the target's greedy token, and, to learn more from a text than
    that, what probabilities the target gave to others.

    Each draft is given the right token before it, as it has it where it counts: what
    follows a wrong one is not verified. For the same reason an error weighs the less
    the later it comes: exp(-place / decay).

    Args:
        draft: the draft.
        batch: texts and blocks.
        to_draft: [vocab_size], int64: tokens of the draft's vocabulary, -1 for none.
        teacher: the end of the target.
        decay: in places.
    """
    n = draft.shape.block_size
    places = torch.arange(n)
    positions = batch.anchors[..., None] + places
    last = batch.tokens.shape[1] - 1
    here = positions.clamp(max=last).flatten(1)
    previous = batch.tokens.gather(1, here).view_as(positions)
    following = batch.tokens.gather(1, (positions + 1).clamp(max=last).flatten(1))
    there = positions + 1 < batch.lengths[:, None, None]
    labels = to_draft[following.view_as(positions)].where(there, -1)

    hidden = draft(batch.tokens, batch.states, batch.anchors)
    logits = draft.logits(hidden, previous)
    log_chances = logits.float().log_softmax(dim=-1)
    with torch.no_grad():
        texts = torch.arange(len(here))[:, None]
        wanted = teacher(batch.states)[texts, here].view_as(logits)
    hard = log_chances.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
    soft = (wanted * log_chances).sum(dim=-1)
    each = -(SOFT * soft + (1 - SOFT) * hard)
    weights = (-places / decay).exp() * (labels >= 0)
    right = logits.max(dim=-1).indices == labels
    survived = right.cumprod(dim=-1).bool()

    # The chance is that of a draft whose prefix survived. What the head learns does
    # not reach the draft.
    asked = there & F.pad(survived[..., :-1], (1, 0), value=True)
    odds = draft.confidence(hidden.detach(), previous)
    wrong = F.binary_cross_entropy_with_logits(
        odds.float(), right.float(), reduction="none"
    )
    return Outcome(
        (each * weights).sum() / weights.sum().clamp(min=1),
        (wrong * asked).sum() / asked.sum().clamp(min=1),
        survived.flatten(0, 1),
    )
