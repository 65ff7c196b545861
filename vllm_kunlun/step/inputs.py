# SPDX-License-Identifier: Apache-2.0
"""The inputs of a step: ``KUNLUN_HOSTVEC`` and ``KUNLUN_BATCH_META``.

Upstream's way is `GPUModelRunner.prepare_inputs`.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from vllm import envs
from vllm.v1.worker.gpu import input_batch as upstream
from vllm.v1.worker.gpu.cp_utils import prepare_dcp_local_seq_lens
from vllm.v1.worker.gpu.input_batch import InputBatch

from vllm_kunlun.step.packed import VIEWS, PackedArrays
from vllm_kunlun.step.plan import FusedPlanner, NumpyPlanner, Plan
from vllm_kunlun.step.tables import BatchedBlockTables
from vllm_kunlun.switches import Switches
from vllm_kunlun.upstream import copy_shared_blocks, uniform_decodes_lead

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor
    from vllm.v1.worker.gpu.model_runner_v2 import ModelRunnerV2


class _Logits(NamedTuple):
    """Where logits come from, whose they are, and which of their request's."""

    indices: torch.Tensor
    expanded_idx_mapping: torch.Tensor
    expanded_local_pos: torch.Tensor


class _Views(NamedTuple):
    """What a batch of one shape uses of the fixed buffers."""

    idx_mapping: torch.Tensor
    cu_num_logits: torch.Tensor
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    input_ids: torch.Tensor
    positions: torch.Tensor
    is_padding: torch.Tensor
    logits: _Logits


class StepInputs:
    """Makes a step's `InputBatch` in buffers that stay where they are."""

    def __init__(self, runner: "ModelRunnerV2", switches: Switches) -> None:
        self.runner = runner
        self.switches = switches
        states, buffers = runner.req_states, runner.input_buffers
        self.packed = PackedArrays(runner.max_num_reqs, runner.device)
        # Captured graphs read the batch's offsets where the runner has them.
        buffers.query_start_loc = self.packed.query_start_loc
        planner = FusedPlanner if switches.hostvec else NumpyPlanner
        self.plan = planner(states, self.packed)
        self.uniform_decodes_lead = uniform_decodes_lead()
        num_logits = runner.max_num_reqs * (1 + runner.num_speculative_steps)
        i32 = {"dtype": torch.int32, "device": runner.device}
        self.logits_indices = torch.zeros(
            num_logits, dtype=torch.int64, device=runner.device
        )
        self.expanded_idx_mapping = torch.zeros(num_logits, **i32)
        self.expanded_local_pos = torch.zeros(num_logits, **i32)
        self.marks_padding = bool(envs.VLLM_MOE_SKIP_PADDING)
        self._views = lru_cache(maxsize=VIEWS)(self._make_views)
        self._launch = torch.ops.vllm_kunlun.prepare_step.default
        # All of these stay where they are, but for prefill_len, whose buffers take
        # turns.
        self._before_prefill_len = (
            buffers.input_ids,
            buffers.positions,
            buffers.seq_lens,
            self.logits_indices,
            self.expanded_idx_mapping,
            self.expanded_local_pos,
            states.next_prefill_tokens,
            self.packed.idx_mapping,
            self.packed.query_start_loc,
            self.packed.cu_num_logits,
            states.all_token_ids.gpu,
        )
        self._after_prefill_len = (
            states.num_computed_tokens.gpu,
            states.last_sampled_tokens,
            states.draft_tokens,
        )

    def update_requests(self, scheduler_output: "SchedulerOutput") -> None:
        """Take new blocks of running requests, but leave counts to the planner."""
        runner = self.runner
        row_of = runner.req_states.req_id_to_index
        append = runner.block_tables.append_block_ids
        requests = scheduler_output.scheduled_cached_reqs
        for req_id, block_ids in zip(
            requests.req_ids, requests.new_block_ids, strict=True
        ):
            if block_ids is not None:
                append(row_of[req_id], block_ids, overwrite=False)
        if scheduler_output.new_block_ids_to_zero:
            assert runner.kv_block_zeroer is not None
            runner.kv_block_zeroer.zero_block_ids(
                scheduler_output.new_block_ids_to_zero
            )
        copy_shared_blocks(runner, scheduler_output)

    def prepare(
        self,
        scheduler_output: "SchedulerOutput",
        batch_desc: "BatchExecutionDescriptor",
    ) -> InputBatch:
        """Return the step's batch; see `GPUModelRunner.prepare_inputs`."""
        runner = self.runner
        num_tokens = scheduler_output.total_num_scheduled_tokens
        num_tokens_padded = batch_desc.num_tokens
        num_reqs = len(scheduler_output.num_scheduled_tokens)
        num_reqs_padded = batch_desc.num_reqs or num_reqs
        num_new_sampled = runner.model_state.num_new_sampled_tokens_per_step
        # With 1, fewer tokens simply precede more.
        first = runner.decode_query_len if self.uniform_decodes_lead else 1
        plan = self.plan(scheduler_output, num_reqs_padded, num_new_sampled, first)
        self._send()
        if self.marks_padding:
            is_padding = runner.input_buffers.is_padding
            is_padding[:num_tokens].fill_(False)
            is_padding[num_tokens:num_tokens_padded].fill_(True)

        num_logits = int(plan.cu_num_logits[num_reqs])
        views = self._views(num_reqs, num_reqs_padded, num_tokens_padded, num_logits)
        if self.switches.hostvec:
            prefill_len = runner.req_states.prefill_len.gpu
            self._launch(
                *self._before_prefill_len,
                prefill_len,
                *self._after_prefill_len,
                num_new_sampled,
                num_reqs,
            )
            logits = views.logits
        else:
            logits = self._fill(plan, views, num_logits, num_new_sampled)
        return InputBatch(
            req_ids=plan.req_ids,
            num_reqs=num_reqs,
            num_reqs_after_padding=num_reqs_padded,
            idx_mapping=views.idx_mapping,
            idx_mapping_np=plan.idx_mapping,
            expanded_idx_mapping=logits.expanded_idx_mapping,
            expanded_local_pos=logits.expanded_local_pos,
            num_scheduled_tokens=plan.num_tokens,
            num_tokens=num_tokens,
            num_tokens_after_padding=num_tokens_padded,
            num_draft_tokens=num_logits - num_reqs * num_new_sampled,
            num_draft_tokens_per_req=plan.num_drafts,
            query_start_loc=views.query_start_loc,
            query_start_loc_np=plan.query_start_loc[: num_reqs_padded + 1],
            seq_lens=views.seq_lens,
            seq_lens_cpu_upper_bound=plan.seq_len_bound,
            dcp_local_seq_lens=(
                self._dcp_local_seq_lens(num_reqs, num_reqs_padded)
                if runner.use_dcp
                else None
            ),
            num_computed_tokens_np=plan.computed,
            prefill_len_np=plan.prefill_len,
            num_computed_prefill_tokens_np=plan.computed_prefill,
            is_prefilling_np=plan.is_prefilling,
            max_seq_len_np=None,
            input_ids=views.input_ids,
            positions=views.positions,
            is_padding=views.is_padding,
            logits_indices=logits.indices,
            cu_num_logits=views.cu_num_logits,
            cu_num_logits_np=plan.cu_num_logits,
            has_structured_output_reqs=scheduler_output.has_structured_output_requests,
            prompt_lens=(
                runner.req_states.prompt_len.gpu[views.idx_mapping]
                if runner.model_config.rswa_window is not None
                else None
            ),
            max_query_len=plan.max_num_tokens,
            max_seq_len=plan.max_seq_len,
            any_prefilling=plan.any_prefilling,
        )

    def _make_views(
        self, num_reqs: int, num_reqs_padded: int, num_tokens: int, num_logits: int
    ) -> "_Views":
        buffers = self.runner.input_buffers
        return _Views(
            idx_mapping=self.packed.idx_mapping[:num_reqs],
            cu_num_logits=self.packed.cu_num_logits[: num_reqs + 1],
            query_start_loc=self.packed.query_start_loc[: num_reqs_padded + 1],
            seq_lens=buffers.seq_lens[:num_reqs_padded],
            input_ids=buffers.input_ids[:num_tokens],
            positions=buffers.positions[:num_tokens],
            is_padding=buffers.is_padding[:num_tokens],
            logits=_Logits(
                self.logits_indices[:num_logits],
                self.expanded_idx_mapping[:num_logits],
                self.expanded_local_pos[:num_logits],
            ),
        )

    def _send(self) -> None:
        if not self.switches.batch_meta:
            self.packed.send_each()
            return
        tables = self.runner.block_tables
        assert isinstance(tables, BatchedBlockTables)
        tables.staged = self.packed.send(tables.take_staged())

    def _fill(
        self, plan: Plan, views: "_Views", num_logits: int, num_new_sampled: int
    ) -> "_Logits":
        buffers = self.runner.input_buffers
        states = self.runner.req_states
        if plan.any_prefilling:
            upstream.prepare_prefill_inputs(
                buffers.input_ids,
                states.next_prefill_tokens,
                views.idx_mapping,
                views.query_start_loc,
                states.all_token_ids.gpu,
                states.prefill_len.gpu,
                states.num_computed_tokens.gpu,
            )
        upstream.prepare_pos_seq_lens(
            views.idx_mapping,
            views.query_start_loc,
            states.num_computed_tokens.gpu,
            buffers.positions,
            buffers.seq_lens,
        )
        indices = upstream.combine_sampled_and_draft_tokens(
            buffers.input_ids,
            views.idx_mapping,
            states.last_sampled_tokens,
            views.query_start_loc,
            buffers.seq_lens,
            states.prefill_len.gpu,
            states.draft_tokens,
            views.cu_num_logits,
            num_logits,
            num_new_sampled,
        )
        expanded = upstream.expand_idx_mapping(
            views.idx_mapping,
            num_logits,
            views.cu_num_logits,
            self.runner.decode_query_len,
        )
        return _Logits(indices, *expanded)

    def _dcp_local_seq_lens(self, num_reqs: int, num_reqs_padded: int) -> torch.Tensor:
        runner = self.runner
        buffers = runner.input_buffers
        prepare_dcp_local_seq_lens(
            buffers.dcp_local_seq_lens,
            buffers.seq_lens,
            num_reqs,
            runner.dcp_size,
            runner.dcp_rank,
            runner.cp_interleave,
        )
        return buffers.dcp_local_seq_lens[:num_reqs_padded]
