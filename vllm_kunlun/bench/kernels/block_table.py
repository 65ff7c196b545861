# SPDX-License-Identifier: Apache-2.0
"""Block tables, slot mappings and staged writes."""

import torch

from vllm_kunlun.bench.kernels.batch import MAX_LENGTH, Batch, spread, zeros
from vllm_kunlun.bench.kernels.case import Cell, Size, case

BLOCK = 16
COLUMNS = MAX_LENGTH // BLOCK


def addresses(*tables: torch.Tensor) -> torch.Tensor:
    """Return the table of addresses that stands for tensors."""
    return torch.tensor([t.data_ptr() for t in tables], dtype=torch.uint64)


@case(
    "worker.gpu.block_table",
    "_gather_block_tables_kernel",
    "one index_select of whole rows, one copy into the batch's table",
)
def gather_block_tables(size: Size) -> Cell:
    """Build a gather of rows that are half full on average."""
    b = Batch(size.requests)
    num_blocks = b.computed[None] // BLOCK + 1
    # Zeros at the end: ours does not copy it, the baseline does.
    used = torch.arange(COLUMNS) < num_blocks[0, :, None]
    source = b.ints(b.max_requests, COLUMNS) * used
    target = zeros(b.max_requests, COLUMNS)

    def baseline() -> None:
        target[: b.requests] = source.index_select(0, b.rows)

    arguments = {
        "batch_idx_to_req_idx": b.rows,
        "src_block_table_ptrs": addresses(source),
        "dst_block_table_ptrs": addresses(target),
        "block_table_strides": torch.tensor([COLUMNS]),
        "num_blocks_ptr": num_blocks,
        "num_blocks_stride": num_blocks.stride(0),
        "num_reqs": b.requests,
    }
    return Cell((1, b.requests), arguments, baseline, [target])


@case(
    "worker.gpu.block_table",
    "_compute_slot_mappings_kernel",
    "repeat_interleave to tokens, then one gather from the table",
)
def compute_slot_mappings(size: Size) -> Cell:
    """Build the slots of a decoding step."""
    b = Batch(size.requests)
    table = b.ints(b.max_requests, COLUMNS, high=10_000)
    slots = zeros(1, b.max_tokens, dtype=torch.int64)
    request, place = spread(b.starts)
    positions = (b.computed[b.rows][request] + place).long()

    def baseline() -> None:
        request, _ = spread(b.starts)
        blocks = table[b.rows[request], positions // BLOCK]
        num_tokens = int(b.starts[-1])
        slots[0, :num_tokens] = blocks * BLOCK + positions % BLOCK
        slots[0, num_tokens:] = -1

    arguments = {
        "max_num_tokens": b.max_tokens,
        "idx_mapping": b.rows,
        "query_start_loc": b.starts,
        "pos": positions,
        "block_table_ptrs": addresses(table),
        "block_table_strides": torch.tensor([COLUMNS]),
        "block_sizes": torch.tensor([BLOCK], dtype=torch.int32),
        "slot_mappings_ptr": slots,
        "slot_mappings_stride": slots.stride(0),
        "cp_rank": 0,
        "CP_SIZE": 1,
        "CP_INTERLEAVE": 1,
        "PAD_ID": -1,
    }
    return Cell((1, b.requests + 1), arguments, baseline, [slots])


@case(
    "worker.gpu.buffer_utils",
    "_apply_write_kernel",
    "repeat_interleave to elements, then one scatter",
)
def apply_write(size: Size) -> Cell:
    """Build one write of 1 to 4 block ids per request."""
    b = Batch(size.requests)
    table = zeros(b.max_requests, COLUMNS)
    first = b.ints(b.requests, high=COLUMNS - 8)
    contents = b.ints(b.tokens)

    def baseline() -> None:
        write, place = spread(b.starts)
        table[b.rows[write], first[write] + place] = contents

    arguments = {
        "output_ptr": table,
        "output_stride": table.stride(0),
        "write_indices_ptr": b.rows,
        "write_starts_ptr": first,
        "write_contents_ptr": contents,
        "write_cu_lens_ptr": b.starts[1:].clone(),
        "write_group_ids_ptr": None,
        "MULTI_GROUP": False,
    }
    return Cell((b.requests,), arguments, baseline, [table])
