// SPDX-License-Identifier: Apache-2.0
// Rejection sampling: which drafts the target accepts, and what it samples instead of
// the first one that it does not.
// Upstream: vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py, and
// rejection_sampler.py for flatten_sampled.
//
// The terms of all of these contracts:
//  * The rows of logits [cu_num_logits[i], cu_num_logits[i + 1]) are those of request
//  i:
//    one for each of its drafts, then the bonus row, which follows the last draft.
//    Row r decides on the draft draft_sampled[r + 1].
//  * expanded_idx_mapping[r] is the state row of row r's request (temp, seed,
//    draft_logits), expanded_local_pos[r] the row's place in its request. Rows whose
//    place is num_speculative_steps or more are bonus rows.
//  * Temperature 0 means greedy. Other logits are divided by it already.
//  * vocab_size is the smaller of the target's and the drafter's.
//  * Without draft logits a draft is a point mass: its draft probability is 1.
//  * A negative draft stands for none: it is rejected, whatever the method, and the
//    drafts after it too. What is sampled in its place comes from the target alone.
#ifndef VLLM_KUNLUN_CONTRACTS_REJECTION_H_
#define VLLM_KUNLUN_CONTRACTS_REJECTION_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// Rows that are `stride` elements apart.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;

  T* operator[](int64_t row) const { return data + row * stride; }
};

// [num_logits, >= vocab_size]. The stride is 0 where all rows are one.
struct TargetLogits {
  const void* data;
  FloatType type;
  int64_t stride;
};

// [max_num_reqs, num_speculative_steps, >= vocab_size], or null.
struct DraftLogits {
  const void* data = nullptr;
  FloatType type = FloatType::kF32;
  int64_t req_stride = 0;
  int64_t step_stride = 0;
};

// What compute_local_logits_stats found, [num_logits, num_blocks] each. The logarithm
// of a row's sum of exponentials is max + log(sum of sumexp_b * exp(max_b - max)) with
// max the largest of max_b, over the blocks b.
struct LogitsStats {
  Rows<const float> target_max;
  Rows<const float> target_sumexp;
  Rows<const float> draft_max;
  Rows<const float> draft_sumexp;
  int64_t num_blocks;
};

// _compute_local_logits_stats_kernel, grid (num_logits, num_blocks).
//
// Program (row, block) looks at the tokens [block * block_size, (block + 1) *
// block_size) below vocab_size, as f32.
// Written at [row, block], but for bonus rows, which are left alone:
//   greedy: target_max, and target_argmax with the lowest token of the largest logit.
//   else: target_max and target_sumexp, the sum of exp(logit - max), 0 if max is -inf;
//     with draft logits draft_max and draft_sumexp, the same for the draft's step.
struct ComputeLocalLogitsStats {
  Rows<int64_t> target_argmax;
  Rows<float> target_max;
  Rows<float> target_sumexp;
  Rows<float> draft_max;
  Rows<float> draft_sumexp;
  TargetLogits target_logits;
  DraftLogits draft_logits;
  const int32_t* expanded_idx_mapping;  // [num_logits]
  const int32_t* expanded_local_pos;    // [num_logits]
  const float* temp;                    // [max_num_reqs]
  int64_t vocab_size;
  int64_t num_speculative_steps;
  int64_t block_size;
  int64_t num_logits;
  int64_t num_blocks;
};

// _rejection_kernel, grid (num_reqs).
//
// Decides how many drafts of each request are accepted, n. Step k's uniform number u is
// that of (seed, pos[row]), at least kUnitScale.
//   greedy: drafts are accepted up to the first that is not the target's argmax.
//   standard: up to the first with log p(draft) <= log(u) + log q(draft), where p is
//   the
//     target's and q the drafter's probability.
//   synthetic (synthetic_conditional_rates): up to the first with u >= rates[k]; greedy
//     requests too.
//   block verification (cumulative_log_p; not for greedy requests): n is the last k + 1
//     with u <= h, where with p_k = exp(cumulative_log_p[row]) h = p_k at the last
//     draft and else h = m / (m + 1 - p_k), or 1 where that denominator is not above 0;
//     m is the residual mass of the next row: the sum of local_residual_mass, or
//     without draft logits p_k * (1 - p(next draft)).
// Written:
//   rejected_steps[i] = n.
//   sampled[i, k]: greedy: the draft if accepted, and at the first that is not, the
//     target's argmax. Else the drafts of all steps that were looked at, accepted or
//     not, 0 for a negative one (block verification: every draft as it is).
//   target_logsumexp[i], draft_logsumexp[i]: of the row that was looked at last (block
//     verification: of the first rejected row); 0 for greedy requests, where there are
//     no drafts, where block verification accepts all, and the drafter's without draft
//     logits.
struct Rejection {
  Rows<int64_t> sampled;    // [num_reqs, num_speculative_steps + 1]
  int32_t* rejected_steps;  // [num_reqs]
  float* target_logsumexp;  // [num_reqs]
  float* draft_logsumexp;   // [num_reqs]
  TargetLogits target_logits;
  Rows<const int64_t> target_argmax;  // [num_logits, num_blocks]
  LogitsStats stats;
  IntList draft_sampled;  // [num_logits]
  DraftLogits draft_logits;
  const int32_t* cu_num_logits;              // [num_reqs + 1]
  const int32_t* idx_mapping;                // [num_reqs]
  const float* temp;                         // [max_num_reqs]
  const int64_t* seed;                       // [max_num_reqs]
  IntList pos;                               // [num_logits]
  const float* synthetic_conditional_rates;  // [num_speculative_steps] or null
  const float* cumulative_log_p;             // [num_logits] or null
  Rows<const float> local_residual_mass;     // [num_logits, num_blocks] or null
  int64_t num_reqs;
};

// _resample_kernel, grid (num_reqs, num_blocks).
//
// Samples by the Gumbel-max trick (see gumbel.h, with the seed and pos of the row) what
// follows the accepted drafts of a request, from the row after them. As logits serve
//   for a bonus row or in place of a negative draft: the target's;
//   without draft logits: the target's, but -inf for the rejected draft;
//   with them: log(max(p(x) * w - q(x), 0)), where w = 1, or in block verification the
//     exp(cumulative_log_p) of the last accepted draft if there is one.
// Program (req, block) looks at tokens [block * block_size, (block + 1) * block_size).
// Written at [req, block]: local_argmax, the token, and local_max, its value, f64 with
// use_fp64, else f32. Nothing is written for a greedy request that rejected a draft.
struct Resample {
  Rows<int64_t> local_argmax;  // [num_reqs, num_blocks]
  void* local_max;             // [num_reqs, num_blocks]
  int64_t local_max_stride;
  TargetLogits target_logits;
  const float* target_logsumexp;  // [num_reqs]
  DraftLogits draft_logits;
  const float* draft_logsumexp;         // [num_reqs]
  const int32_t* rejected_step;         // [num_reqs]
  const int32_t* cu_num_logits;         // [num_reqs + 1]
  const int32_t* expanded_idx_mapping;  // [num_logits]
  IntList draft_sampled;                // [num_logits]
  const float* temp;                    // [max_num_reqs]
  const int64_t* seed;                  // [max_num_reqs]
  IntList pos;                          // [num_logits]
  const float* cumulative_log_p;        // [num_logits] or null
  int64_t vocab_size;
  int64_t block_size;
  bool use_fp64;
  int64_t num_reqs;
  int64_t num_blocks;
};

// _insert_resampled_kernel, grid (num_reqs).
//
// Written: num_sampled[i], the number of accepted drafts, goes up by one, and
// sampled[i, old num_sampled[i]] becomes the token of the block with the largest value,
// the first one in a tie; a greedy request that rejected a draft has its token already.
struct InsertResampled {
  Rows<int64_t> sampled;             // [num_reqs, num_speculative_steps + 1]
  int32_t* num_sampled;              // [num_reqs]
  Rows<const int64_t> local_argmax;  // [num_reqs, num_blocks]
  const void* local_max;             // [num_reqs, num_blocks], f32 or f64
  int64_t local_max_stride;
  bool is_fp64;
  const int32_t* cu_num_logits;         // [num_reqs + 1]
  const int32_t* expanded_idx_mapping;  // [num_logits]
  const float* temp;                    // [max_num_reqs]
  int64_t num_reqs;
  int64_t num_blocks;
};

// _flatten_sampled_kernel, grid (num_reqs).
//
// Written: flat_sampled[cu_num_logits[i] + k] = sampled[i, k] for k < num_sampled[i].
struct FlattenSampled {
  int64_t* flat_sampled;         // [num_logits]
  Rows<const int64_t> sampled;   // [num_reqs, num_speculative_steps + 1]
  const int32_t* num_sampled;    // [num_reqs]
  const int32_t* cu_num_logits;  // [num_reqs + 1]
  int64_t num_reqs;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_REJECTION_H_
