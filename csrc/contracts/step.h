// SPDX-License-Identifier: Apache-2.0
// A step's control plane in three launches: what upstream's V2 runner
// (vllm/v1/worker/gpu/model_runner.py, prepare_inputs and prepare_attn) does in some
// forty operations.
#ifndef VLLM_KUNLUN_CONTRACTS_STEP_H_
#define VLLM_KUNLUN_CONTRACTS_STEP_H_

#include "contracts/block_table.h"
#include "contracts/input_batch.h"
#include "contracts/requests.h"
#include "contracts/staged_write.h"
#include "contracts/types.h"

namespace vllm_kunlun {

// The batch's layout, computed on the host from what the scheduler says. All of it is
// host memory, whatever the device.
//
// Requests come in the scheduler's order and go out with those of first_num_tokens
// ahead, the rest by their number of tokens, so that decodes precede prefills; equals
// keep their order.
// Written: the first num_reqs entries of every output, one more of the two sums; beyond
// them query_start_loc repeats its last value to [max_num_reqs], and seq_len_bound is 0
// in [num_reqs, num_reqs_padded). order[i] is the place in the scheduler's order of
// request i. By row, num_computed_tokens takes over what the scheduler says, and
// computed_prefill follows it: what is computed, up to the prefill's length.
struct PlanStep {
  const int32_t* rows;              // [num_reqs], the requests' rows of the state
  const int32_t* num_tokens;        // [num_reqs], scheduled
  const int32_t* num_drafts;        // [num_reqs], null where there are none
  const int32_t* computed;          // [num_reqs], or -1: as in the state
  const int32_t* prefill_len;       // [max_num_reqs], by row
  int32_t* computed_prefill;        // [max_num_reqs], by row; also written
  int32_t* num_computed_tokens;     // [max_num_reqs], by row: an upper bound
  int32_t* order;                   // [max_num_reqs]
  int32_t* idx_mapping;             // [max_num_reqs]
  int32_t* cu_num_logits;           // [max_num_reqs + 1]
  int32_t* query_start_loc;         // [max_num_reqs + 1]
  int32_t* batch_num_tokens;        // [max_num_reqs]
  int32_t* batch_num_drafts;        // [max_num_reqs]
  int32_t* batch_prefill_len;       // [max_num_reqs]
  int32_t* batch_computed_prefill;  // [max_num_reqs]
  int32_t* batch_computed;          // [max_num_reqs]
  int32_t* seq_len_bound;           // [max_num_reqs]
  bool* is_prefilling;              // [max_num_reqs]
  int32_t* summary;                 // [kPlanSummary]
  int64_t first_num_tokens;         // 1 orders by the number of tokens alone
  int64_t num_new_sampled;          // logits of a request beside those of its drafts
  int64_t num_reqs;
  int64_t num_reqs_padded;
  int64_t max_num_reqs;
};

// What a plan's summary says: whether the order differs from the scheduler's, the most
// tokens and the largest seq_len_bound of a request, and how many are prefilling.
inline constexpr int64_t kPlanSummary = 4;

// What the model reads: the four launches that make it, one after the other for each
// request. Programs: num_reqs + 1, the last of which pads seq_lens.
struct PrepareStep {
  PreparePrefillInputs prefill;
  PreparePosSeqLens positions;
  CombineSampledAndDraftTokens tokens;
  ExpandIdxMapping logits;
};

// Staged writes to the block tables, then the batch's rows of them, then the slots of
// all tokens, for all KV-cache groups. A write stays in its row.
//
// A row of the batch's table that showed the same request in the last step keeps the
// blocks it has, and only new ones are copied: kept_req and kept_blocks say what each
// row shows. A write from column 0 on (a new request) makes its rows forget.
// Written: what the three launches write, and kept_req and kept_blocks of each row in
// [0, num_rows); a padding row shows request -1.
struct PrepareBlockTables {
  ApplyWrite writes;
  GatherBlockTables gather;
  ComputeSlotMappings slots;
  int32_t* kept_req;     // [num_groups, kept_stride]
  int32_t* kept_blocks;  // [num_groups, kept_stride]
  int64_t kept_stride;
};

// The drafts of a step, into the rows of the requests they are for.
struct StoreDrafts {
  int64_t* draft_tokens;  // [max_num_reqs, >= num_steps]
  int64_t draft_tokens_stride;
  const int32_t* idx_mapping;  // [num_reqs], all different
  const int64_t* drafts;       // [num_reqs, num_steps]
  int64_t drafts_stride;
  int64_t num_steps;
  int64_t num_reqs;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_STEP_H_
