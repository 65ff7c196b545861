// SPDX-License-Identifier: Apache-2.0
// Log probabilities, ranks and what goes with them.
// Upstream: vllm/v1/worker/gpu/sample/logprob.py, sample/prompt_logprob.py,
// metrics/logits.py
#ifndef VLLM_KUNLUN_CONTRACTS_LOGPROB_H_
#define VLLM_KUNLUN_CONTRACTS_LOGPROB_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _topk_log_softmax_kernel, grid (num_rows).
//
// The log probability of chosen tokens: (logit - max) - log(sum(exp(logit - max))), in
// f32. A row of -inf alone, or with a NaN or +inf, gives NaN. A token outside
// [0, vocab_size) has the logit -inf (docs/deviations.md).
// Written: output.
struct TopkLogSoftmax {
  float* output;       // [num_rows, topk]
  const void* logits;  // [num_rows, >= vocab_size]; the stride may be 0
  FloatType logits_type;
  int64_t logits_stride;
  const int64_t* topk_ids;  // [num_rows, topk]
  int64_t topk;
  int64_t vocab_size;
  int64_t num_rows;
};

// _ranks_kernel, grid (num_rows).
//
// How many tokens of the vocabulary have at least the logit of the row's token, itself
// and ties included: 1 for the best. Nothing is at least NaN. A token outside
// [0, vocab_size) has the logit -inf. (docs/deviations.md, also for what upstream adds
// to the rank of -inf.)
// Written: output.
struct Ranks {
  int64_t* output;     // [num_rows]
  const void* logits;  // [num_rows, >= vocab_size]; the stride may be 0
  FloatType logits_type;
  int64_t logits_stride;
  const int64_t* token_ids;  // [num_rows]
  int64_t vocab_size;
  int64_t num_rows;
};

// _fill_logprob_token_ids_kernel, grid (num_rows).
//
// The tokens whose log probabilities a row returns: the sampled one, then its request's
// own tokens if it has any, else the row's top-k.
// Written: these columns of out_token_ids, and true to the same of out_valid_mask. The
// columns after them keep what they held.
struct FillLogprobTokenIds {
  int64_t* out_token_ids;  // [num_rows, > both topk and the number of own tokens]
  int64_t out_token_ids_stride;
  bool* out_valid_mask;  // as out_token_ids
  int64_t out_valid_mask_stride;
  const int64_t* sampled_token_ids;  // [num_rows]
  const int32_t* topk_indices;       // [num_rows, topk], unused if topk is 0
  int64_t topk_indices_stride;
  const int32_t* expanded_idx_mapping;   // [num_rows], >= 0
  const int32_t* num_per_req_token_ids;  // [max_num_reqs], in [0, width]
  const int32_t* per_req_token_ids;      // [max_num_reqs, width]
  int64_t per_req_token_ids_stride;
  int64_t topk;
  int64_t num_rows;
};

// _prompt_logprobs_token_ids_kernel, grid (num_reqs).
//
// The token that each position of the batch predicts: the one after it in its request.
// Where the row of tokens ends, so that none is after it, the token is 0
// (docs/deviations.md); the caller drops that entry.
// Written: token_ids[query_start_loc[i] .. query_start_loc[i + 1]) of each request i.
struct PromptLogprobsTokenIds {
  int64_t* token_ids;                  // [query_start_loc[num_reqs]]
  const int32_t* query_start_loc;      // [num_reqs + 1]
  const int32_t* idx_mapping;          // [num_reqs], >= 0
  const int32_t* num_computed_tokens;  // [max_num_reqs], >= 0
  const int32_t* all_token_ids;        // [max_num_reqs, max_len]
  int64_t all_token_ids_stride;
  int64_t max_len;
  int64_t num_reqs;
};

// _num_nans_kernel, grid (num_rows).
//
// Written: num_nans[row], how many of the row's logits are NaN.
struct NumNans {
  const void* logits;  // [num_rows, >= vocab_size]; the stride may be 0
  FloatType logits_type;
  int64_t logits_stride;
  int32_t* num_nans;  // [num_rows]
  int64_t vocab_size;
  int64_t num_rows;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_LOGPROB_H_
