# SPDX-License-Identifier: Apache-2.0
"""New blocks of the KV cache, and the states of Mamba layers in it."""

from typing import Any

import torch

from vllm_kunlun.bench.kernels.batch import STEPS, Batch, zeros
from vllm_kunlun.bench.kernels.block_table import addresses
from vllm_kunlun.bench.kernels.case import Cell, Size, case

MAMBA = "worker.mamba_utils"
BLOCK = 16
COLUMNS = 8
WIDTH = 4
"""Tokens in the window of a convolution."""
PAGE = 8192
"""Words of a KV block: 16 tokens of 8 heads of 128, in 16 bits."""


@case("worker.utils", "_zero_kv_blocks_kernel", "one index_fill_")
def zero_kv_blocks(size: Size) -> Cell:
    """Build one new block per request, in keys and values of a layer."""
    b = Batch(size.requests)
    blocks = b.requests + 8
    cache = b.ints(2, blocks, PAGE)
    ids = torch.randperm(blocks, generator=b.generator)[: b.requests]

    def baseline() -> None:
        cache.index_fill_(1, ids, 0)

    arguments = {
        "seg_addrs_ptr": addresses(*cache),
        "block_ids_ptr": ids,
        "n_blocks": b.requests,
        "N_SEGS": 2,
        "PAGE_SIZE_EL": PAGE,
        "BLOCK_SIZE": 1024,
    }
    return Cell((b.requests * 2 * PAGE // 1024,), arguments, baseline, [cache])


@case(MAMBA, "preprocess_mamba_align_fused_kernel", "gathers, where, scatters")
def preprocess_mamba_align_fused(size: Size) -> Cell:
    """Build a decoding step."""
    b = Batch(size.requests)
    state = b.ints(b.max_requests, high=COLUMNS)
    accepted = b.ints(b.max_requests, high=STEPS + 2)
    source, offset = zeros(b.max_requests), zeros(b.max_requests)

    def baseline() -> None:
        before, counts = state[b.rows], accepted[b.rows]
        source[b.rows] = before
        offset[b.rows] = (counts - 1).clamp(min=0)
        now = (b.computed[b.rows] + b.starts.diff() + BLOCK - 1) // BLOCK - 1
        state[b.rows] = now
        changed = (before >= 0) & (before != now)
        accepted[b.rows] = torch.where(changed, 1, counts)

    arguments = {
        "idx_mapping_ptr": b.rows,
        "state_idx_ptr": state,
        "num_computed_tokens_ptr": b.computed,
        "query_start_loc_ptr": b.starts,
        "num_accepted_tokens_ptr": accepted,
        "src_col_ptr": source,
        "src_off_ptr": offset,
        "num_reqs": b.requests,
        "MAMBA_BLOCK_SIZE": BLOCK,
    }
    writes = [state, accepted, source, offset]
    grid = (-(-b.requests // 256),)
    return Cell(grid, arguments, baseline, writes, restored=[state, accepted])


class States:
    """One layer: the window of a convolution and a state of another kind."""

    def __init__(self, b: Batch) -> None:
        blocks = b.requests * COLUMNS
        self.table = torch.randperm(blocks, generator=b.generator).int()
        self.table = self.table.view(b.requests, COLUMNS)
        self.window = b.floats(blocks, WIDTH, 512).bfloat16()
        self.other = b.floats(blocks, 2048)

    def arguments(self) -> dict[str, Any]:
        """Return what a launch knows about the states."""
        both = (self.window, self.other)
        i32, i64 = torch.int32, torch.int64
        return {
            "block_table_ptrs_ptr": torch.tensor([self.table.data_ptr()]),
            "block_table_stride_req": COLUMNS,
            "state_base_addrs_ptr": torch.tensor([s.data_ptr() for s in both]),
            "state_block_strides_ptr": torch.tensor(
                [s.stride(0) * s.element_size() for s in both]
            ),
            "state_elem_sizes_ptr": torch.tensor(
                [s.element_size() for s in both], dtype=i32
            ),
            "state_inner_sizes_ptr": torch.tensor([s.shape[-1] for s in both]),
            "state_conv_widths_ptr": torch.tensor([WIDTH, 0], dtype=i32),
            "state_group_indices_ptr": zeros(2),
            "state_dim_row_count_ptr": zeros(2),
            "state_dim_row_stride_ptr": zeros(2, dtype=i64),
            "CONV_STATE_DIM_FIRST": False,
        }

    def move(
        self,
        rows: torch.Tensor,
        source: torch.Tensor,
        target: torch.Tensor,
        bias: torch.Tensor,
    ) -> None:
        """Move the states of some rows of the table, with torch."""
        to = self.table[rows, target]
        self.other[to] = self.other[self.table[rows, source + bias]]
        start = self.table[rows, source]
        for by in range(WIDTH):
            some = bias == by
            self.window[to[some], : WIDTH - by] = self.window[start[some], by:]


@case(MAMBA, "precopy_mamba_align_fused_kernel", "gathers and scatters, by bias")
def precopy_mamba_align_fused(size: Size) -> Cell:
    """Build moves of all requests, with a bias of 0 to 3 tokens."""
    b = Batch(size.requests)
    states = States(b)
    target = torch.full((b.max_requests,), 1, dtype=torch.int32)
    source = torch.full((b.max_requests,), 3, dtype=torch.int32)
    bias = b.ints(b.max_requests, high=STEPS + 1)

    def baseline() -> None:
        moved = (b.rows >= 0) & (source[b.rows] >= 0)
        moved &= source[b.rows] != target[b.rows]
        rows = moved.nonzero()[:, 0]
        slots = b.rows[rows]
        states.move(rows, source[slots], target[slots], bias[slots])

    arguments = states.arguments() | {
        "mamba_state_idx_ptr": target,
        "src_col_ptr": source,
        "token_bias_ptr": bias,
        "idx_mapping_ptr": b.rows,
        "num_reqs": b.requests,
    }
    writes = [states.window, states.other]
    return Cell((b.requests, 2), arguments, baseline, writes)


@case(MAMBA, "postprocess_mamba_fused_kernel", "gathers and scatters, by bias")
def postprocess_mamba_fused(size: Size) -> Cell:
    """Build a step after which all requests have passed the end of a block."""
    b = Batch(size.requests)
    states = States(b)
    accepted = torch.full((b.max_requests,), STEPS + 1, dtype=torch.int32)
    past_end = torch.arange(b.max_requests, dtype=torch.int32) % (STEPS + 1)
    computed = 2 * BLOCK + past_end
    column = torch.full((b.max_requests,), 3, dtype=torch.int32)

    def baseline() -> None:
        mapped = (b.rows >= 0).nonzero()[:, 0]
        slots = b.rows[mapped]
        running = computed[slots] - accepted[slots] + 1
        aligned = computed[slots] // BLOCK * BLOCK
        passed = aligned >= running
        rows, slots = mapped[passed], slots[passed]
        bias = (aligned - running)[passed]
        target = (aligned // BLOCK - 1)[passed]
        source = column[slots]
        states.move(rows, source, target, bias)
        accepted[slots[source == target]] = 1

    arguments = states.arguments() | {
        "num_accepted_tokens_ptr": accepted,
        "mamba_state_idx_ptr": column,
        "num_scheduled_tokens_ptr": None,
        "num_computed_tokens_ptr": computed,
        "num_draft_tokens_ptr": None,
        "num_accepted_tokens_out_ptr": None,
        "idx_mapping_ptr": b.rows,
        "num_reqs": b.requests,
        "block_size": BLOCK,
        "HAS_IDX_MAPPING": True,
        "PRECOMPUTED_NEW_COMPUTED": True,
    }
    writes = [states.window, states.other, accepted]
    return Cell((b.requests, 2), arguments, baseline, writes)
