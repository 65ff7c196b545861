# SPDX-License-Identifier: Apache-2.0
"""Batched block tables: ``KUNLUN_BATCH_META``."""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from vllm.v1.attention.backends.utils import PAD_SLOT_ID
from vllm.v1.worker.gpu.block_table import BlockTables
from vllm.v1.worker.gpu.input_batch import InputBatch

from vllm_kunlun.step.packed import VIEWS


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
        self._changed = False
        shape = (len(kwargs["block_sizes"]), kwargs["max_num_reqs"])
        i32 = {"dtype": torch.int32, "device": kwargs["device"]}
        self.kept_req = torch.empty(shape, **i32)
        self.kept_blocks = torch.zeros(shape, **i32)
        super().__init__(**kwargs)
        self._views = lru_cache(maxsize=VIEWS)(self._make_views)

    def init_block_table_layout_tensors(self) -> None:
        """Forget what the rows show, too: their memory may be new."""
        super().init_block_table_layout_tensors()
        self.kept_req.fill_(-1)

    def append_block_ids(self, *args: Any, **kwargs: Any) -> None:
        """Stage a request's new blocks."""
        super().append_block_ids(*args, **kwargs)
        self._changed = True

    def apply_staged_writes(self) -> None:
        """Leave the writes to `prepare`."""

    def take_staged(self) -> np.ndarray | None:
        """Return the staged writes as i32: groups, rows, starts, sums, blocks."""
        if not self._changed:
            return None
        self._changed = False
        self.num_blocks.copy_to_uva()
        counts = [len(t._staged_write_indices) for t in self.block_tables]
        self.num_writes = sum(counts)
        if self.num_writes == 0:
            return None
        groups: list[int] = []
        rows: list[int] = []
        starts: list[int] = []
        sums: list[int] = []
        blocks: list[int | float] = []
        for group, table in enumerate(self.block_tables):
            groups += [group] * counts[group]
            rows += table._staged_write_indices
            starts += table._staged_write_starts
            sums += [len(blocks) + n for n in table._staged_write_cu_lens]
            blocks += table._staged_write_contents
            table.clear_staged_writes()
        return np.array(groups + rows + starts + sums + blocks, np.int32)

    def prepare(
        self, batch: InputBatch
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return `batch`'s block tables and slot mappings.

        As `GPUModelRunner.prepare_attn`: per group i32
        ``[num_reqs_padded, max_num_blocks]``, and i64
        ``[num_groups, num_tokens_padded]``.
        """
        torch.ops.vllm_kunlun.prepare_block_tables.default(
            self.block_table_ptrs,
            self.input_block_table_ptrs,
            self.block_table_strides,
            self.block_sizes_tensor,
            self.num_blocks.gpu,
            self.kept_req,
            self.kept_blocks,
            self.slot_mappings,
            batch.idx_mapping,
            batch.query_start_loc,
            batch.positions,
            self.staged,
            self.num_writes,
            batch.num_reqs,
            batch.num_reqs_after_padding,
            self.cp_size,
            self.cp_rank,
            self.cp_interleave,
            PAD_SLOT_ID,
        )
        self.staged = None
        self.num_writes = 0
        return self._views(batch.num_reqs_after_padding, batch.num_tokens_after_padding)

    def _make_views(
        self, rows: int, tokens: int
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        tables = tuple(table[:rows] for table in self.input_block_tables)
        return tables, self.slot_mappings[:, :tokens]
