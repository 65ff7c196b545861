// SPDX-License-Identifier: Apache-2.0
#include "contracts/autoregressive.h"

#include <algorithm>
#include <cstring>

#include "host/kernels.h"

namespace vllm_kunlun::host {
namespace {

// Fills [from, to) of the padding of a per-request buffer, which may be none.
template <class T>
void pad(T* data, int64_t from, int64_t to, T value) {
  if (from < to) std::fill(data + from, data + to, value);
}

}  // namespace

void prepare_draft_prefill_inputs(const PrepareDraftPrefillInputs& a, int64_t begin,
                                  int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t start = a.target_query_start[i];
    const int64_t last = a.target_query_start[i + 1] - a.num_rejected[i] - 1;
    const int64_t req = a.idx_mapping[i];
    std::copy(a.target_input_ids + start + 1, a.target_input_ids + last + 1,
              a.input_ids + start);
    a.input_ids[last] = a.num_sampled[i] > 0 ? static_cast<int32_t>(a.last_sampled[req])
                                             : a.next_prefill_tokens[req];
    std::copy(a.target_positions + start, a.target_positions + last + 1,
              a.positions + start);
    a.last_token_indices[i] = last;
    a.query_start_loc[i] = static_cast<int32_t>(start);
    a.seq_lens[i] = a.target_seq_lens[i];
    if (i < a.num_reqs - 1) continue;
    *a.current_step = 0;
    pad(a.query_start_loc, a.num_reqs, a.max_num_reqs + 1,
        a.target_query_start[a.num_reqs]);
    pad(a.seq_lens, a.num_reqs, a.max_num_reqs, 0);
    pad(a.last_token_indices, a.num_reqs, a.max_num_reqs, int64_t{0});
  }
}

void prepare_decode_inputs(const PrepareDecodeInputs& a, int64_t begin, int64_t end) {
  const int64_t num_reqs = a.num_programs - 1;
  for (int64_t i = begin; i < end; ++i) {
    if (i == num_reqs) {
      for (int64_t j = 0; j <= a.max_num_reqs; ++j) {
        a.query_start_loc[j] = static_cast<int32_t>(std::min(j, num_reqs));
      }
      pad(a.seq_lens, num_reqs, a.max_num_reqs, 0);
      continue;
    }
    a.input_ids[i] = static_cast<int32_t>(a.draft_tokens[i * a.draft_tokens_stride]);
    if (!a.advance_draft_positions) continue;
    a.positions[i] = std::min(a.positions[i] + 1, a.max_model_len - 1);
    const int64_t seq_len = int64_t{a.target_seq_lens[i]} - a.num_rejected[i];
    a.seq_lens[i] = static_cast<int32_t>(std::min(seq_len + 1, a.max_model_len));
  }
}

void update_draft_inputs(const UpdateDraftInputs& a, int64_t begin, int64_t end) {
  const int64_t step = *a.current_step;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t token = a.draft_tokens[i];
    a.output_draft_tokens[i * a.output_draft_tokens_stride + step] = token;
    if (step >= a.num_speculative_steps - 1) continue;
    a.input_ids[i] = static_cast<int32_t>(token);
    std::memcpy(
        static_cast<char*>(a.next_hidden_states) + i * a.next_hidden_states_row_bytes,
        static_cast<const char*>(a.hidden_states) + i * a.hidden_states_row_bytes,
        a.num_bytes);
    if (!a.advance_draft_positions) continue;
    a.positions[i] = std::min(a.positions[i] + 1, a.max_model_len - 1);
    a.seq_lens[i] =
        static_cast<int32_t>(std::min(int64_t{a.seq_lens[i]} + 1, a.max_model_len));
  }
}

}  // namespace vllm_kunlun::host
