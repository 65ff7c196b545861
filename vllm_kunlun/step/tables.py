# SPDX-License-Identifier: Apache-2.0
"""Batched block tables: ``KUNLUN_BATCH_META``."""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from vllm.v1.attention.backends.utils import PAD_SLOT_ID
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.worker.gpu.attn_utils import build_slot_mappings_by_layer
from vllm.v1.worker.gpu.block_table import BlockTables
from vllm.v1.worker.gpu.input_batch import InputBatch

from vllm_kunlun.step.packed import VIEWS


class _Writes(NamedTuple):
    """Staged writes: where each begins, and where its blocks end in `blocks`."""

    groups: list[int]
    rows: list[int]
    starts: list[int]
    ends: list[int]
    blocks: list[int]


class BatchedBlockTables(BlockTables):
    """Block tables of all KV cache groups, brought up to date in one launch.

    Staged writes wait for the step's one copy (`take_staged`). The launch applies
    them, gathers the batch's rows, of which it copies only what is new, and computes
    the slot mappings.

    ``kept_req`` and ``kept_blocks``, i32 ``[num_groups, max_num_reqs]``, say which
    request each row of the batch's tables shows, and how many of its blocks.
    """

    def __init__(self, **kwargs: Any) -> None:
        self.staged: torch.Tensor | None = None
        self.num_writes = 0
        self._writes = _Writes([], [], [], [], [])
        self._changed = False
        shape = (len(kwargs["block_sizes"]), kwargs["max_num_reqs"])
        i32 = {"dtype": torch.int32, "device": kwargs["device"]}
        self.kept_req = torch.empty(shape, **i32)
        self.kept_blocks = torch.zeros(shape, **i32)
        self._launch = torch.ops.vllm_kunlun.prepare_block_tables.default
        super().__init__(**kwargs)
        self._views = lru_cache(maxsize=VIEWS)(self._make_views)
        self._by_layer: dict[int, dict[str, torch.Tensor]] = {}

    def init_block_table_layout_tensors(self) -> None:
        """Forget what the rows show, too: their memory may be new."""
        super().init_block_table_layout_tensors()
        self.kept_req.fill_(-1)
        self._layout = (
            self.block_table_ptrs,
            self.input_block_table_ptrs,
            self.block_table_strides,
            self.block_sizes_tensor,
        )
        self._kept = (self.kept_req, self.kept_blocks, self.slot_mappings)
        self._context_parallel = (
            self.cp_size,
            self.cp_rank,
            self.cp_interleave,
            PAD_SLOT_ID,
        )

    def append_block_ids(
        self,
        req_index: int,
        new_block_ids: tuple[list[int], ...],
        overwrite: bool,
    ) -> None:
        """Stage a request's new blocks; see `BlockTables`."""
        writes = self._writes
        counts = self.num_blocks.np
        for group, block_ids in enumerate(new_block_ids):
            per_block = self.blocks_per_kv_block[group]
            if per_block > 1:
                block_ids = [
                    b * per_block + k for b in block_ids for k in range(per_block)
                ]
            start = 0 if overwrite else counts.item(group, req_index)
            counts[group, req_index] = start + len(block_ids)
            if block_ids:
                writes.groups.append(group)
                writes.rows.append(req_index)
                writes.starts.append(start)
                writes.blocks.extend(block_ids)
                writes.ends.append(len(writes.blocks))
        self._changed = True

    def apply_staged_writes(self) -> None:
        """Leave the writes to `prepare`."""

    def take_staged(self) -> list[int]:
        """Return the staged writes: groups, rows, starts, ends, blocks."""
        if not self._changed:
            return []
        self._changed = False
        self.num_blocks.copy_to_uva()
        writes, self._writes = self._writes, _Writes([], [], [], [], [])
        self.num_writes = len(writes.groups)
        return [n for part in writes for n in part]

    def prepare(
        self, batch: InputBatch
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return `batch`'s block tables and slot mappings.

        As `GPUModelRunner.prepare_attn`: per group i32
        ``[num_reqs_padded, max_num_blocks]``, and i64
        ``[num_groups, num_tokens_padded]``.
        """
        self._launch(
            *self._layout,
            self.num_blocks.gpu,
            *self._kept,
            batch.idx_mapping,
            batch.query_start_loc,
            batch.positions,
            self.staged,
            self.num_writes,
            batch.num_reqs,
            batch.num_reqs_after_padding,
            *self._context_parallel,
        )
        self.staged = None
        self.num_writes = 0
        return self._views(batch.num_reqs_after_padding, batch.num_tokens_after_padding)

    def slot_mappings_by_layer(
        self, slot_mappings: torch.Tensor, config: KVCacheConfig
    ) -> dict[str, torch.Tensor]:
        """Return each layer's row of a view of `slot_mappings` on its first columns."""
        num_tokens = slot_mappings.shape[1]
        found = self._by_layer.get(num_tokens)
        if found is None:
            found = build_slot_mappings_by_layer(slot_mappings, config)
            if len(self._by_layer) < VIEWS:
                self._by_layer[num_tokens] = found
        return found

    def _make_views(
        self, rows: int, tokens: int
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        tables = tuple(table[:rows] for table in self.input_block_tables)
        return tables, self.slot_mappings[:, :tokens]
