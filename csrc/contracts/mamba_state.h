// SPDX-License-Identifier: Apache-2.0
// The states of Mamba layers in a cache whose blocks are aligned with the tokens
// (`mamba_cache_mode="align"`). Upstream: vllm/v1/worker/mamba_utils.py
#ifndef VLLM_KUNLUN_CONTRACTS_MAMBA_STATE_H_
#define VLLM_KUNLUN_CONTRACTS_MAMBA_STATE_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// Where the states are: one entry per layer and kind of state. A request's state is in
// the block whose id is in a column of the request's row in the block table of the
// layer's group.
struct MambaStates {
  TableOfTables block_tables;     // [num_groups]
  int64_t block_table_stride;     // of all groups
  const int64_t* base_addresses;  // [num_states], of block 0
  const int64_t* block_strides;   // [num_states], bytes from one block to the next
  const int32_t* element_sizes;   // [num_states], bytes
  const int64_t* inner_sizes;     // [num_states], elements: of a token of a convolution
                                  // (1 with dim_first), or of all of another state
  const int32_t* conv_widths;     // [num_states], tokens; 0: not of a convolution
  const int32_t* groups;          // [num_states]
  const int32_t* row_counts;      // [num_states], only with dim_first
  const int64_t* row_strides;     // [num_states], bytes, only with dim_first
  int64_t num_states;
  bool dim_first;  // a convolution's block is [row_counts, conv_widths] with rows
                   // row_strides apart, instead of [conv_widths, inner_sizes]
};

// _copy_mamba_state_block, a part of the two kernels below: moves a state from column
// `source` to column `target`, as it was after `bias` more tokens.
//  * Of a convolution, the window that is `bias` tokens later: tokens [bias, width) of
//    the source block become the tokens [0, width - bias) of the target block. Nothing
//    where bias >= width.
//  * Any other state has a column for each draft: column `source + bias` is copied.
// Source and target may be one block. The bytes behind a state in its block, and the
// last `bias` tokens of a window, keep what they hold.

// preprocess_mamba_align_fused_kernel, any grid that covers num_reqs.
//
// Before a step. With r = idx_mapping[i], written:
//  * src_col[r] = state_idx[r] and src_off[r] = max(num_accepted[r] - 1, 0), what the
//    step before has left: the `source` and `bias` of the move below;
//  * state_idx[r], the column of the last token of this step:
//    ceil((num_computed_tokens[r] + query length) / mamba_block_size) - 1;
//  * num_accepted[r] = 1 where state_idx[r] was not negative and has changed.
struct PreprocessMambaAlign {
  const int32_t* idx_mapping;          // [num_reqs], all different
  int32_t* state_idx;                  // [max_num_reqs], -1: no state yet
  const int32_t* num_computed_tokens;  // [max_num_reqs]
  const int32_t* query_start_loc;      // [num_reqs + 1]
  int32_t* num_accepted;               // [max_num_reqs]
  int32_t* src_col;                    // [max_num_reqs]
  int32_t* src_off;                    // [max_num_reqs]
  int64_t num_reqs;
  int64_t mamba_block_size;
};

// precopy_mamba_align_fused_kernel, grid (>= num_reqs, num_states).
//
// Before a step, the move from src_col[r] to state_idx[r] with bias token_bias[r], for
// r = idx_mapping[i] and row i of the block tables. Requests with a negative r or
// src_col[r], or that stay in their column, are skipped.
// Written: the states. No request's target is another one's source or target.
struct PrecopyMambaAlign {
  const int32_t* state_idx;    // [max_num_reqs]
  const int32_t* src_col;      // [max_num_reqs]
  const int32_t* token_bias;   // [max_num_reqs]
  const int32_t* idx_mapping;  // [num_reqs]
  int64_t num_reqs;
  MambaStates states;
};

// postprocess_mamba_fused_kernel, grid (>= num_reqs, num_states).
//
// After a step: if its accepted tokens reach or pass a multiple of block_size, the move
// of the state as it was there, to the column that ends there. With r = idx_mapping[i]
// (or i, where that is null; negative: skipped) and
//   computed = num_computed_tokens[r], which counts the step already, or, with
//     num_scheduled_tokens, num_computed_tokens[r] + num_scheduled_tokens[r] -
//     num_draft_tokens[r] + num_accepted[r] - 1,
//   running = computed - num_accepted[r] + 1,
//   aligned = the largest multiple of block_size that is <= computed,
// it is done if aligned >= running: from column state_idx[r] to aligned / block_size -
// 1, with bias aligned - running, for row i of the block tables.
// Written: the states; accepted_out[r] = 1 where a move's columns are the same.
// accepted_out may be num_accepted itself, and is written after all of the moves: two
// passes. Upstream does it in one (docs/deviations.md). No request's target is another
// one's source or target.
struct PostprocessMamba {
  const int32_t* num_accepted;          // [max_num_reqs]
  const int32_t* state_idx;             // [max_num_reqs]
  const int32_t* num_scheduled_tokens;  // [max_num_reqs] or null
  const int32_t* num_computed_tokens;   // [max_num_reqs]
  const int32_t* num_draft_tokens;      // [max_num_reqs], only with num_scheduled
  int32_t* accepted_out;                // [max_num_reqs]
  const int32_t* idx_mapping;           // [num_reqs] or null
  int64_t num_reqs;
  int64_t block_size;
  MambaStates states;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_MAMBA_STATE_H_
