# SPDX-License-Identifier: Apache-2.0
"""Log probabilities, ranks and what goes with them."""

import torch

from vllm_kunlun.bench.kernels.batch import MAX_LENGTH, Batch, prefill_chunks, spread
from vllm_kunlun.bench.kernels.batch import zeros as zeros_of
from vllm_kunlun.bench.kernels.case import Cell, Size, case
from vllm_kunlun.bench.kernels.sampling import sized

TOPK = 20


@case(
    "worker.gpu.sample.logprob",
    "_topk_log_softmax_kernel",
    "gather minus logsumexp",
    matrices=4,
)
def topk_log_softmax(size: Size) -> Cell:
    """Build the log probabilities of 21 tokens per row."""
    b = Batch(size.requests)
    vocabulary, x, arguments = sized(size)
    ids = b.longs(b.requests, TOPK + 1, high=vocabulary)
    out = zeros_of(b.requests, TOPK + 1, dtype=torch.float32)

    def baseline() -> None:
        out[:] = x.gather(1, ids) - x.logsumexp(-1, keepdim=True)

    arguments |= {"output_ptr": out, "topk_ids_ptr": ids, "topk": TOPK + 1}
    grid = (b.requests,)
    return Cell(grid, arguments, baseline, [out], tolerance=1e-5, reads=[x])


@case("worker.gpu.sample.logprob", "_ranks_kernel", "gather, compare, sum", matrices=3)
def ranks(size: Size) -> Cell:
    """Build the rank of one token per row."""
    b = Batch(size.requests)
    vocabulary, x, arguments = sized(size)
    ids = b.longs(b.requests, high=vocabulary)
    out = zeros_of(b.requests, dtype=torch.int64)

    def baseline() -> None:
        out[:] = (x >= x.gather(1, ids[:, None])).sum(-1)

    arguments |= {"output_ptr": out, "token_ids_ptr": ids}
    return Cell((b.requests,), arguments, baseline, [out], reads=[x])


@case("worker.gpu.metrics.logits", "_num_nans_kernel", "isnan, sum", matrices=3)
def num_nans(size: Size) -> Cell:
    """Build logits with a NaN in every row."""
    b = Batch(size.requests)
    vocabulary, x, arguments = sized(size)
    x[:, vocabulary // 2] = float("nan")
    out = zeros_of(b.requests)

    def baseline() -> None:
        out[:] = x.isnan().sum(-1)

    arguments |= {"num_nans_ptr": out}
    return Cell((b.requests,), arguments, baseline, [out], reads=[x])


@case(
    "worker.gpu.sample.logprob",
    "_fill_logprob_token_ids_kernel",
    "one gather of rows, masks by column, four where",
)
def fill_logprob_token_ids(size: Size) -> Cell:
    """Build rows of which every other one has 10 tokens of its own, else top-20."""
    b = Batch(size.requests)
    own = b.ints(b.max_requests, 128)
    num_own = torch.arange(b.max_requests, dtype=torch.int32) % 2 * 10
    topk = b.ints(b.requests, TOPK)
    sampled = b.longs(b.requests)
    ids = zeros_of(b.requests, 1 + TOPK, dtype=torch.int64)
    valid = zeros_of(b.requests, 1 + TOPK, dtype=torch.bool)

    def baseline() -> None:
        num = num_own[b.rows][:, None]
        columns = torch.arange(TOPK)
        used = columns < torch.where(num > 0, num, TOPK)
        tokens = torch.where(num > 0, own[b.rows, :TOPK], topk)
        ids[:, 0] = sampled
        ids[:, 1:] = torch.where(used, tokens, ids[:, 1:])
        valid[:, 0] = True
        valid[:, 1:] |= used

    arguments = {
        "out_token_ids_ptr": ids,
        "out_token_ids_stride": ids.stride(0),
        "out_valid_mask_ptr": valid,
        "out_valid_mask_stride": valid.stride(0),
        "sampled_token_ids_ptr": sampled,
        "topk_indices_ptr": topk,
        "topk_indices_stride": topk.stride(0),
        "expanded_idx_mapping_ptr": b.rows,
        "num_per_req_token_ids_ptr": num_own,
        "per_req_token_ids_ptr": own,
        "per_req_token_ids_stride": own.stride(0),
        "NUM_TOPK": TOPK,
    }
    return Cell((b.requests,), arguments, baseline, [ids, valid])


@case(
    "worker.gpu.sample.prompt_logprob",
    "_prompt_logprobs_token_ids_kernel",
    "repeat_interleave to tokens, one gather",
)
def prompt_logprobs_token_ids(size: Size) -> Cell:
    """Build a step of prefill chunks."""
    b = prefill_chunks(size.requests)
    known = b.ints(b.max_requests, MAX_LENGTH)
    out = zeros_of(b.tokens, dtype=torch.int64)

    def baseline() -> None:
        request, place = spread(b.starts)
        rows = b.rows[request]
        out[:] = known[rows, b.computed[rows] + 1 + place]

    arguments = {
        "prompt_logprobs_token_ids_ptr": out,
        "query_start_loc_ptr": b.starts,
        "idx_mapping_ptr": b.rows,
        "num_computed_tokens_ptr": b.computed,
        "all_token_ids_ptr": known,
        "all_token_ids_stride": known.stride(0),
    }
    return Cell((b.requests,), arguments, baseline, [out])
