// SPDX-License-Identifier: Apache-2.0
#include "contracts/input_batch.h"

#include <algorithm>
#include <numeric>

#include "host/kernels.h"

namespace vllm_kunlun::host {

void prepare_prefill_inputs(const PreparePrefillInputs& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t req = a.idx_mapping[i];
    const int64_t prefill_len = a.prefill_lens[req];
    const int64_t num_computed = a.num_computed_tokens[req];
    if (num_computed >= prefill_len) continue;
    const int64_t first = a.query_start_loc[i];
    const int64_t query_len = a.query_start_loc[i + 1] - first;
    const int32_t* tokens = a.all_token_ids + req * a.all_token_ids_stride;
    std::copy_n(tokens + num_computed, query_len, a.input_ids + first);
    const int64_t next = num_computed + query_len;
    if (next < prefill_len) a.next_prefill_tokens[req] = tokens[next];
  }
}

void prepare_pos_seq_lens(const PreparePosSeqLens& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (i == a.num_columns - 1) {
      std::fill(a.seq_lens + i, a.seq_lens + std::max(i, a.max_num_reqs), 0);
      continue;
    }
    const int64_t num_computed = a.num_computed_tokens[a.idx_mapping[i]];
    const int64_t first = a.query_start_loc[i];
    const int64_t query_len = a.query_start_loc[i + 1] - first;
    a.seq_lens[i] = static_cast<int32_t>(num_computed + query_len);
    std::iota(a.pos + first, a.pos + first + query_len, num_computed);
  }
}

void combine_sampled_and_draft_tokens(const CombineSampledAndDraftTokens& a,
                                      int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t req = a.idx_mapping[i];
    const int64_t logits_begin = a.cu_num_logits[i];
    const int64_t num_logits = a.cu_num_logits[i + 1] - logits_begin;
    const int64_t query_end = a.query_start_loc[i + 1];
    const int64_t first_logit = query_end - num_logits;
    int64_t* indices = a.logits_indices + logits_begin;
    std::iota(indices, indices + num_logits, first_logit);

    const int64_t seq_len = a.seq_lens[i];
    const int64_t prefill_len = a.prefill_len[req];
    if (seq_len <= prefill_len) continue;
    if (a.num_new_sampled_tokens > 0 && seq_len - num_logits >= prefill_len) {
      a.input_ids[first_logit] = static_cast<int32_t>(a.last_sampled_tokens[req]);
    }
    const int64_t num_drafts = num_logits - a.num_new_sampled_tokens;
    for (int64_t k = 0; k < num_drafts; ++k) {
      const int64_t draft = a.draft_tokens[req * a.draft_tokens_stride + k];
      a.input_ids[query_end - num_drafts + k] = static_cast<int32_t>(draft);
    }
  }
}

void get_num_sampled_and_rejected(const GetNumSampledAndRejected& a, int64_t begin,
                                  int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (a.seq_lens[i] < a.prefill_len[a.idx_mapping[i]]) {
      a.num_sampled[i] = 0;
      a.num_rejected[i] = 0;
    } else {
      const int32_t num_logits = a.cu_num_logits[i + 1] - a.cu_num_logits[i];
      a.num_rejected[i] = num_logits - a.num_sampled[i];
    }
  }
}

void post_update(const PostUpdate& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t req = a.idx_mapping[i];
    if (req < 0) continue;
    const int64_t* sampled = a.sampled_tokens + i * a.sampled_tokens_stride;
    const int32_t num_sampled = a.num_sampled[i];
    int32_t* tokens = a.all_token_ids + req * a.all_token_ids_stride + a.total_len[req];
    for (int64_t k = 0; k < num_sampled; ++k) {
      tokens[k] = static_cast<int32_t>(sampled[k]);
      if (a.output_bin_counts != nullptr && sampled[k] >= 0) {
        ++a.output_bin_counts[req * a.output_bin_counts_stride + sampled[k]];
      }
    }
    if (num_sampled > 0) {
      a.last_sampled_tokens[req] = sampled[num_sampled - 1];
      a.total_len[req] += num_sampled;
    }
    const int32_t query_len = a.query_start_loc == nullptr
                                  ? 0
                                  : a.query_start_loc[i + 1] - a.query_start_loc[i];
    a.num_computed_tokens[req] += query_len - a.num_rejected[i];
  }
}

}  // namespace vllm_kunlun::host
