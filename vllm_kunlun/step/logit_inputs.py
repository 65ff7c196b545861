# SPDX-License-Identifier: Apache-2.0
"""The tokens behind a batch's rows of logits: drafts, and what stands for none."""

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler


class LogitInputs(NamedTuple):
    """A step's input tokens and positions, and where those of the logits stand."""

    tokens: torch.Tensor
    """int32 [num_tokens]; -1 for a draft that must not be accepted."""
    positions: torch.Tensor
    """int64 [num_tokens]."""
    indices: torch.Tensor
    """int64 [num_logits]."""


def inputs_of(
    input_batch: "InputBatch", verifier: "RejectionSampler | None"
) -> LogitInputs:
    """Return the inputs of a batch; `verifier` is None without drafts."""
    indices = input_batch.logits_indices
    if verifier is None or not has_missing_drafts(input_batch, verifier):
        return LogitInputs(input_batch.input_ids, input_batch.positions, indices)
    drafts = verifier.drafts_to_verify(input_batch)
    positions = input_batch.positions[indices]
    every = torch.arange(drafts.shape[0], device=drafts.device)
    return LogitInputs(drafts, positions, every)


def has_missing_drafts(input_batch: "InputBatch", verifier: "RejectionSampler") -> bool:
    """Whether some rows have no draft behind them, but a token for the model."""
    if verifier.sampler.req_states.num_drafts is not None:
        return True
    num_drafts = input_batch.num_draft_tokens_per_req
    assert num_drafts is not None
    return bool((input_batch.is_prefilling_np & (num_drafts > 0)).any())
