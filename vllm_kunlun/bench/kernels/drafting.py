# SPDX-License-Identifier: Apache-2.0
"""The inputs of drafters."""

import torch

from vllm_kunlun.bench.kernels.batch import MAX_LENGTH, STEPS, Batch, spread, zeros
from vllm_kunlun.bench.kernels.block_table import BLOCK, COLUMNS
from vllm_kunlun.bench.kernels.case import Cell, Size, case

AUTOREGRESSIVE = "worker.gpu.spec_decode.autoregressive.speculator"
HIDDEN = 2048


@case(
    AUTOREGRESSIVE,
    "_prepare_prefill_inputs_kernel",
    "repeat_interleave to tokens, where to keep what was rejected, scatters",
)
def prepare_draft_prefill_inputs(size: Size) -> Cell:
    """Build the drafter's first pass, with half of the drafts rejected."""
    b = Batch(size.requests)
    last_token = zeros(b.max_requests, dtype=torch.int64)
    step = zeros(dtype=torch.int64)
    input_ids = zeros(b.max_tokens)
    positions = zeros(b.max_tokens, dtype=torch.int64)
    starts = zeros(b.max_requests + 1)
    lens = zeros(b.max_requests)
    target_ids = b.ints(b.max_tokens)
    target_positions = b.longs(b.max_tokens)
    last_sampled = b.longs(b.max_requests, 1)
    following = b.ints(b.max_requests)
    num_sampled = (torch.arange(b.requests) % 8 != 7).int()
    num_rejected = (b.lengths // 2).int()
    seq_lens = b.seq_lens

    def baseline() -> None:
        n, tokens = b.requests, int(b.starts[-1])
        request, place = spread(b.starts)
        last = b.starts[1:] - num_rejected - 1
        kept = place < (b.starts.diff() - num_rejected)[request]
        shifted = target_ids[1 : tokens + 1]
        input_ids[:tokens] = torch.where(kept, shifted, input_ids[:tokens])
        positions[:tokens] = torch.where(
            kept, target_positions[:tokens], positions[:tokens]
        )
        sampled = last_sampled[b.rows, 0].int()
        input_ids[last] = torch.where(num_sampled > 0, sampled, following[b.rows])
        last_token[:n] = last
        last_token[n:] = 0
        starts[: n + 1] = b.starts
        starts[n + 1 :] = tokens
        lens[:n] = seq_lens
        lens[n:] = 0
        step.zero_()

    arguments = {
        "last_token_indices_ptr": last_token,
        "draft_current_step_ptr": step,
        "draft_input_ids_ptr": input_ids,
        "draft_positions_ptr": positions,
        "draft_query_start_loc_ptr": starts,
        "draft_seq_lens_ptr": lens,
        "target_input_ids_ptr": target_ids,
        "target_positions_ptr": target_positions,
        "idx_mapping_ptr": b.rows,
        "last_sampled_ptr": last_sampled,
        "next_prefill_tokens_ptr": following,
        "num_sampled_ptr": num_sampled,
        "num_rejected_ptr": num_rejected,
        "query_start_loc_ptr": b.starts,
        "seq_lens_ptr": seq_lens,
        "max_num_reqs": b.max_requests,
    }
    writes = [last_token, step, input_ids, positions, starts, lens]
    return Cell((b.requests,), arguments, baseline, writes)


@case(AUTOREGRESSIVE, "_prepare_decode_inputs_kernel", "slices, clamp")
def prepare_decode_inputs(size: Size) -> Cell:
    """Build the drafter's second pass."""
    b = Batch(size.requests)
    drafts = b.longs(b.requests, STEPS)[:, 0]
    rejected = b.ints(b.requests, high=STEPS + 1)
    seq_lens = b.seq_lens
    input_ids = zeros(b.max_tokens)
    positions = b.longs(b.max_tokens, high=MAX_LENGTH)
    starts = zeros(b.max_requests + 1)
    lens = zeros(b.max_requests)

    def baseline() -> None:
        n = b.requests
        input_ids[:n] = drafts
        positions[:n] = (positions[:n] + 1).clamp(max=MAX_LENGTH - 1)
        lens[:n] = (seq_lens - rejected + 1).clamp(max=MAX_LENGTH)
        lens[n:] = 0
        starts[:] = torch.arange(b.max_requests + 1).clamp(max=n)

    arguments = {
        "draft_tokens_ptr": drafts,
        "draft_tokens_stride": drafts.stride(0),
        "target_seq_lens_ptr": seq_lens,
        "num_rejected_ptr": rejected,
        "input_ids_ptr": input_ids,
        "positions_ptr": positions,
        "query_start_loc_ptr": starts,
        "seq_lens_ptr": lens,
        "max_model_len": MAX_LENGTH,
        "max_num_reqs": b.max_requests,
        "ADVANCE_DRAFT_POSITIONS": True,
    }
    writes = [input_ids, positions, starts, lens]
    grid = (b.requests + 1,)
    return Cell(grid, arguments, baseline, writes, restored=[positions])


@case(
    AUTOREGRESSIVE,
    "_update_draft_inputs_kernel",
    "slices, clamp, one copy of the hidden states",
)
def update_draft_inputs(size: Size) -> Cell:
    """Build the end of a drafter's pass, with hidden states of 2048 bf16."""
    b = Batch(size.requests)
    out = zeros(b.max_requests, STEPS, dtype=torch.int64)
    hidden = b.floats(b.requests, HIDDEN).bfloat16()
    next_hidden = zeros(b.max_requests, HIDDEN, dtype=torch.bfloat16)
    input_ids = zeros(b.max_tokens)
    positions = b.longs(b.max_tokens, high=MAX_LENGTH)
    lens = b.ints(b.max_requests, high=MAX_LENGTH)
    drafts = b.longs(b.requests)
    step = zeros(dtype=torch.int64)

    def baseline() -> None:
        n, k = b.requests, int(step)
        out[:n, k] = drafts
        if k >= STEPS - 1:
            return
        input_ids[:n] = drafts
        next_hidden[:n] = hidden
        positions[:n] = (positions[:n] + 1).clamp(max=MAX_LENGTH - 1)
        lens[:n] = (lens[:n] + 1).clamp(max=MAX_LENGTH)

    arguments = {
        "output_draft_tokens_ptr": out,
        "output_draft_tokens_stride": out.stride(0),
        "next_input_hidden_states_ptr": next_hidden,
        "next_input_hidden_states_stride": next_hidden.stride(0),
        "input_ids_ptr": input_ids,
        "positions_ptr": positions,
        "seq_lens_ptr": lens,
        "draft_tokens_ptr": drafts,
        "current_draft_step_ptr": step,
        "hidden_states_ptr": hidden,
        "hidden_states_stride": hidden.stride(0),
        "hidden_size": HIDDEN,
        "max_model_len": MAX_LENGTH,
        "num_speculative_steps": STEPS,
        "ADVANCE_DRAFT_POSITIONS": True,
    }
    writes = [out, next_hidden, input_ids, positions, lens]
    return Cell((b.requests,), arguments, baseline, writes, restored=[positions, lens])


@case(
    "worker.gpu.spec_decode.dflash.speculator",
    "_prepare_dflash_inputs_kernel",
    "[requests, queries] arithmetic, gathers from the block table, slices",
)
def prepare_dflash_inputs(size: Size) -> Cell:
    """Build DSpark's inputs after a step with drafts, half of them rejected."""
    b = Batch(size.requests)
    i64 = torch.int64
    samples = b.max_requests * STEPS
    drafting_token = 5
    input_ids = zeros(b.max_tokens)
    positions, slots = zeros(b.max_tokens, dtype=i64), zeros(b.max_tokens, dtype=i64)
    starts, lens = zeros(b.max_requests + 1), zeros(b.max_requests)
    context_positions = zeros(b.max_tokens, dtype=i64)
    context_slots = zeros(b.max_tokens, dtype=i64)
    sample_indices, sample_pos = zeros(samples, dtype=i64), zeros(samples, dtype=i64)
    sample_rows = zeros(samples)
    request, place = spread(b.starts)
    target_positions = (b.computed[b.rows][request] + place).long()
    last_sampled = b.longs(b.max_requests, 1)
    following = b.ints(b.max_requests)
    num_sampled = (torch.arange(b.requests) % 8 != 7).int()
    num_rejected = (b.lengths // 2).int()
    table = b.ints(b.requests, COLUMNS, high=10_000)

    def baseline() -> None:
        n, queries = b.requests, b.requests * STEPS
        request, _ = spread(b.starts)
        tokens = int(b.starts[-1])
        at = target_positions[:tokens]
        context_positions[:tokens] = at
        blocks = table[request, at // BLOCK]
        context_slots[:tokens] = blocks * BLOCK + at % BLOCK

        first = target_positions[b.starts[1:] - num_rejected - 1] + 1
        query = first[:, None] + torch.arange(STEPS)
        sampled = last_sampled[b.rows, 0].int()
        anchor = torch.where(num_sampled > 0, sampled, following[b.rows])
        input_ids[:queries] = drafting_token
        input_ids[:queries:STEPS] = anchor
        positions[:queries] = query.clamp(max=MAX_LENGTH - 1).flatten()
        column = (query // BLOCK).clamp(max=COLUMNS - 1)
        slot = table.gather(1, column) * BLOCK + query % BLOCK
        slots[:queries] = torch.where(query < MAX_LENGTH, slot, -1).flatten()
        slots[queries:] = -1

        starts[: n + 1] = torch.arange(n + 1) * STEPS
        starts[n + 1 :] = queries
        lens[:n] = (first + STEPS).clamp(max=MAX_LENGTH)
        lens[n:] = 0
        sample_indices[:queries] = torch.arange(queries)
        sample_indices[queries:] = 0
        sample_pos[:queries] = (query + 1).flatten()
        sample_pos[queries:] = 0
        sample_rows[:queries] = b.rows.repeat_interleave(STEPS)
        sample_rows[queries:] = -1

    arguments = {
        "out_input_ids_ptr": input_ids,
        "out_query_positions_ptr": positions,
        "out_query_start_loc_ptr": starts,
        "out_seq_lens_ptr": lens,
        "out_query_slot_mapping_ptr": slots,
        "out_context_positions_ptr": context_positions,
        "out_context_slot_mapping_ptr": context_slots,
        "out_sample_indices_ptr": sample_indices,
        "out_sample_pos_ptr": sample_pos,
        "out_sample_idx_mapping_ptr": sample_rows,
        "target_positions_ptr": target_positions,
        "target_query_start_loc_ptr": b.starts,
        "idx_mapping_ptr": b.rows,
        "last_sampled_ptr": last_sampled,
        "next_prefill_tokens_ptr": following,
        "num_sampled_ptr": num_sampled,
        "num_rejected_ptr": num_rejected,
        "block_table_ptr": table,
        "block_table_stride": table.stride(0),
        "parallel_drafting_token_id": drafting_token,
        "block_size": BLOCK,
        "num_query_per_req": STEPS,
        "num_speculative_steps": STEPS,
        "max_num_reqs": b.max_requests,
        "max_num_tokens": b.max_tokens,
        "max_model_len": MAX_LENGTH,
        "SAMPLE_FROM_ANCHOR": True,
        "PAD_SLOT_ID": -1,
    }
    writes = [input_ids, positions, starts, lens, slots]
    writes += [context_positions, context_slots]
    writes += [sample_indices, sample_pos, sample_rows]
    return Cell((b.requests, 1), arguments, baseline, writes)
