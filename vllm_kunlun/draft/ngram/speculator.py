# SPDX-License-Identifier: Apache-2.0
"""The V2 runner's drafter where `method: dspark` names no draft model."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from vllm.logger import init_logger
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

from vllm_kunlun import ops
from vllm_kunlun.draft.ngram.index import Acceptance, MatchIndex
from vllm_kunlun.draft.ngram.lengths import DraftLengths
from vllm_kunlun.draft.ngram.step_times import FREE_ROWS, Cost, MeasuredCost

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.model_runner_v2 import FusedStages, ModelRunnerV2
    from vllm.v1.worker.gpu.states import RequestState

logger = init_logger(f"vllm.{__name__}")

# How fast what a draft's comparison taught is forgotten: by the request's next ones,
# and by all requests'. And how many comparisons of its own make a request count as
# much as all others together. Recorded answers, played back, are not fastidious: within
# 1 % for decays of 0.7 to 0.9 and of 0.99 to 0.998, and weights of 2 to 8.
DECAY = 0.8
POOL_DECAY = 0.995
POOL_WEIGHT = 4.0


class NgramSpeculator(BaseSpeculator):
    """Drafts what followed a request's latest tokens where they occurred before.

    It reads the runner's own token state and writes the runner's own draft tokens: two
    launches per step, of which the second one settles how many drafts are verified.
    """

    supports_mm_inputs = False
    # Drafts are certain: verification takes them for one-hot distributions.
    draft_logits: torch.Tensor | None = None

    def __init__(
        self, vllm_config: "VllmConfig", device: torch.device, *, keeps_index: bool
    ) -> None:
        """Allocate all that drafting needs.

        Args:
            vllm_config: with a speculative config that drafts from tokens.
            device: of the runner.
            keeps_index: whether n-grams are indexed, or searched for in each step.
        """
        config = vllm_config.speculative_config
        assert config is not None
        assert config.prompt_lookup_min is not None
        assert config.prompt_lookup_max is not None
        self._lengths = range(config.prompt_lookup_min, config.prompt_lookup_max + 1)
        max_num_reqs = vllm_config.scheduler_config.max_num_seqs
        num_steps = config.num_speculative_tokens
        self._is_async = bool(vllm_config.scheduler_config.async_scheduling)
        self._num_drafts = torch.zeros(max_num_reqs, dtype=torch.int32, device=device)
        self._found = torch.zeros(max_num_reqs, 2, dtype=torch.int32, device=device)
        self._handover = DraftLengths(
            device,
            self._num_drafts,
            has_peers=vllm_config.parallel_config.world_size > 1,
        )
        self._index: MatchIndex | None = None
        if keeps_index:
            self._index = MatchIndex.make(
                max_num_reqs,
                vllm_config.model_config.max_model_len,
                len(self._lengths),
                device,
            )
        self._acceptance: Acceptance | None = None
        self._measured: MeasuredCost | None = None
        if config.adaptive_draft_length:
            self._acceptance = Acceptance.make(max_num_reqs, num_steps, device)
            if config.draft_verify_cost is None:
                self._measured = MeasuredCost()
            else:
                free_rows = config.draft_free_rows
                self._given = Cost(
                    config.draft_verify_cost,
                    FREE_ROWS if free_rows is None else free_rows,
                )
        ops.load()
        logger.info_once(
            "DSpark drafts from each request's own tokens: %s %d drafts after a match "
            "of %d tokens or more, %s.",
            "up to" if config.adaptive_draft_length else "always",
            num_steps,
            config.prompt_lookup_min,
            f"found in an index of {self._index.nbytes / 2**20:.1f} MiB"
            if self._index is not None
            else "searched for in all tokens",
        )

    def attach(self, runner: "ModelRunnerV2", stages: "FusedStages") -> "FusedStages":
        """Take the runner's request state; return `stages` with those of drafting."""
        self._state: RequestState = runner.req_states
        runner.draft_tokens_handler = self._handover
        stages = replace(
            stages,
            begin_step=self.begin_step,
            store_draft_tokens=self._handover.set_draft_tokens,
        )
        if not self._is_async:
            return stages
        # Rows without a draft may still be verified where it is not known in time.
        self._state.num_drafts = self._num_drafts
        return replace(stages, count_drafts=self._handover.count)

    def begin_step(self, scheduler_output: "SchedulerOutput") -> "SchedulerOutput":
        """Return `scheduler_output` without drafts that need no verification."""
        if self._measured is not None:
            self._measured.begin_step()
        if self._is_async:
            return self._handover.trim(scheduler_output)
        return scheduler_output

    def init_cudagraph_manager(self, cudagraph_mode: "CUDAGraphMode") -> None:
        """Do nothing: there is no model to capture."""

    def capture(self, *attn_states: Any) -> None:
        """Do nothing: there is no model to capture."""

    def propose(
        self,
        input_batch: "InputBatch",
        attn_metadata: Any = None,
        slot_mappings: Any = None,
        last_hidden_states: Any = None,
        aux_hidden_states: Any = None,
        num_sampled: torch.Tensor | None = None,
        *args: Any,
        dummy_run: bool = False,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Draft for the batch, after its sampled tokens have been stored.

        Args:
            input_batch: the batch that has just been sampled.
            attn_metadata: unused, as all that concerns a draft model.
            slot_mappings: unused.
            last_hidden_states: unused.
            aux_hidden_states: unused.
            num_sampled: [num_reqs], int32.
            *args: unused.
            dummy_run: whether there are no requests, only shapes.
            **kwargs: unused.

        Returns:
            [max_num_reqs, num_steps], int64: the runner's draft tokens, by state row.
        """
        state = self._state
        if dummy_run:
            return state.draft_tokens
        step = (
            input_batch.idx_mapping,
            input_batch.query_start_loc,
            input_batch.seq_lens,
            state.prefill_len.gpu,
            num_sampled,
            state.all_token_ids.gpu,
            state.total_len.gpu,
        )
        index = self._index
        torch.ops.vllm_kunlun.ngram_draft(
            state.draft_tokens,
            self._num_drafts,
            self._found,
            index.entries if index is not None else None,
            index.indexed_len if index is not None else None,
            *step,
            self._lengths[0],
            self._lengths[-1],
            state.max_model_len,
        )
        if self._acceptance is not None:
            cost = self._cost(input_batch)
            torch.ops.vllm_kunlun.adapt_draft_length(
                self._num_drafts,
                self._acceptance.trials,
                self._acceptance.own,
                self._acceptance.pool,
                self._acceptance.chance,
                state.draft_tokens,
                self._found,
                *step,
                DECAY,
                POOL_DECAY,
                POOL_WEIGHT,
                cost.verify,
                cost.free_rows,
            )
        return state.draft_tokens

    def _cost(self, input_batch: "InputBatch") -> Cost:
        """Return what drafts cost in the next step, and learn from this one."""
        if self._measured is None:
            return self._given
        # Rows of a prompt have no logits, and cost less.
        if not input_batch.is_prefilling_np.any():
            self._measured.end_step(input_batch.num_tokens, input_batch.num_reqs)
        return self._measured.of(input_batch.num_reqs)
