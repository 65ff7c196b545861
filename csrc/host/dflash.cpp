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

template <class T>
void fill(T* data, int64_t from, int64_t to, T value) {
  if (from < to) std::fill(data + from, data + to, value);
}

// The position after the request's last valid one.
int64_t first_query_position(const PrepareDflashInputs& a, int64_t i) {
  const int64_t context_end = a.target_query_start[i + 1];
  return a.target_positions[context_end - a.num_rejected[i] - 1] + 1;
}

// What depends on a group's block table, with the padding after the last request. Rows
// of the context from `stored_end` on get no slot.
void prepare_slots(const PrepareDflashInputs& a, int64_t i, int64_t stored_end) {
  const int64_t context_end = a.target_query_start[i + 1];
  for (int64_t t = a.target_query_start[i]; t < context_end; ++t) {
    a.context_slots[t] =
        t < stored_end ? slot_of(a, i, a.target_positions[t]) : a.pad_slot_id;
  }
  const int64_t first_position = first_query_position(a, i);
  for (int64_t q = 0; q < a.num_query_per_req; ++q) {
    const int64_t position = first_position + q;
    a.query_slots[i * a.num_query_per_req + q] =
        position < a.max_model_len ? slot_of(a, i, position) : a.pad_slot_id;
  }
  if (i == a.num_reqs - 1) {
    fill(a.query_slots, a.num_reqs * a.num_query_per_req, a.max_num_tokens,
         a.pad_slot_id);
  }
}

void pad_rows(const PrepareDflashInputs& a) {
  const int64_t num_queries = a.num_reqs * a.num_query_per_req;
  const int64_t num_samples = a.num_reqs * a.num_speculative_steps;
  const int64_t max_samples = a.max_num_reqs * a.num_speculative_steps;
  fill(a.query_start_loc, a.num_reqs, a.max_num_reqs + 1,
       static_cast<int32_t>(num_queries));
  fill(a.seq_lens, a.num_reqs, a.max_num_reqs, 0);
  fill<int64_t>(a.sample_indices, num_samples, max_samples, 0);
  fill<int64_t>(a.sample_pos, num_samples, max_samples, 0);
  fill(a.sample_idx_mapping, num_samples, max_samples, -1);
}

// All the rest, which is the same for every group.
void prepare_rows(const PrepareDflashInputs& a, int64_t i) {
  for (int64_t t = a.target_query_start[i]; t < a.target_query_start[i + 1]; ++t) {
    a.context_positions[t] = a.target_positions[t];
  }

  const int32_t req = a.idx_mapping[i];
  const int64_t anchor =
      a.num_sampled[i] > 0 ? a.last_sampled[req] : a.next_prefill_tokens[req];
  const int64_t first_position = first_query_position(a, i);
  const int64_t first_row = i * a.num_query_per_req;
  for (int64_t q = 0; q < a.num_query_per_req; ++q) {
    a.input_ids[first_row + q] =
        static_cast<int32_t>(q == 0 ? anchor : a.parallel_drafting_token_id);
    a.query_positions[first_row + q] =
        std::min(first_position + q, a.max_model_len - 1);
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
  if (i == a.num_reqs - 1) pad_rows(a);
}

PrepareDflashInputs in_group(PrepareDflashInputs rows, const DraftGroup& group) {
  rows.query_slots = group.query_slots;
  rows.context_slots = group.context_slots;
  rows.block_table = group.block_table;
  rows.block_table_stride = group.block_table_stride;
  rows.block_size = group.block_size;
  return rows;
}

}  // namespace

void prepare_dflash_inputs(const PrepareDflashInputs& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    prepare_slots(a, i, a.target_query_start[i + 1]);
    prepare_rows(a, i);
  }
}

void prepare_draft_inputs(const PrepareDraftInputs& a, int64_t begin, int64_t end) {
  const PrepareDflashInputs& rows = a.rows;
  for (int64_t g = 0; g < a.num_groups; ++g) {
    const PrepareDflashInputs group = in_group(rows, a.groups[g]);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t context_end = rows.target_query_start[i + 1];
      prepare_slots(group, i,
                    a.skip_rejected ? context_end - rows.num_rejected[i] : context_end);
    }
  }
  for (int64_t i = begin; i < end; ++i) {
    prepare_rows(rows, i);
    a.out_idx_mapping[i] = rows.idx_mapping[i];
    if (i == rows.num_reqs - 1) {
      fill(a.out_idx_mapping, rows.num_reqs, rows.max_num_reqs, -1);
      std::copy_n(a.temperature, rows.max_num_reqs, a.out_temperature);
      std::copy_n(a.seeds, rows.max_num_reqs, a.out_seeds);
    }
  }
}

void gather_context(const GatherContext& a, int64_t begin, int64_t end) {
  int64_t rejected_before = 0;
  for (int64_t i = 0; i < begin; ++i) rejected_before += a.num_rejected[i];
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = a.query_start_loc[i];
    const int64_t last = a.query_start_loc[i + 1] - a.num_rejected[i];
    const int64_t out = first - rejected_before;
    rejected_before += a.num_rejected[i];
    char* feature = a.features + out * a.feature_bytes;
    for (int64_t t = first; t < last; ++t) {
      for (int64_t s = 0; s < a.num_sources; ++s) {
        const ContextSource& source = a.sources[s];
        feature = std::copy_n(source.data + t * source.stride_bytes, source.row_bytes,
                              feature);
      }
    }
    std::copy(a.positions + first, a.positions + last, a.out_positions + out);
    for (int64_t g = 0; g < a.num_groups; ++g) {
      const int64_t* slots = a.slots + g * a.slots_stride;
      std::copy(slots + first, slots + last,
                a.out_slots + g * a.out_slots_stride + out);
    }
  }
}

}  // namespace vllm_kunlun::host
