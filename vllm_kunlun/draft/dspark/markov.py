# SPDX-License-Identifier: Apache-2.0
"""The Markov head's sequential stage in one call: part of ``KUNLUN_SPEC_VEC``."""

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import nn

# The op's limits: csrc/contracts/markov.h, csrc/torch/markov.cpp.
BLOCK = 1024
MAX_RANK = 1024

# The share of the head's products up to which the call is cheaper than a matrix product
# and what upstream does with its result; and for how many steps upstream's way is gone
# where more are taken.
WORTH_IT = 0.2
STEPS_OUT = 31


class MarkovArgmax:
    """Drafts greedily from base logits and a Markov head.

    The weights are read in place; of each row of the second one, its norm is kept,
    which tells for most tokens that they cannot be the best one.
    """

    def __init__(self, model: "nn.Module", max_num_reqs: int) -> None:
        """Take the head of `model`, for which `why_not` has no reason.

        Args:
            model: the draft model.
            max_num_reqs: the most requests of a batch.
        """
        head: Any = model.model.markov_head
        vocab_size = model.config.draft_vocab_size
        self._w1: torch.Tensor = head.markov_w1.weight.data
        self._w2: torch.Tensor = head.markov_w2.weight.data[:vocab_size]
        norms = self._w2.double().norm(dim=1).float()
        # Rounded up: a norm rules a token out.
        self._w2_norms = norms.nextafter(norms.new_tensor(torch.inf))
        self._d2t: torch.Tensor | None = model.draft_id_to_target_id
        num_blocks = -(-vocab_size // BLOCK)
        self._block_max = norms.new_empty(num_blocks * max_num_reqs)
        self._block_argmax = torch.empty_like(self._block_max, dtype=torch.int32)
        self._block_products = torch.zeros_like(self._block_argmax)
        self._steps_out = 0
        self._launch = torch.ops.vllm_kunlun.markov_argmax.default

    def is_worth_it(self) -> bool:
        """Whether to call it in this step: not if many tokens were not ruled out.

        To be asked once in each step.
        """
        if self._steps_out == 0:
            return True
        self._steps_out -= 1
        return False

    def __call__(
        self,
        draft_tokens: torch.Tensor,
        base_logits: torch.Tensor,
        anchors: torch.Tensor,
        anchor_stride: int,
        table: torch.Tensor | None = None,
        rows: torch.Tensor | None = None,
    ) -> None:
        """Draft for each request, left to right.

        Args:
            draft_tokens: [>= num_reqs, num_steps], int64; written, in the target's
                vocabulary.
            base_logits: [num_reqs, num_steps, draft_vocab_size], in the model's type.
            anchors: int32; request i's drafts follow `anchors[i * anchor_stride]`.
            anchor_stride: from one request's anchor to the next.
            table: [rows of state, >= num_steps], int64, to have the drafts, too.
            rows: [>= num_reqs], int32; request i's row of `table`.
        """
        self._launch(
            draft_tokens,
            self._block_max,
            self._block_argmax,
            self._block_products,
            base_logits,
            self._w1,
            self._w2,
            self._w2_norms,
            self._d2t,
            anchors,
            anchor_stride,
            table,
            rows,
        )
        if not self._block_products.is_cpu:  # to look would be to wait
            return
        num_reqs, _, vocab_size = base_logits.shape
        num_blocks = -(-vocab_size // BLOCK)
        products = int(self._block_products.numpy()[: num_blocks * num_reqs].sum())
        if products > WORTH_IT * num_reqs * vocab_size:
            self._steps_out = STEPS_OUT


def why_not(model: "nn.Module", dtype: torch.dtype) -> str | None:
    """Return what keeps the head of `model` from being fused, None for nothing.

    Args:
        model: the draft model.
        dtype: the model's, of the base logits.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        UnquantizedEmbeddingMethod,
    )
    from vllm.model_executor.models.qwen3_dspark import DSparkMarkovHead

    head = getattr(model.model, "markov_head", None)
    if not isinstance(head, DSparkMarkovHead):
        return f"its draft model is a {type(model).__name__}"
    weights = (head.markov_w1, head.markov_w2)
    if any(w.tp_size > 1 for w in weights):
        return f"it is sharded over {head.markov_w1.tp_size} ranks"
    if not all(isinstance(w.quant_method, UnquantizedEmbeddingMethod) for w in weights):
        return "it is quantised"
    if any(w.weight.dtype != dtype for w in weights):
        return f"its weights are {head.markov_w1.weight.dtype}, not {dtype}"
    if not 1 <= head.markov_w1.weight.shape[1] <= MAX_RANK:
        return f"its rank is {head.markov_w1.weight.shape[1]}"
    processor = model.logits_processor
    if processor.scale != 1.0 or processor.soft_cap is not None:
        return "its logits are scaled"
    return None
