// SPDX-License-Identifier: Apache-2.0
#include "contracts/dflash.h"

#include <algorithm>

#include "host/kernels.h"

namespace vllm_kunlun::host {
namespace {

int64_t slot_of(const PrepareDflashInputs& a, int64_t req, int64_t position) {
  const int64_t column = position / a.block_size;
  if (column >= a.block_table_stride) return a.pad_slot_id;
  const int64_t block = a.block_table[req * a.block_table_stride + column];
  return block * a.block_size + position % a.block_size;
}

void pad(const PrepareDflashInputs& a) {
  const int64_t num_queries = a.num_reqs * a.num_query_per_req;
  const int64_t num_samples = a.num_reqs * a.num_speculative_steps;
  const int64_t max_samples = a.max_num_reqs * a.num_speculative_steps;
  const auto fill = [](auto* data, int64_t from, int64_t to, auto value) {
    if (from < to) std::fill(data + from, data + to, value);
  };
  fill(a.query_start_loc, a.num_reqs, a.max_num_reqs + 1,
       static_cast<int32_t>(num_queries));
  fill(a.seq_lens, a.num_reqs, a.max_num_reqs, 0);
  fill(a.sample_indices, num_samples, max_samples, 0);
  fill(a.sample_pos, num_samples, max_samples, 0);
  fill(a.sample_idx_mapping, num_samples, max_samples, -1);
  fill(a.query_slots, num_queries, a.max_num_tokens, a.pad_slot_id);
}

}  // namespace

void prepare_dflash_inputs(const PrepareDflashInputs& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t context_end = a.target_query_start[i + 1];
    for (int64_t t = a.target_query_start[i]; t < context_end; ++t) {
      a.context_positions[t] = a.target_positions[t];
      a.context_slots[t] = slot_of(a, i, a.target_positions[t]);
    }

    const int32_t req = a.idx_mapping[i];
    const int64_t anchor =
        a.num_sampled[i] > 0 ? a.last_sampled[req] : a.next_prefill_tokens[req];
    const int64_t first_position =
        a.target_positions[context_end - a.num_rejected[i] - 1] + 1;
    const int64_t first_row = i * a.num_query_per_req;
    for (int64_t q = 0; q < a.num_query_per_req; ++q) {
      const int64_t position = first_position + q;
      const int64_t row = first_row + q;
      const bool fits = position < a.max_model_len;
      a.input_ids[row] =
          static_cast<int32_t>(q == 0 ? anchor : a.parallel_drafting_token_id);
      a.query_positions[row] = fits ? position : a.max_model_len - 1;
      a.query_slots[row] = fits ? slot_of(a, i, position) : a.pad_slot_id;
    }

    const int64_t skipped = a.sample_from_anchor ? 0 : 1;
    for (int64_t q = skipped; q < a.num_query_per_req; ++q) {
      const int64_t sample = i * a.num_speculative_steps + q - skipped;
      a.sample_indices[sample] = first_row + q;
      a.sample_pos[sample] = first_position + q + 1 - skipped;
      a.sample_idx_mapping[sample] = req;
    }

    a.query_start_loc[i] = static_cast<int32_t>(first_row);
    a.seq_lens[i] = static_cast<int32_t>(
        std::min(first_position + a.num_query_per_req, a.max_model_len));
    if (i == a.num_reqs - 1) pad(a);
  }
}

}  // namespace vllm_kunlun::host
