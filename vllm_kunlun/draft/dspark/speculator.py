# SPDX-License-Identifier: Apache-2.0
"""The V2 runner's drafter where `method: dspark` names a draft model.

Upstream's, but for the parts of a drafting step whose switch is on.
"""

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from vllm.logger import init_logger
from vllm.v1.attention.backends.utils import PAD_SLOT_ID
from vllm.v1.worker.gpu.spec_decode.dspark.speculator import DSparkSpeculator

from vllm_kunlun import ops
from vllm_kunlun.draft.dspark.confidence import CutDrafts, likely_prefix
from vllm_kunlun.draft.dspark.markov import MarkovArgmax, why_not
from vllm_kunlun.draft.dspark.views import DraftViews
from vllm_kunlun.step.packed import VIEWS
from vllm_kunlun.switches import Switches

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.worker.gpu.block_table import BlockTables
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.model_runner_v2 import ModelRunnerV2
    from vllm.v1.worker.gpu.model_states.interface import ModelState

logger = init_logger(f"vllm.{__name__}")


class FusedDSparkSpeculator(DSparkSpeculator):
    """Drafts as upstream's does, in fewer launches and without rejected rows."""

    # Without the decorators that enter inference mode: the runner's step is in it.
    _propose = inspect.unwrap(DSparkSpeculator.propose)
    _run_model = inspect.unwrap(DSparkSpeculator._run_model)

    def __init__(
        self, vllm_config: "VllmConfig", device: torch.device, switches: Switches
    ) -> None:
        """Allocate the drafter's buffers.

        Args:
            vllm_config: with a DSpark draft model.
            device: of the runner.
            switches: which parts of drafting are not upstream's.
        """
        super().__init__(vllm_config, device)
        ops.load()
        self._switch(switches)
        self.stores_drafts = False
        self._state_drafts: torch.Tensor | None = None
        self._table: torch.Tensor | None = None
        self._markov: MarkovArgmax | None = None
        self._views: DraftViews | None = None
        config = vllm_config.speculative_config
        self._confidence_threshold: float = config.draft_confidence_threshold
        self._num_drafts = torch.zeros(
            self.max_num_reqs, dtype=torch.int32, device=device
        )

    def _switch(self, switches: Switches) -> None:
        self._switches = switches
        # How many rows are left is known at once only where the counts are.
        self._drops_rejected = switches.lazy_kv and self.device.type == "cpu"

    def use(self, switches: Switches) -> None:
        """Draft under `switches` from the next step on."""
        self._switch(switches)
        self._fuse_markov(self.model)
        self.set_attn(
            self.model_state,
            self.kv_cache_config,
            self.block_tables,
            *self._of_target,
        )

    def attach(self, runner: "ModelRunnerV2") -> None:
        """Have the scheduler told which drafts are worth verifying, where some are not.

        Args:
            runner: whose drafter this is.
        """
        self._state_drafts = runner.req_states.draft_tokens
        if self._confidence_threshold > 0:
            if self.scheduler_config.async_scheduling:
                logger.warning(
                    "draft_confidence_threshold=%s cuts nothing with async scheduling, "
                    "which schedules drafts before they are made: set "
                    "async_scheduling=False.",
                    self._confidence_threshold,
                )
            runner.draft_tokens_handler = CutDrafts(self.device, self._num_drafts)

    def load_draft_model(
        self, target_model: torch.nn.Module, target_attn_layer_names: set[str]
    ) -> torch.nn.Module:
        """Load the draft model and take over its Markov head, where that can be."""
        model = super().load_draft_model(target_model, target_attn_layer_names)
        self._fuse_markov(model)
        return model

    def _fuse_markov(self, model: torch.nn.Module) -> None:
        self._markov = None
        if self._switches.spec_vec and self.draft_logits is None:
            reason = why_not(model, self.dtype)
            if reason is None:
                self._markov = MarkovArgmax(model, self.max_num_reqs)
            else:
                logger.info(
                    "DSpark's Markov head is not fused (KUNLUN_SPEC_VEC): %s.", reason
                )

    def set_attn(
        self,
        model_state: "ModelState",
        kv_cache_config: "KVCacheConfig",
        block_tables: "BlockTables",
        *of_target: Any,
    ) -> None:
        """Take over the KV cache's layout; 0.26.0 adds what the target model has."""
        super().set_attn(model_state, kv_cache_config, block_tables, *of_target)
        self._of_target = of_target
        groups = self.draft_kv_cache_group_ids
        buffers = self.input_buffers
        self._draft_buffers = (
            buffers.input_ids,
            buffers.positions,
            buffers.query_start_loc,
            buffers.seq_lens,
            block_tables.slot_mappings,
            self.context_positions,
            self._context_slot_mappings,
            self.sample_indices,
            self.sample_pos,
            self.sample_idx_mapping,
            self.temperature,
            self.seeds,
            self.idx_mapping,
        )
        self._draft_layout = (
            [block_tables.input_block_tables[gid] for gid in groups],
            groups,
            [block_tables.kernel_block_sizes[gid] for gid in groups],
            self.parallel_drafting_token_id,
            self.num_query_per_req,
            self.num_speculative_steps,
            self.max_model_len,
            self.sample_from_anchor,
            self._switches.lazy_kv,
            PAD_SLOT_ID,
        )
        if self._drops_rejected:
            self._kept_views = lru_cache(maxsize=VIEWS)(self._make_kept_views)
            self._kept_positions = torch.empty_like(self.context_positions)
            self._kept_slots = torch.empty_like(self._context_slot_mappings)
        caches = self._switches.draft_cache and self.draft_attn_layer_names
        self._views = DraftViews(self) if caches else None

    def propose(
        self, *args: Any, dummy_run: bool = False, **kwargs: Any
    ) -> torch.Tensor:
        """Draft for the batch; see `DFlashSpeculator`."""
        # The rows of a dummy's requests may be those of real ones.
        self._table = None if dummy_run else self._state_drafts
        drafts: torch.Tensor = self._propose(*args, dummy_run=dummy_run, **kwargs)
        return drafts

    def prepare_draft_inputs(
        self,
        input_batch: "InputBatch",
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        last_sampled: torch.Tensor,
        next_prefill_tokens: torch.Tensor,
        temperature: torch.Tensor,
        seeds: torch.Tensor,
    ) -> None:
        """Prepare the query rows and slots of all groups: ``KUNLUN_DFLASH_VEC``."""
        if not self._switches.dflash_vec:
            super().prepare_draft_inputs(
                input_batch,
                num_sampled,
                num_rejected,
                last_sampled,
                next_prefill_tokens,
                temperature,
                seeds,
            )
            return
        torch.ops.vllm_kunlun.prepare_draft_inputs.default(
            *self._draft_buffers,
            input_batch.positions,
            input_batch.query_start_loc,
            input_batch.idx_mapping,
            last_sampled,
            next_prefill_tokens,
            num_sampled,
            num_rejected,
            temperature,
            seeds,
            *self._draft_layout,
            input_batch.num_reqs,
        )

    def store_context(
        self,
        input_batch: "InputBatch",
        last_hidden_states: torch.Tensor,
        aux_hidden_states: list[torch.Tensor] | None,
        num_rejected: torch.Tensor,
        dummy_run: bool,
    ) -> None:
        """Store the context's keys and values, of rows that stay: ``KUNLUN_LAZY_KV``.

        Rejected rows are at positions that query rows take over before anything looks
        at them, so that leaving them out changes no draft.
        """
        if not self._drops_rejected or dummy_run:
            super().store_context(
                input_batch,
                last_hidden_states,
                aux_hidden_states,
                num_rejected,
                dummy_run,
            )
            return
        sources = aux_hidden_states or [last_hidden_states]
        num_kept = input_batch.num_tokens - sum(num_rejected.numpy().tolist())
        features = sources[0].new_empty(num_kept, sum(s.shape[1] for s in sources))
        torch.ops.vllm_kunlun.gather_context.default(
            features,
            self._kept_positions,
            self._kept_slots,
            sources,
            self.context_positions,
            self._context_slot_mappings,
            input_batch.query_start_loc,
            num_rejected,
            input_batch.num_reqs,
        )
        if aux_hidden_states:
            features = self.model.combine_hidden_states(features)
        self.model.precompute_and_store_context_kv(
            features, *self._kept_views(num_kept)
        )

    def _make_kept_views(
        self, num_kept: int
    ) -> tuple[torch.Tensor, torch.Tensor | list[torch.Tensor]]:
        slots = self._kept_slots[:, :num_kept]
        return (
            self._kept_positions[:num_kept],
            slots[0]
            if self._layer_group_idx is None
            else [slots[i] for i in self._layer_group_idx],
        )

    def draft_slot_mappings(self, num_tokens_padded: int) -> dict[str, torch.Tensor]:
        """Return the slots of the query rows, by layer: ``KUNLUN_DRAFT_CACHE``."""
        if self._views is not None:
            return self._views.slot_mappings(num_tokens_padded)
        slot_mappings: dict[str, torch.Tensor] = super().draft_slot_mappings(
            num_tokens_padded
        )
        return slot_mappings

    def _build_draft_attn_metadata(
        self,
        num_reqs: int,
        num_reqs_padded: int,
        num_tokens_padded: int,
        num_query_per_req: int | None = None,
        causal: bool | Mapping[int, bool] = False,
    ) -> dict[str, Any] | None:
        """Return the draft's attention metadata, by layer: ``KUNLUN_DRAFT_CACHE``."""
        if self._views is not None:
            return self._views.attn_metadata(
                num_reqs, num_reqs_padded, num_tokens_padded, causal
            )
        metadata: dict[str, Any] | None = super()._build_draft_attn_metadata(
            num_reqs, num_reqs_padded, num_tokens_padded, num_query_per_req, causal
        )
        return metadata

    def _sample_sequential(self, num_reqs: int, head_hidden: torch.Tensor) -> None:
        """Draft left to right, greedily in one call: ``KUNLUN_SPEC_VEC``."""
        self.stores_drafts = False
        if self._markov is None or not self._markov.is_worth_it():
            super()._sample_sequential(num_reqs, head_hidden)
        else:
            logits = self.model.compute_draft_logits(
                self._sampled_rows(num_reqs, head_hidden)
            )
            self._markov(
                self.draft_tokens,
                logits.view(num_reqs, self.num_speculative_steps, logits.shape[-1]),
                self.input_buffers.input_ids,
                self.num_query_per_req,
                self._table,
                self.idx_mapping,
            )
            self.stores_drafts = self._table is not None
        if self._confidence_threshold > 0:
            self._count_likely(num_reqs, self._sampled_rows(num_reqs, head_hidden))

    def _sampled_rows(self, num_reqs: int, head_hidden: torch.Tensor) -> torch.Tensor:
        rows = num_reqs * self.num_speculative_steps
        if self.sample_from_anchor:
            return head_hidden[:rows]  # each query row is sampled from
        return head_hidden[self.sample_indices[:rows]]

    def _count_likely(self, num_reqs: int, hidden: torch.Tensor) -> None:
        drafts = self.draft_tokens[:num_reqs]
        anchors = self.input_buffers.input_ids[self._anchor_idx[:num_reqs]]
        chances = self.model.draft_confidence(
            hidden.view(*drafts.shape, hidden.shape[-1]),
            torch.cat([anchors[:, None], drafts[:, :-1]], dim=1),
        )
        self._num_drafts[:num_reqs] = likely_prefix(chances, self._confidence_threshold)
