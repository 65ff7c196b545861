// SPDX-License-Identifier: Apache-2.0
// Inputs of the drafters that go token by token (EAGLE, MTP).
// Upstream: vllm/v1/worker/gpu/spec_decode/autoregressive/speculator.py
#ifndef VLLM_KUNLUN_CONTRACTS_AUTOREGRESSIVE_H_
#define VLLM_KUNLUN_CONTRACTS_AUTOREGRESSIVE_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _prepare_prefill_inputs_kernel, grid (num_reqs); op prepare_draft_prefill_inputs.
//
// The drafter's first pass: it has the target's rows, each with the token after the
// target's. The last of the rows that were not rejected gets the token sampled last, or
// while the prompt is still being prefilled, the prompt's next one.
// Written, for each request with rows [start, end) in the target's batch and length =
// end - start - num_rejected:
//   input_ids, positions[start .. start + length); what is rejected keeps its content.
//   last_token_indices = start + length - 1; query_start_loc = start; seq_lens = the
//     target's, rejected rows included.
// and by the program of the last request:
//   current_step = 0; query_start_loc[num_reqs .. max_num_reqs] = its end; seq_lens and
//   last_token_indices[num_reqs .. max_num_reqs) = 0.
struct PrepareDraftPrefillInputs {
  int64_t* last_token_indices;         // [max_num_reqs]
  int64_t* current_step;               // []
  int32_t* input_ids;                  // [max_num_tokens]
  int64_t* positions;                  // [max_num_tokens]
  int32_t* query_start_loc;            // [max_num_reqs + 1]
  int32_t* seq_lens;                   // [max_num_reqs]
  const int32_t* target_input_ids;     // [num_tokens]
  const int64_t* target_positions;     // [num_tokens]
  const int32_t* idx_mapping;          // [num_reqs]
  const int64_t* last_sampled;         // [max_num_reqs]
  const int32_t* next_prefill_tokens;  // [max_num_reqs]
  const int32_t* num_sampled;          // [num_reqs]
  const int32_t* num_rejected;         // [num_reqs], less than the request's rows
  const int32_t* target_query_start;   // [num_reqs + 1]
  const int32_t* target_seq_lens;      // [num_reqs]
  int64_t max_num_reqs;
  int64_t num_reqs;
};

// _prepare_decode_inputs_kernel, grid (num_reqs + 1).
//
// The drafter's second pass has one row per request, with its first draft.
// Written: input_ids[i]; with advance_draft_positions positions[i] + 1, at most
// max_model_len - 1, and seq_lens[i] = the target's without rejected rows + 1, at most
// max_model_len; and by the last program query_start_loc[j] = min(j, num_reqs) for j in
// [0, max_num_reqs] and seq_lens[num_reqs .. max_num_reqs) = 0.
struct PrepareDecodeInputs {
  const int64_t* draft_tokens;  // [num_reqs]
  int64_t draft_tokens_stride;
  const int32_t* target_seq_lens;  // [num_reqs]
  const int32_t* num_rejected;     // [num_reqs]
  int32_t* input_ids;              // [max_num_tokens]
  int64_t* positions;              // [max_num_tokens]
  int32_t* query_start_loc;        // [max_num_reqs + 1]
  int32_t* seq_lens;               // [max_num_reqs]
  int64_t max_model_len;
  int64_t max_num_reqs;
  bool advance_draft_positions;
  int64_t num_programs;  // num_reqs + 1
};

// _update_draft_inputs_kernel, grid (num_reqs).
//
// Written: output_draft_tokens[i, step], with step = current_step[0]; and, but after
// the last step (num_speculative_steps - 1), the next pass's input_ids[i], its hidden
// states (num_bytes per row), and with advance_draft_positions positions[i] + 1, at
// most max_model_len - 1, and seq_lens[i] + 1, at most max_model_len.
struct UpdateDraftInputs {
  int64_t* output_draft_tokens;  // [max_num_reqs, num_speculative_steps]
  int64_t output_draft_tokens_stride;
  void* next_hidden_states;  // [max_num_reqs, hidden_size]
  int64_t next_hidden_states_row_bytes;
  int32_t* input_ids;           // [max_num_tokens]
  int64_t* positions;           // [max_num_tokens]
  int32_t* seq_lens;            // [max_num_reqs]
  const int64_t* draft_tokens;  // [num_reqs]
  const int64_t* current_step;  // []
  const void* hidden_states;    // [num_reqs, hidden_size]
  int64_t hidden_states_row_bytes;
  int64_t num_bytes;
  int64_t max_model_len;
  int64_t num_speculative_steps;
  bool advance_draft_positions;
  int64_t num_reqs;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_AUTOREGRESSIVE_H_
