# SPDX-License-Identifier: Apache-2.0
"""A step's inputs, and the state of its requests after it."""

import torch

from vllm_kunlun.bench.kernels.batch import (
    MAX_LENGTH,
    STEPS,
    Batch,
    prefill_chunks,
    spread,
    zeros,
)
from vllm_kunlun.bench.kernels.case import Cell, Size, case

MODULE = "worker.gpu.input_batch"


@case(
    MODULE,
    "_prepare_prefill_inputs_kernel",
    "repeat_interleave to tokens, one gather, one masked gather for the next token",
)
def prepare_prefill_inputs(size: Size) -> Cell:
    """Build a step of prefill chunks."""
    b = prefill_chunks(size.requests)
    known = b.ints(b.max_requests, MAX_LENGTH)
    prefill_lens = torch.full((b.max_requests,), MAX_LENGTH, dtype=torch.int32)
    input_ids = zeros(b.max_tokens)
    following = zeros(b.max_requests)

    def baseline() -> None:
        request, place = spread(b.starts)
        computed = b.computed[b.rows]
        lens = prefill_lens[b.rows]
        prefills = computed < lens
        tokens = known[b.rows[request], computed[request] + place]
        num_tokens = int(b.starts[-1])
        was = input_ids[:num_tokens]
        input_ids[:num_tokens] = torch.where(prefills[request], tokens, was)
        end = computed + b.starts.diff()
        goes_on = prefills & (end < lens)
        rows = b.rows[goes_on]
        following[rows] = known[rows, end[goes_on]]

    arguments = {
        "input_ids_ptr": input_ids,
        "next_prefill_tokens_ptr": following,
        "idx_mapping_ptr": b.rows,
        "query_start_loc_ptr": b.starts,
        "all_token_ids_ptr": known,
        "all_token_ids_stride": known.stride(0),
        "prefill_lens_ptr": prefill_lens,
        "num_computed_tokens_ptr": b.computed,
    }
    return Cell((b.requests,), arguments, baseline, [input_ids, following])


@case(
    MODULE,
    "_prepare_pos_seq_lens_kernel",
    "repeat_interleave to tokens, then additions",
)
def prepare_pos_seq_lens(size: Size) -> Cell:
    """Build a decoding step."""
    b = Batch(size.requests)
    pos = zeros(b.max_tokens, dtype=torch.int64)
    seq_lens = zeros(b.max_requests)

    def baseline() -> None:
        request, place = spread(b.starts)
        computed = b.computed[b.rows]
        seq_lens[: b.requests] = computed + b.starts.diff()
        seq_lens[b.requests :] = 0
        pos[: int(b.starts[-1])] = computed[request] + place

    arguments = {
        "pos_ptr": pos,
        "seq_lens_ptr": seq_lens,
        "idx_mapping_ptr": b.rows,
        "query_start_loc_ptr": b.starts,
        "num_computed_tokens_ptr": b.computed,
        "max_num_reqs": b.max_requests,
    }
    return Cell((b.requests + 1,), arguments, baseline, [pos, seq_lens])


@case(
    MODULE,
    "_combine_sampled_and_draft_tokens_kernel",
    "repeat_interleave to logits, then two masked scatters",
)
def combine_sampled_and_draft_tokens(size: Size) -> Cell:
    """Build a decoding step with drafts."""
    b = Batch(size.requests)
    input_ids = zeros(b.max_tokens)
    indices = zeros(b.tokens, dtype=torch.int64)
    last = b.longs(b.max_requests, 1)
    drafts = b.longs(b.max_requests, STEPS)
    prefill_len = b.computed // 2
    seq_lens = b.seq_lens

    def baseline() -> None:
        request, place = spread(b.starts)
        num_logits = b.starts.diff()
        first = b.starts[1:] - num_logits
        indices[:] = first[request] + place
        lens = prefill_len[b.rows]
        decodes = seq_lens > lens
        takes_last = decodes & (seq_lens - num_logits >= lens)
        input_ids[first[takes_last]] = last[b.rows[takes_last], 0].int()
        is_draft = (place > 0) & decodes[request]
        draft = drafts[b.rows[request[is_draft]], place[is_draft] - 1]
        input_ids[indices[is_draft]] = draft.int()

    arguments = {
        "input_ids_ptr": input_ids,
        "idx_mapping_ptr": b.rows,
        "last_sampled_tokens_ptr": last,
        "query_start_loc_ptr": b.starts,
        "seq_lens_ptr": seq_lens,
        "prefill_len_ptr": prefill_len,
        "draft_tokens_ptr": drafts,
        "draft_tokens_stride": drafts.stride(0),
        "cu_num_logits_ptr": b.starts,
        "logits_indices_ptr": indices,
        "NUM_NEW_SAMPLED_TOKENS": 1,
    }
    return Cell((b.requests,), arguments, baseline, [input_ids, indices])


@case(MODULE, "_get_num_sampled_and_rejected_kernel", "masked_fill, where")
def get_num_sampled_and_rejected(size: Size) -> Cell:
    """Build a decoding step with drafts, half of them accepted."""
    b = Batch(size.requests)
    sampled = ((b.lengths + 1) // 2).int()
    rejected = zeros(b.requests)
    # Every other request is still being prefilled.
    prefill_len = b.computed + torch.arange(b.max_requests, dtype=torch.int32) % 2 * 9
    seq_lens = b.seq_lens

    def baseline() -> None:
        prefills = seq_lens < prefill_len[b.rows]
        sampled.masked_fill_(prefills, 0)
        rejected[:] = torch.where(prefills, 0, b.starts.diff() - sampled)

    arguments = {
        "num_sampled_ptr": sampled,
        "num_rejected_ptr": rejected,
        "seq_lens_ptr": seq_lens,
        "cu_num_logits_ptr": b.starts,
        "idx_mapping_ptr": b.rows,
        "prefill_len_ptr": prefill_len,
    }
    return Cell((b.requests,), arguments, baseline, [sampled, rejected])


@case(
    MODULE,
    "_post_update_kernel",
    "a mask of what was sampled, nonzero, then scatters of tokens and counts",
)
def post_update(size: Size) -> Cell:
    """Build the end of a decoding step with drafts."""
    b = Batch(size.requests)
    vocabulary = 32_768
    new = b.longs(b.requests, STEPS + 1, high=vocabulary)
    num_sampled = ((b.lengths + 1) // 2).int()
    num_rejected = (b.lengths - num_sampled).int()
    counts = zeros(b.max_requests, vocabulary)
    known = zeros(b.max_requests, MAX_LENGTH)
    total_len = b.computed + 4
    last = zeros(b.max_requests, 1, dtype=torch.int64)
    one = torch.ones((), dtype=torch.int32)

    def baseline() -> None:
        row, column = (torch.arange(STEPS + 1) < num_sampled[:, None]).nonzero().T
        alive = b.rows[row] >= 0
        row, column = row[alive], column[alive]
        request = b.rows[row]
        token = new[row, column]
        known[request, total_len[request] + column] = token.int()
        counts.index_put_((request, token), one, accumulate=True)
        some = (num_sampled > 0) & (b.rows >= 0)
        at = (num_sampled[some] - 1).long()[:, None]
        last[b.rows[some]] = new[some].gather(1, at)
        alive = b.rows >= 0
        rows = b.rows[alive]
        total_len[rows] += num_sampled[alive]
        b.computed[rows] += (b.starts.diff() - num_rejected)[alive]

    arguments = {
        "idx_mapping_ptr": b.rows,
        "num_computed_tokens_ptr": b.computed,
        "last_sampled_tokens_ptr": last,
        "output_bin_counts_ptr": counts,
        "output_bin_counts_stride": counts.stride(0),
        "sampled_tokens_ptr": new,
        "sampled_tokens_stride": new.stride(0),
        "num_sampled_ptr": num_sampled,
        "num_rejected_ptr": num_rejected,
        "query_start_loc_ptr": b.starts,
        "all_token_ids_ptr": known,
        "all_token_ids_stride": known.stride(0),
        "total_len_ptr": total_len,
    }
    return Cell(
        (b.requests,),
        arguments,
        baseline,
        [known, counts, last, total_len, b.computed],
        restored=[total_len, b.computed],
    )


@case(MODULE, "_post_update_num_computed_tokens_kernel", "gather, add, scatter")
def post_update_num_computed_tokens(size: Size) -> Cell:
    """Build the end of a pooling step."""
    b = Batch(size.requests)

    def baseline() -> None:
        b.computed[b.rows] += b.starts.diff()

    arguments = {
        "idx_mapping_ptr": b.rows,
        "num_computed_tokens_ptr": b.computed,
        "query_start_loc_ptr": b.starts,
    }
    return Cell((b.requests,), arguments, baseline, [b.computed], restored=[b.computed])


@case(MODULE, "_expand_idx_mapping_kernel", "repeat_interleave, one gather")
def expand_idx_mapping(size: Size) -> Cell:
    """Build a decoding step with drafts."""
    b = Batch(size.requests)
    expanded, local_pos = zeros(b.tokens), zeros(b.tokens)

    def baseline() -> None:
        request, place = spread(b.starts)
        expanded[:] = b.rows[request]
        local_pos[:] = place

    arguments = {
        "idx_mapping_ptr": b.rows,
        "expanded_idx_mapping_ptr": expanded,
        "expanded_local_pos_ptr": local_pos,
        "cu_num_logits_ptr": b.starts,
    }
    return Cell((b.requests,), arguments, baseline, [expanded, local_pos])
