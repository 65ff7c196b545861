// SPDX-License-Identifier: Apache-2.0
// Small per-request bookkeeping, by upstream's source file:
//   vllm/v1/worker/gpu/input_batch.py: expand_idx_mapping
#ifndef VLLM_KUNLUN_CONTRACTS_REQUESTS_H_
#define VLLM_KUNLUN_CONTRACTS_REQUESTS_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _expand_idx_mapping_kernel, grid (num_reqs).
//
// Tells, for each row of logits, which request it belongs to and which of the request's
// rows it is, from 0.
// Written: [cu_num_logits[0], cu_num_logits[num_reqs]) of both outputs. Upstream drops
// rows beyond its block of next_power_of_2(num_speculative_steps + 1) per request, more
// than a request can have; here there is no such limit.
struct ExpandIdxMapping {
  const int32_t* idx_mapping;     // [num_reqs], copied as it is
  int32_t* expanded_idx_mapping;  // [num_logits]
  int32_t* expanded_local_pos;    // [num_logits]
  const int32_t* cu_num_logits;   // [num_reqs + 1], ascending
  int64_t num_reqs;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_REQUESTS_H_
