// SPDX-License-Identifier: Apache-2.0
// Positions of several dimensions. Upstream: vllm/v1/worker/gpu/mm/rope.py
#ifndef VLLM_KUNLUN_CONTRACTS_ROPE_H_
#define VLLM_KUNLUN_CONTRACTS_ROPE_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _prepare_rope_positions_kernel, grid (num_reqs).
//
// The token at place p = num_computed_tokens + offset of a request is at position
// prefill_positions[request, dim, p] while p < prefill_len, and else at p +
// prefill_delta, in all dimensions.
// Where upstream differs (docs/deviations.md): it looks at the request's first token
// and treats all of its query alike, so that tokens past the prefill read what is left
// there. Written: positions[dim, query_start_loc[i] .. query_start_loc[i + 1]) of each
// request.
struct PrepareRopePositions {
  int64_t* positions;  // [num_dims, >= num_tokens]
  int64_t positions_stride;
  const int32_t* prefill_positions;  // [max_num_reqs, num_dims, max_model_len]
  int64_t prefill_req_stride;
  int64_t prefill_dim_stride;
  const int32_t* prefill_delta;        // [max_num_reqs]
  const int32_t* idx_mapping;          // [num_reqs]
  const int32_t* query_start_loc;      // [num_reqs + 1]
  const int32_t* prefill_lens;         // [max_num_reqs]
  const int32_t* num_computed_tokens;  // [max_num_reqs]
  int64_t num_dims;
  int64_t num_reqs;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_ROPE_H_
