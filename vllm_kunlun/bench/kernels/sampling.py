# SPDX-License-Identifier: Apache-2.0
"""What changes logits before sampling, and sampling."""

from collections.abc import Callable

import torch

from vllm_kunlun.bench.kernels.batch import Batch, logits, spread, unpack, zeros
from vllm_kunlun.bench.kernels.case import Cell, Size, case

BLOCK = 8192
SAMPLE_BLOCK = 1024
INFINITY = float("inf")


def blocks_of(vocabulary: int, block: int) -> int:
    """Return how many blocks cover a vocabulary."""
    return -(-vocabulary // block)


def sized(size: Size) -> tuple[int, torch.Tensor, dict[str, object]]:
    """Return the vocabulary, logits for it, and how a kernel is told of both."""
    assert size.vocabulary is not None
    x = logits(size.requests, size.vocabulary)
    return (
        size.vocabulary,
        x,
        {
            "logits_ptr": x,
            "logits_stride": x.stride(0),
            "vocab_size": size.vocabulary,
        },
    )


@case("worker.gpu.sample.gumbel", "_temperature_kernel", "one div_", matrices=4)
def temperature(size: Size) -> Cell:
    """Build temperatures of which none is 0 or 1."""
    b = Batch(size.requests)
    vocabulary, x, arguments = sized(size)
    temp = b.floats(b.max_requests)

    def baseline() -> None:
        t = temp[b.rows][:, None]
        x.div_(torch.where(t == 0, 1.0, t))

    arguments |= {
        "expanded_idx_mapping_ptr": b.rows,
        "temperature_ptr": temp,
        "BLOCK_SIZE": BLOCK,
    }
    grid = (b.requests, blocks_of(vocabulary, BLOCK))
    return Cell(grid, arguments, baseline, [x], restored=[x], changes=[x])


@case(
    "worker.gpu.sample.min_p",
    "_min_p_kernel",
    "amax, compare, masked_fill_",
    matrices=4,
)
def min_p(size: Size) -> Cell:
    """Build a min_p for each request."""
    b = Batch(size.requests)
    _, x, arguments = sized(size)
    least = b.floats(b.max_requests) / 10

    def baseline() -> None:
        p = least[b.rows][:, None]
        x.masked_fill_(x < x.amax(-1, keepdim=True) + p.log(), -INFINITY)

    arguments |= {"expanded_idx_mapping_ptr": b.rows, "min_p_ptr": least}
    return Cell((b.requests,), arguments, baseline, [x], restored=[x], changes=[x])


@case(
    "worker.gpu.sample.penalties",
    "_penalties_kernel",
    "bits unpacked by shifts, two where, three passes in place",
    matrices=12,
)
def penalties(size: Size) -> Cell:
    """Build all three penalties for each request."""
    b = Batch(size.requests)
    vocabulary, x, arguments = sized(size)
    states = b.requests
    rows = torch.randperm(states, generator=b.generator).int()
    repetition, frequency, presence = (b.floats(states) for _ in range(3))
    words = b.ints(states, blocks_of(vocabulary, 32), high=2**31)
    counts = b.ints(states, vocabulary, high=40).sub_(37).clamp_(min=0)

    def baseline() -> None:
        count = counts[rows]
        there = count > 0
        seen = unpack(words[rows])[:, :vocabulary] | there
        scale = torch.where(seen, repetition[rows][:, None], 1.0)
        x.mul_(torch.where(x > 0, 1 / scale, scale))
        x.sub_(frequency[rows][:, None] * count)
        x.sub_(presence[rows][:, None] * there)

    arguments |= {
        "expanded_idx_mapping_ptr": rows,
        "token_ids_ptr": b.ints(b.requests),
        "expanded_local_pos_ptr": zeros(b.requests),
        "repetition_penalty_ptr": repetition,
        "frequency_penalty_ptr": frequency,
        "presence_penalty_ptr": presence,
        "prompt_bin_mask_ptr": words,
        "prompt_bin_mask_stride": words.stride(0),
        "output_bin_counts_ptr": counts,
        "output_bin_counts_stride": counts.stride(0),
        "BLOCK_SIZE": BLOCK,
    }
    grid = (b.requests, blocks_of(vocabulary, BLOCK))
    return Cell(
        grid,
        arguments,
        baseline,
        [x],
        restored=[x],
        reads=[words, counts],
        changes=[x],
    )


@case(
    "worker.gpu.sample.penalties",
    "_bincount_kernel",
    "repeat_interleave to tokens, unique, two scatters with accumulation",
)
def bincount(size: Size) -> Cell:
    """Build new requests of 256 tokens, half of them earlier output."""
    length, vocabulary = 256, 32_768
    b = Batch(size.requests, torch.full((size.requests,), length))
    tokens = b.ints(b.max_requests, length, high=vocabulary)
    prompt_len = torch.full((b.max_requests,), length // 2, dtype=torch.int32)
    prefill_len = torch.full((b.max_requests,), length, dtype=torch.int32)
    words = zeros(b.max_requests, vocabulary // 32)
    counts = zeros(b.max_requests, vocabulary)
    one = torch.ones((), dtype=torch.int32)

    def baseline() -> None:
        starts = torch.nn.functional.pad(prefill_len[b.rows].cumsum(0), (1, 0))
        request, place = spread(starts)
        rows = b.rows[request].long()
        token = tokens[rows, place]
        in_prompt = place < prompt_len[rows]
        in_output = ~in_prompt
        at = (rows[in_output], token[in_output])
        counts.index_put_(at, one, accumulate=True)
        seen = (rows[in_prompt] * vocabulary + token[in_prompt]).unique()
        # The rows are zero before, so that a sum of different bits joins them.
        words.view(-1).index_add_(0, seen // 32, (1 << seen % 32).int())

    arguments = {
        "expanded_idx_mapping_ptr": b.rows,
        "all_token_ids_ptr": tokens,
        "all_token_ids_stride": tokens.stride(0),
        "prompt_len_ptr": prompt_len,
        "prefill_len_ptr": prefill_len,
        "prompt_bin_mask_ptr": words,
        "prompt_bin_mask_stride": words.stride(0),
        "output_bin_counts_ptr": counts,
        "output_bin_counts_stride": counts.stride(0),
    }
    grid = (b.requests, 1)
    return Cell(grid, arguments, baseline, [words, counts], restored=[words])


def sample(
    size: Size, temp: float, baseline: Callable[[torch.Tensor], torch.Tensor]
) -> Cell:
    """Build a launch of gumbel_sample; each row has a token that no noise beats."""
    b = Batch(size.requests)
    vocabulary, x, arguments = sized(size)
    x[torch.arange(b.requests), b.longs(b.requests, high=vocabulary)] = 60.0
    blocks = blocks_of(vocabulary, SAMPLE_BLOCK)
    winners = zeros(b.requests, blocks, dtype=torch.int64)
    values = zeros(b.requests, blocks, dtype=torch.float32)
    tokens = zeros(b.requests, 1, dtype=torch.int64)

    def finish() -> None:
        torch.gather(winners, 1, values.argmax(1, keepdim=True), out=tokens)

    def torch_sample() -> None:
        tokens[:, 0] = baseline(x)

    arguments |= {
        "local_argmax_ptr": winners,
        "local_argmax_stride": winners.stride(0),
        "local_max_ptr": values,
        "local_max_stride": values.stride(0),
        "processed_logits_ptr": None,
        "processed_logits_stride": 0,
        "processed_logits_col_ptr": None,
        "expanded_idx_mapping_ptr": b.rows,
        "seeds_ptr": b.longs(b.max_requests, high=2**62),
        "pos_ptr": b.longs(b.requests, high=4096),
        "temp_ptr": torch.full((b.max_requests,), temp),
        "BLOCK_SIZE": SAMPLE_BLOCK,
        "APPLY_TEMPERATURE": False,
        "USE_FP64": False,
        "PER_TOKEN_COL": False,
    }
    grid = (b.requests, blocks)
    return Cell(grid, arguments, torch_sample, [tokens], finish=finish, reads=[x])


@case(
    "worker.gpu.sample.gumbel",
    "_gumbel_sample_kernel",
    "one argmax",
    variant="greedy",
    matrices=2,
)
def gumbel_sample_greedy(size: Size) -> Cell:
    """Build greedy sampling."""
    return sample(size, 0.0, lambda x: x.argmax(-1))


@case(
    "worker.gpu.sample.gumbel",
    "_gumbel_sample_kernel",
    "softmax over exponential noise of one draw for all, without seeds, and argmax",
    variant="sampled",
    matrices=4,
)
def gumbel_sample(size: Size) -> Cell:
    """Build sampling at temperature 1."""

    def exponential_race(x: torch.Tensor) -> torch.Tensor:
        noise = torch.empty_like(x).exponential_()
        return x.softmax(-1).div_(noise).argmax(-1)

    return sample(size, 1.0, exponential_race)
