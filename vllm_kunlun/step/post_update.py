# SPDX-License-Identifier: Apache-2.0
"""What a step leaves behind: ``KUNLUN_HOSTVEC_POSTUPDATE``, ``KUNLUN_POSTUPD3``."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.model_runner_v2 import ModelRunnerV2


class PostUpdate:
    """Takes a step's outcome into the request states."""

    def __init__(self, runner: "ModelRunnerV2") -> None:
        self.runner = runner
        self._post_update = torch.ops.vllm_kunlun.post_update.default
        self._store_drafts = torch.ops.vllm_kunlun.store_drafts.default

    def postprocess_sampled(
        self,
        idx_mapping: torch.Tensor,
        sampled_tokens: torch.Tensor,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        query_start_loc: torch.Tensor | None = None,
    ) -> None:
        """Count and keep the sampled tokens; see `GPUModelRunner`."""
        runner = self.runner
        states = runner.req_states
        counts = None
        if runner.is_last_pp_rank:
            assert runner.sampler is not None
            counts = runner.sampler.penalties_state.output_bin_counts
        self._post_update(
            idx_mapping,
            states.num_computed_tokens.gpu,
            states.last_sampled_tokens,
            counts,
            counts.stride(0) if counts is not None else 0,
            sampled_tokens,
            sampled_tokens.stride(0),
            num_sampled,
            num_rejected,
            query_start_loc,
            states.all_token_ids.gpu,
            states.all_token_ids.gpu.stride(0),
            states.total_len.gpu,
            idx_mapping.shape[0],
        )
        runner.model_state.postprocess_state(
            idx_mapping, num_sampled, states.num_computed_tokens.gpu
        )

    def store_draft_tokens(
        self, input_batch: "InputBatch", draft_tokens: torch.Tensor
    ) -> None:
        """Keep `draft_tokens`, i64 ``[num_reqs, num_steps]``, for the next step."""
        runner = self.runner
        if not getattr(runner.speculator, "stores_drafts", False):
            self._store_drafts(
                runner.req_states.draft_tokens, input_batch.idx_mapping, draft_tokens
            )
        if input_batch.has_structured_output_reqs:
            # The scheduler reads them later than the next step may write them.
            draft_tokens = draft_tokens.clone()
        runner.draft_tokens_handler.set_draft_tokens(input_batch, draft_tokens)
