# SPDX-License-Identifier: Apache-2.0
"""The kernels of a step as torch code, the way ports without Triton write them.

Such ports replace the function around each launch. Work of unequal length per request
is a loop over requests in Python, after one ``tolist`` per array that steers it; what
is the same for all requests is a few torch ops (vllm_kunlun/v1/worker/gpu/ of
https://github.com/baidu/vLLM-Kunlun is such a port). Nothing here is used but by the
benchmark.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from vllm.v1.attention.backends.utils import PAD_SLOT_ID
from vllm.v1.worker.gpu.block_table import BlockTables

Arguments = Mapping[str, Any]
Native = Callable[[tuple[int, ...], Arguments], None]

PACKAGE = "vllm.v1.worker.gpu."
NATIVE: dict[tuple[str, str], Native] = {}
"""(module, kernel) -> torch code."""


class NativeBlockTables(BlockTables):
    """Block tables without tables of addresses, which torch cannot follow."""

    def apply_staged_writes(self) -> None:
        """Apply the staged rows, group by group."""
        for table in self.block_tables:
            table.apply_write()
        self.num_blocks.copy_to_uva()

    def gather_block_tables(
        self, idx_mapping: torch.Tensor, num_reqs_padded: int
    ) -> tuple[torch.Tensor, ...]:
        """Return the rows of the batch's requests, for each group."""
        num_reqs = idx_mapping.shape[0]
        for source, target in zip(
            self.block_tables, self.input_block_tables, strict=True
        ):
            target[:num_reqs] = source.gpu.index_select(0, idx_mapping)
            target[num_reqs:num_reqs_padded].zero_()
        return tuple(table[:num_reqs_padded] for table in self.input_block_tables)

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
    ) -> torch.Tensor:
        """Return the slot of each token, for each group."""
        num_tokens = int(query_start_loc[idx_mapping.shape[0]])
        lengths = query_start_loc.diff()[: idx_mapping.shape[0]]
        rows = idx_mapping.repeat_interleave(lengths, output_size=num_tokens)
        self.slot_mappings.fill_(PAD_SLOT_ID)
        at = positions[:num_tokens]
        for group, size in enumerate(self.kernel_block_sizes):
            blocks = self.block_tables[group].gpu[rows, at // size]
            self.slot_mappings[group, :num_tokens] = blocks * size + at % size
        return self.slot_mappings[:, :num_tokens_padded]


def native(module: str, kernel: str) -> Callable[[Native], Native]:
    """Enter a function as the torch code of a kernel."""

    def enter(function: Native) -> Native:
        NATIVE[PACKAGE + module, kernel] = function
        return function

    return enter


@native("buffer_utils", "_apply_write_kernel")
def apply_write(grid: tuple[int, ...], a: Arguments) -> None:
    """Write pieces of unequal length."""
    start = 0
    contents = a["write_contents_ptr"]
    for row, first, end in zip(
        a["write_indices_ptr"].tolist(),
        a["write_starts_ptr"].tolist(),
        a["write_cu_lens_ptr"].tolist(),
        strict=True,
    ):
        target = a["output_ptr"]
        if target.ndim == 1:
            target[row] = contents[start]
        else:
            target[row, first : first + end - start] = contents[start:end]
        start = end


@native("input_batch", "_prepare_prefill_inputs_kernel")
def prepare_prefill_inputs(grid: tuple[int, ...], a: Arguments) -> None:
    """Copy tokens of prompts to where the step computes them."""
    starts = a["query_start_loc_ptr"].tolist()
    lens, computed = a["prefill_lens_ptr"].tolist(), a["num_computed_tokens_ptr"]
    done = computed.tolist()
    tokens = a["all_token_ids_ptr"]
    for i, row in enumerate(a["idx_mapping_ptr"].tolist()):
        first = done[row]
        if first >= lens[row]:
            continue
        end = first + starts[i + 1] - starts[i]
        a["input_ids_ptr"][starts[i] : starts[i + 1]] = tokens[row, first:end]
        if end < lens[row]:
            a["next_prefill_tokens_ptr"][row] = tokens[row, end]


@native("input_batch", "_prepare_pos_seq_lens_kernel")
def prepare_pos_seq_lens(grid: tuple[int, ...], a: Arguments) -> None:
    """Number the tokens of each request."""
    rows = a["idx_mapping_ptr"].tolist()
    starts = a["query_start_loc_ptr"].tolist()
    computed = a["num_computed_tokens_ptr"].tolist()
    positions, seq_lens = a["pos_ptr"], a["seq_lens_ptr"]
    for i, row in enumerate(rows):
        end = computed[row] + starts[i + 1] - starts[i]
        seq_lens[i] = end
        positions[starts[i] : starts[i + 1]] = torch.arange(
            computed[row], end, dtype=positions.dtype, device=positions.device
        )
    seq_lens[len(rows) :] = 0


@native("input_batch", "_expand_idx_mapping_kernel")
def expand_idx_mapping(grid: tuple[int, ...], a: Arguments) -> None:
    """Repeat each request's row for each of its logits."""
    starts = a["cu_num_logits_ptr"].tolist()
    places = a["expanded_local_pos_ptr"]
    for i, row in enumerate(a["idx_mapping_ptr"].tolist()):
        first, end = starts[i], starts[i + 1]
        a["expanded_idx_mapping_ptr"][first:end] = row
        places[first:end] = torch.arange(
            end - first, dtype=places.dtype, device=places.device
        )


@native("input_batch", "_combine_sampled_and_draft_tokens_kernel")
def combine_sampled_and_draft_tokens(grid: tuple[int, ...], a: Arguments) -> None:
    """Put the last token and its drafts where the step computes them."""
    starts = a["query_start_loc_ptr"].tolist()
    logits = a["cu_num_logits_ptr"].tolist()
    lens, prefills = a["seq_lens_ptr"].tolist(), a["prefill_len_ptr"].tolist()
    ids, indices = a["input_ids_ptr"], a["logits_indices_ptr"]
    for i, row in enumerate(a["idx_mapping_ptr"].tolist()):
        number, end = logits[i + 1] - logits[i], starts[i + 1]
        indices[logits[i] : logits[i + 1]] = torch.arange(
            end - number, end, dtype=indices.dtype, device=indices.device
        )
        if lens[i] <= prefills[row]:
            continue
        drafts = number - a["NUM_NEW_SAMPLED_TOKENS"]
        if a["NUM_NEW_SAMPLED_TOKENS"] and lens[i] - number >= prefills[row]:
            ids[end - number] = a["last_sampled_tokens_ptr"][row, 0]
        if drafts:
            ids[end - drafts : end] = a["draft_tokens_ptr"][row, :drafts]


@native("input_batch", "_get_num_sampled_and_rejected_kernel")
def get_num_sampled_and_rejected(grid: tuple[int, ...], a: Arguments) -> None:
    """Count nothing for requests that are in the middle of their prompt."""
    prefills = a["prefill_len_ptr"][a["idx_mapping_ptr"]]
    decodes = a["seq_lens_ptr"][: len(prefills)] >= prefills
    number = a["num_sampled_ptr"]
    number.mul_(decodes)
    rejected = a["cu_num_logits_ptr"].diff() - number
    a["num_rejected_ptr"][:] = rejected * decodes


@native("input_batch", "_post_update_kernel")
def post_update(grid: tuple[int, ...], a: Arguments) -> None:
    """Append what was sampled, and count it."""
    sampled = a["sampled_tokens_ptr"]
    number, rejected = a["num_sampled_ptr"].tolist(), a["num_rejected_ptr"].tolist()
    total, starts = a["total_len_ptr"].tolist(), a["query_start_loc_ptr"].tolist()
    for i, row in enumerate(a["idx_mapping_ptr"].tolist()):
        if row < 0:
            continue
        if n := number[i]:
            tokens = sampled[i, :n]
            a["last_sampled_tokens_ptr"][row] = tokens[-1]
            a["all_token_ids_ptr"][row, total[row] : total[row] + n] = tokens
            a["total_len_ptr"][row] = total[row] + n
            if (counts := a["output_bin_counts_ptr"]) is not None:
                ones = torch.ones_like(tokens, dtype=counts.dtype)
                counts[row].scatter_add_(0, tokens, ones)
        a["num_computed_tokens_ptr"][row] += starts[i + 1] - starts[i] - rejected[i]


@native("sample.gumbel", "_temperature_kernel")
def temperature(grid: tuple[int, ...], a: Arguments) -> None:
    """Divide by the temperature, where there is one."""
    t = a["temperature_ptr"][a["expanded_idx_mapping_ptr"]]
    a["logits_ptr"].div_(torch.where(t == 0, 1.0, t)[:, None])


@native("sample.min_p", "_min_p_kernel")
def min_p(grid: tuple[int, ...], a: Arguments) -> None:
    """Forbid tokens far below the best one."""
    x = a["logits_ptr"]
    bound = x.amax(-1) + a["min_p_ptr"][a["expanded_idx_mapping_ptr"]].log()
    x.masked_fill_(x < bound[:, None], -torch.inf)


def noisy(logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
    """Return logits with Gumbel noise where there is a temperature."""
    if not temperatures.any():
        return logits
    noise = torch.empty_like(logits).exponential_().log_().neg_()
    return logits + noise * (temperatures != 0)[:, None]


@native("sample.gumbel", "_gumbel_sample_kernel")
def gumbel_sample(grid: tuple[int, ...], a: Arguments) -> None:
    """Choose a token of each row; noise is torch's, not by the request's seed."""
    temperatures = a["temp_ptr"][a["expanded_idx_mapping_ptr"]]
    best = noisy(a["logits_ptr"], temperatures).max(-1)
    # The caller chooses between blocks of the vocabulary; there is one.
    a["local_max_ptr"].fill_(-torch.inf)
    a["local_max_ptr"][:, 0] = best.values
    a["local_argmax_ptr"][:, 0] = best.indices


REJECTION = "spec_decode.rejection_sampler_utils"


@native(REJECTION, "_compute_local_logits_stats_kernel")
def compute_local_logits_stats(grid: tuple[int, ...], a: Arguments) -> None:
    """Find each row's best token, and its sum of exponentials if any is sampled."""
    x = a["target_logits_ptr"]
    best = x.max(-1)
    a["target_local_max_ptr"].fill_(-torch.inf)
    a["target_local_max_ptr"][:, 0] = best.values
    a["target_local_argmax_ptr"][:, 0] = best.indices
    if a["temp_ptr"][a["expanded_idx_mapping_ptr"]].any():
        a["target_local_sumexp_ptr"].zero_()
        sums = (x - best.values[:, None]).exp_().sum(-1)
        a["target_local_sumexp_ptr"][:, 0] = sums


@native(REJECTION, "_rejection_kernel")
def rejection(grid: tuple[int, ...], a: Arguments) -> None:
    """Accept drafts up to the first that the target does not want."""
    starts = a["cu_num_logits_ptr"]
    sampled, tokens = a["sampled_ptr"], a["draft_sampled_ptr"]
    steps = torch.arange(sampled.shape[1] - 1, device=sampled.device)
    rows = starts[:-1, None] + steps
    there = rows + 1 < starts[1:, None]
    rows = rows.clamp(max=len(tokens) - 2)
    drafts = tokens[rows + 1].long()
    best = a["target_local_argmax_ptr"][rows, 0]
    greedy = (a["temp_ptr"][a["idx_mapping_ptr"]] == 0)[:, None]
    takes = best == drafts
    if not greedy.all():
        sums = a["target_local_sumexp_ptr"][:, 0]
        lse = a["target_local_max_ptr"][:, 0] + sums.log()
        chance = torch.rand(rows.shape, device=rows.device)
        log_p = a["target_logits_ptr"][rows, drafts.clamp(min=0)] - lse[rows]
        takes = torch.where(greedy, takes, log_p > chance.log())
    takes &= there
    run = takes.cumprod(-1)
    sampled[:, :-1] = torch.where(run.bool() | ~greedy, drafts, best)
    a["rejected_steps_ptr"][:] = run.sum(-1)


@native(REJECTION, "_resample_kernel")
def resample(grid: tuple[int, ...], a: Arguments) -> None:
    """Choose the token after the accepted drafts."""
    rows = a["cu_num_logits_ptr"][:-1] + a["rejected_step_ptr"]
    is_bonus = rows == a["cu_num_logits_ptr"][1:] - 1
    x = a["target_logits_ptr"][rows]
    draft = a["draft_sampled_ptr"][(rows + 1).clamp(max=len(a["pos_ptr"]) - 1)].long()
    index = draft.clamp(min=0)[:, None]
    kept = torch.where(is_bonus[:, None], x.gather(1, index), -torch.inf)
    x.scatter_(1, index, kept)
    temperatures = a["temp_ptr"][a["expanded_idx_mapping_ptr"][rows]]
    best = noisy(x, temperatures).max(-1)
    a["resampled_local_max_ptr"].fill_(-torch.inf)
    a["resampled_local_max_ptr"][:, 0] = best.values
    a["resampled_local_argmax_ptr"][:, 0] = best.indices


@native(REJECTION, "_insert_resampled_kernel")
def insert_resampled(grid: tuple[int, ...], a: Arguments) -> None:
    """Put that token after the drafts, unless greedy verification has done so."""
    number, starts = a["num_sampled_ptr"], a["cu_num_logits_ptr"]
    rows = starts[:-1] + number
    greedy = a["temp_ptr"][a["expanded_idx_mapping_ptr"][rows]] == 0
    there = greedy & (rows != starts[1:] - 1)
    index = number.long()[:, None]
    sampled = a["sampled_ptr"]
    tokens = a["resampled_local_argmax_ptr"][:, :1]
    tokens = torch.where(there[:, None], sampled.gather(1, index), tokens)
    sampled.scatter_(1, index, tokens)
    number += 1


@native("spec_decode.dflash.speculator", "_prepare_dflash_inputs_kernel")
def prepare_dflash_inputs(grid: tuple[int, ...], a: Arguments) -> None:
    """Lay out the drafter's queries and the slots of its context."""
    starts = a["target_query_start_loc_ptr"].tolist()
    rejected, number = a["num_rejected_ptr"].tolist(), a["num_sampled_ptr"].tolist()
    positions, table = a["target_positions_ptr"], a["block_table_ptr"]
    queries, drafts = a["num_query_per_req"], a["num_speculative_steps"]
    size, n = a["block_size"], grid[0]
    skipped = 0 if a["SAMPLE_FROM_ANCHOR"] else 1
    device = positions.device
    places = torch.arange(queries, device=device)
    columns = table.shape[1] - 1
    for i, row in enumerate(a["idx_mapping_ptr"].tolist()):
        context = positions[starts[i] : starts[i + 1]]
        a["out_context_positions_ptr"][starts[i] : starts[i + 1]] = context
        blocks = table[i, (context // size).clamp(max=columns)].long()
        a["out_context_slot_mapping_ptr"][starts[i] : starts[i + 1]] = (
            blocks * size + context % size
        )
        last = positions[starts[i + 1] - rejected[i] - 1]
        at = last + 1 + places
        first, end = i * queries, (i + 1) * queries
        a["out_input_ids_ptr"][first:end] = a["parallel_drafting_token_id"]
        token = a["last_sampled_ptr" if number[i] else "next_prefill_tokens_ptr"][row]
        a["out_input_ids_ptr"][first] = token.view(())
        a["out_query_positions_ptr"][first:end] = at.clamp(max=a["max_model_len"] - 1)
        blocks = table[i, (at // size).clamp(max=columns)].long()
        a["out_query_slot_mapping_ptr"][first:end] = blocks * size + at % size
        sample, sample_end = i * drafts, (i + 1) * drafts
        a["out_sample_indices_ptr"][sample:sample_end] = torch.arange(
            first + skipped, first + skipped + drafts, device=device
        )
        a["out_sample_pos_ptr"][sample:sample_end] = (
            at[skipped : skipped + drafts] + 1 - skipped
        )
        a["out_sample_idx_mapping_ptr"][sample:sample_end] = row
        a["out_query_start_loc_ptr"][i] = first
        a["out_seq_lens_ptr"][i] = last + 1 + queries
    a["out_query_start_loc_ptr"][n : a["max_num_reqs"] + 1] = n * queries
    a["out_seq_lens_ptr"][n : a["max_num_reqs"]] = 0
    padding = slice(n * drafts, a["max_num_reqs"] * drafts)
    a["out_sample_indices_ptr"][padding] = 0
    a["out_sample_pos_ptr"][padding] = 0
    a["out_sample_idx_mapping_ptr"][padding] = -1
    a["out_query_slot_mapping_ptr"][n * queries : a["max_num_tokens"]] = PAD_SLOT_ID
