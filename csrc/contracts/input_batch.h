// SPDX-License-Identifier: Apache-2.0
// The batch's inputs and the request state around a step.
// Upstream: vllm/v1/worker/gpu/input_batch.py
//
// Here and below: request i of the batch has the state row idx_mapping[i] and the
// tokens [query_start_loc[i], query_start_loc[i + 1]).
#ifndef VLLM_KUNLUN_CONTRACTS_INPUT_BATCH_H_
#define VLLM_KUNLUN_CONTRACTS_INPUT_BATCH_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _prepare_prefill_inputs_kernel, grid (num_reqs).
//
// Feeds requests that are still prefilling (num_computed < prefill_len); others are
// left alone.
// Written: input_ids of all tokens of the request, from its known tokens; not clipped
// at prefill_len, where the known tokens of a chunk with drafts are stale (the drafts
// overwrite them later). next_prefill_tokens[row], the token after this chunk, if the
// prefill goes on.
struct PreparePrefillInputs {
  int32_t* input_ids;              // [max_num_tokens]
  int32_t* next_prefill_tokens;    // [max_num_reqs]
  const int32_t* idx_mapping;      // [num_reqs]
  const int32_t* query_start_loc;  // [num_reqs + 1]
  const int32_t* all_token_ids;    // [max_num_reqs, max_model_len]
  int64_t all_token_ids_stride;
  const int32_t* prefill_lens;         // [max_num_reqs]
  const int32_t* num_computed_tokens;  // [max_num_reqs]
  int64_t num_reqs;
};

// _prepare_pos_seq_lens_kernel, grid (num_reqs + 1).
//
// Written: pos of every token of the batch, and nothing beyond them; seq_lens[i], the
// computed tokens and the query; 0 in seq_lens[num_reqs .. max_num_reqs), the padding.
struct PreparePosSeqLens {
  int64_t* pos;                        // [>= query_start_loc[num_reqs]]
  int32_t* seq_lens;                   // [max_num_reqs]
  const int32_t* idx_mapping;          // [num_reqs]
  const int32_t* query_start_loc;      // [num_reqs + 1]
  const int32_t* num_computed_tokens;  // [max_num_reqs]
  int64_t max_num_reqs;
  int64_t num_columns;  // num_reqs + 1
};

// _combine_sampled_and_draft_tokens_kernel, grid (num_reqs).
//
// A request's last cu_num_logits[i + 1] - cu_num_logits[i] tokens give logits.
// Written: logits_indices of every request, prefilling or not. Of requests past their
// prefill (seq_len > prefill_len) also input_ids: the drafts at the end of the query,
// and the last sampled token at the first logit, unless that still belongs to the
// prompt. num_new_sampled_tokens is 0 or 1: how many of the logits are no drafts'.
struct CombineSampledAndDraftTokens {
  int32_t* input_ids;                  // [max_num_tokens]
  const int32_t* idx_mapping;          // [num_reqs]
  const int64_t* last_sampled_tokens;  // [max_num_reqs]
  const int32_t* query_start_loc;      // [num_reqs + 1]
  const int32_t* seq_lens;             // [num_reqs]
  const int32_t* prefill_len;          // [max_num_reqs]
  const int64_t* draft_tokens;         // [max_num_reqs, num_steps]; null without drafts
  int64_t draft_tokens_stride;
  const int32_t* cu_num_logits;  // [num_reqs + 1]
  int64_t* logits_indices;       // [cu_num_logits[num_reqs]]
  int64_t num_new_sampled_tokens;
  int64_t num_reqs;
};

// _get_num_sampled_and_rejected_kernel, grid (num_reqs).
//
// Written: num_rejected[i], the logits without a sampled token; both counts become 0
// where the request is in the middle of its prefill (seq_len < prefill_len).
struct GetNumSampledAndRejected {
  int32_t* num_sampled;          // [num_reqs], read and written
  int32_t* num_rejected;         // [num_reqs]
  const int32_t* seq_lens;       // [num_reqs]
  const int32_t* cu_num_logits;  // [num_reqs + 1]
  const int32_t* idx_mapping;    // [num_reqs]
  const int32_t* prefill_len;    // [max_num_reqs]
  int64_t num_reqs;
};

// _post_update_kernel, grid (num_reqs).
//
// Takes a step's outcome into the request state. A negative idx_mapping[i] leaves out
// request i. Rows of the state are distinct.
// Written, for each request: its sampled tokens after all_token_ids[row, total_len);
// total_len and, if anything was sampled, last_sampled_tokens; the sampled tokens'
// counts; num_computed_tokens, by the length of the query without the rejected tokens.
// A negative token is not counted: it would be counted outside of the row.
// Neither sampled_tokens nor the counts of the step are written: a copy of them to the
// host may be under way.
struct PostUpdate {
  const int32_t* idx_mapping;    // [num_reqs]
  int32_t* num_computed_tokens;  // [max_num_reqs]
  int64_t* last_sampled_tokens;  // [max_num_reqs]
  int32_t* output_bin_counts;    // [max_num_reqs, vocab_size] or null: no counting
  int64_t output_bin_counts_stride;
  const int64_t* sampled_tokens;  // [num_reqs, >= num_sampled]
  int64_t sampled_tokens_stride;
  const int32_t* num_sampled;      // [num_reqs]
  const int32_t* num_rejected;     // [num_reqs]
  const int32_t* query_start_loc;  // [num_reqs + 1] or null: queries are empty
  int32_t* all_token_ids;          // [max_num_reqs, max_model_len]
  int64_t all_token_ids_stride;
  int32_t* total_len;  // [max_num_reqs]
  int64_t num_reqs;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_INPUT_BATCH_H_
