// SPDX-License-Identifier: Apache-2.0
// What block verification needs before _rejection_kernel; the terms are those of
// rejection.h. Upstream: vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py
#ifndef VLLM_KUNLUN_CONTRACTS_BLOCK_VERIFICATION_H_
#define VLLM_KUNLUN_CONTRACTS_BLOCK_VERIFICATION_H_

#include "contracts/rejection.h"
#include "contracts/types.h"

namespace vllm_kunlun {

// _compute_cumulative_log_p_kernel, grid (num_reqs).
//
// Written, for the rows of a request that is not greedy, but for its bonus row: the
// running joint ratio of its drafts, log p_k = min(log p_(k-1) + log p(draft) -
// log q(draft), 0), from log p_(-1) = 0. It is -inf from a negative draft on, where
// upstream reads before the row of logits (docs/deviations.md).
struct ComputeCumulativeLogP {
  float* cumulative_log_p;  // [num_logits]
  TargetLogits target_logits;
  LogitsStats stats;
  IntList draft_sampled;  // [num_logits]
  DraftLogits draft_logits;
  const int32_t* cu_num_logits;  // [num_reqs + 1]
  const int32_t* idx_mapping;    // [num_reqs]
  const float* temp;             // [max_num_reqs]
  int64_t num_reqs;
};

// _compute_local_residual_mass_kernel, grid (num_logits, num_blocks).
//
// Program (row, block) looks at the tokens [block * block_size, (block + 1) *
// block_size) below vocab_size.
// Written at [row, block]: the sum of max(exp(cumulative_log_p[row - 1]) * p(x) - q(x),
// 0); nothing for the first row of a request, for bonus rows and for greedy requests.
struct ComputeLocalResidualMass {
  Rows<float> local_residual_mass;  // [num_logits, num_blocks]
  const float* cumulative_log_p;    // [num_logits]
  TargetLogits target_logits;
  LogitsStats stats;
  DraftLogits draft_logits;             // never null
  const int32_t* expanded_idx_mapping;  // [num_logits]
  const int32_t* expanded_local_pos;    // [num_logits]
  const float* temp;                    // [max_num_reqs]
  int64_t vocab_size;
  int64_t num_speculative_steps;
  int64_t block_size;
  int64_t num_logits;
  int64_t num_blocks;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_BLOCK_VERIFICATION_H_
