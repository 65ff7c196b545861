# SPDX-License-Identifier: Apache-2.0
"""What forbids tokens or favours them."""

from itertools import pairwise

import torch

from vllm_kunlun.bench.kernels.batch import VOCABULARY, Batch, unpack, zeros
from vllm_kunlun.bench.kernels.case import Cell, Size, case
from vllm_kunlun.bench.kernels.sampling import BLOCK, INFINITY, blocks_of, sized

WIDTH = 1024


def bias(x: torch.Tensor, allowed: int, biased: int, stops: int) -> Cell:
    """Build a launch in which each request has so many ids of each kind."""
    b = Batch(len(x))
    vocabulary = x.shape[1]
    allowed_ids = b.ints(b.max_requests, WIDTH, high=vocabulary)
    # Different ones in a row.
    bias_ids = b.ints(b.max_requests, 1, high=vocabulary // 2)
    bias_ids = bias_ids + torch.arange(WIDTH, dtype=torch.int32)
    stop_ids = b.ints(b.max_requests, 128, high=vocabulary)
    bias = b.floats(b.max_requests, WIDTH)
    num_allowed, num_bias, num_stops = (
        torch.full((b.max_requests,), n, dtype=torch.int32)
        for n in (allowed, biased, stops)
    )
    pos = b.longs(b.requests, high=10)
    min_lens = b.ints(b.max_requests, high=20)

    def baseline() -> None:
        counts = [n[b.rows].tolist() for n in (num_allowed, num_bias, num_stops)]
        lens, positions = min_lens[b.rows].tolist(), pos.tolist()
        for row, request in enumerate(b.rows.tolist()):
            if n := counts[0][row]:
                ids = allowed_ids[request, :n]
                kept = x[row, ids]
                x[row] = -INFINITY
                x[row, ids] = kept
            if n := counts[1][row]:
                x[row, bias_ids[request, :n]] += bias[request, :n]
            if (n := counts[2][row]) and positions[row] + 1 < lens[row]:
                x[row, stop_ids[request, :n]] = -INFINITY

    arguments = {
        "logits_ptr": x,
        "logits_stride": x.stride(0),
        "vocab_size": vocabulary,
        "expanded_idx_mapping_ptr": b.rows,
        "num_allowed_token_ids_ptr": num_allowed,
        "allowed_token_ids_ptr": allowed_ids,
        "allowed_token_ids_stride": allowed_ids.stride(0),
        "num_logit_bias_ptr": num_bias,
        "bias_token_ids_ptr": bias_ids,
        "bias_token_ids_stride": bias_ids.stride(0),
        "bias_ptr": bias,
        "bias_stride": bias.stride(0),
        "pos_ptr": pos,
        "min_lens_ptr": min_lens,
        "num_stop_token_ids_ptr": num_stops,
        "stop_token_ids_ptr": stop_ids,
        "stop_token_ids_stride": stop_ids.stride(0),
    }
    changes = [x] if allowed else []
    return Cell((b.requests,), arguments, baseline, [x], changes=changes)


@case(
    "worker.gpu.sample.logit_bias",
    "_bias_kernel",
    "a Python loop over rows, a gather and a scatter for each kind of ids",
    variant="bias and stop ids",
)
def bias_and_stop_ids(size: Size) -> Cell:
    """Build 8 biased ids and 2 stop ids per request."""
    return bias(zeros(size.requests, VOCABULARY, dtype=torch.float32), 0, 8, 2)


@case(
    "worker.gpu.sample.logit_bias",
    "_bias_kernel",
    "a Python loop over rows: gather, fill, scatter",
    variant="allowed ids",
    matrices=3,
)
def allowed_ids(size: Size) -> Cell:
    """Build 64 allowed ids per request."""
    _, x, _ = sized(size)
    return bias(x, 64, 0, 0)


@case(
    "worker.gpu.sample.bad_words",
    "_bad_words_kernel",
    "a Python loop over rows and words, on lists",
)
def bad_words(size: Size) -> Cell:
    """Build 4 bad words of 2 tokens per request, of which one is met."""
    b = Batch(size.requests)
    words, length, output = 4, 2, 64
    x = zeros(b.requests, VOCABULARY, dtype=torch.float32)
    known = b.ints(b.max_requests, 2 * output)
    total_len = torch.full((b.max_requests,), 2 * output, dtype=torch.int32)
    prompt_len = torch.full((b.max_requests,), output, dtype=torch.int32)
    tokens = b.ints(b.max_requests, WIDTH)
    tokens[:, 0] = known[:, -1]
    offsets = (torch.arange(129, dtype=torch.int32) * length).repeat(b.max_requests, 1)
    num_words = torch.full((b.max_requests,), words, dtype=torch.int32)
    places = zeros(b.requests)
    input_ids = b.ints(b.requests)

    def baseline() -> None:
        places_list = places.tolist()
        for row, request in enumerate(b.rows.tolist()):
            n = int(num_words[request])
            if n == 0:
                continue
            first = row - places_list[row]
            out = known[request, int(prompt_len[request]) : int(total_len[request])]
            before = out.tolist() + input_ids[first + 1 : row + 1].tolist()
            ends = offsets[request, : n + 1].tolist()
            word_tokens = tokens[request, : ends[-1]].tolist()
            for begin, end in pairwise(ends):
                *prefix, last = word_tokens[begin:end]
                if before[len(before) - len(prefix) :] == prefix:
                    x[row, last] = -INFINITY

    arguments = {
        "logits_ptr": x,
        "logits_stride": x.stride(0),
        "expanded_idx_mapping_ptr": b.rows,
        "bad_word_token_ids_ptr": tokens,
        "bad_word_token_ids_stride": tokens.stride(0),
        "bad_word_offsets_ptr": offsets,
        "bad_word_offsets_stride": offsets.stride(0),
        "num_bad_words_ptr": num_words,
        "all_token_ids_ptr": known,
        "all_token_ids_stride": known.stride(0),
        "prompt_len_ptr": prompt_len,
        "total_len_ptr": total_len,
        "input_ids_ptr": input_ids,
        "expanded_local_pos_ptr": places,
    }
    return Cell((b.requests, words), arguments, baseline, [x])


@case(
    "worker.gpu.structured_outputs",
    "_apply_grammar_bitmask_kernel",
    "bits unpacked by shifts, masked_fill of gathered rows, one scatter",
    matrices=6,
)
def apply_grammar_bitmask(size: Size) -> Cell:
    """Build a mask for each row, of which half of the bits are set."""
    b = Batch(size.requests)
    vocabulary, x, arguments = sized(size)
    rows = torch.randperm(b.requests, generator=b.generator).int()
    bitmask = b.ints(b.requests, blocks_of(vocabulary, 32), high=2**31)

    def baseline() -> None:
        forbidden = ~unpack(bitmask)[:, :vocabulary]
        x[rows] = x[rows].masked_fill_(forbidden, -INFINITY)

    arguments |= {
        "logits_indices_ptr": rows,
        "bitmask_ptr": bitmask,
        "bitmask_stride": bitmask.stride(0),
        "BLOCK_SIZE": BLOCK,
    }
    grid = (b.requests, blocks_of(vocabulary, BLOCK))
    return Cell(grid, arguments, baseline, [x], changes=[x])
