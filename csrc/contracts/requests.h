// SPDX-License-Identifier: Apache-2.0
// Small per-request bookkeeping, by upstream's source file:
//   vllm/v1/worker/gpu/input_batch.py: expand_idx_mapping,
//     post_update_num_computed_tokens
//   vllm/v1/worker/gpu/cp_utils.py: dcp_local_seq_lens
//   vllm/v1/worker/gpu/model_states/mamba_hybrid.py: scatter_num_accepted
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

// _post_update_num_computed_tokens_kernel, grid (num_reqs).
//
// Written: num_computed_tokens[idx_mapping[i]] goes up by the request's query length.
struct PostUpdateNumComputedTokens {
  const int32_t* idx_mapping;      // [num_reqs], all different
  int32_t* num_computed_tokens;    // [max_num_reqs]
  const int32_t* query_start_loc;  // [num_reqs + 1]
  int64_t num_reqs;
};

// _dcp_local_seq_lens_kernel, any grid.
//
// How many of a sequence's tokens this rank holds, where runs of cp_interleave tokens
// are dealt out to the dcp_size ranks in turn.
// Written: out[0 .. num_reqs), and 0 in out[num_reqs .. max_num_reqs), the padding.
struct DcpLocalSeqLens {
  int32_t* out;             // [max_num_reqs]
  const int32_t* seq_lens;  // [num_reqs]
  int64_t dcp_size;
  int64_t dcp_rank;
  int64_t cp_interleave;
  int64_t num_reqs;
  int64_t max_num_reqs;
};

// _scatter_num_accepted_kernel, grid (num_reqs).
//
// Written: num_accepted[idx_mapping[i]] = max(num_sampled[i], 1). A negative index
// means that the request is not this rank's to update: it is skipped.
struct ScatterNumAccepted {
  const int32_t* idx_mapping;  // [num_reqs], all different where not negative
  const int32_t* num_sampled;  // [num_reqs]
  int32_t* num_accepted;       // [max_num_reqs]
  int64_t num_reqs;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_REQUESTS_H_
