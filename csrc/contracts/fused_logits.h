// SPDX-License-Identifier: Apache-2.0
// All that a request's parameters do to its logits before it is sampled, in one launch.
// Stands for upstream's copy to f32 and the kernels apply_grammar_bitmask, bias,
// penalties, bad_words, temperature and min_p, launched in this order.
#ifndef VLLM_KUNLUN_CONTRACTS_FUSED_LOGITS_H_
#define VLLM_KUNLUN_CONTRACTS_FUSED_LOGITS_H_

#include "contracts/penalties.h"
#include "contracts/token_mask.h"
#include "contracts/types.h"

namespace vllm_kunlun {

// Grid (num_rows).
//
// Row r of `out` becomes row r of `logits` as f32, then what the single kernels make of
// it, to the bit, in the order of the fields below. A field that is null is left out.
// Nothing is read from memory twice but for min_p's sake: what lies below its threshold
// is known only at a row's end.
//
// Of the contracts inside only the tables of state rows are used: logits, rows, places
// and positions are those of this one. A request's rows are the last ones of its input:
// the tokens at logits_indices of its rows are neighbours.
// Written: out[row, 0..vocab_size).
struct FusedLogits {
  float* out;  // [num_rows, >= vocab_size]
  int64_t out_stride;
  const void* logits;  // [num_rows, >= vocab_size]; null: what is in `out`
  FloatType logits_type;
  int64_t logits_stride;
  int64_t vocab_size;
  const int32_t* expanded_idx_mapping;  // [num_rows], >= 0
  const int32_t* expanded_local_pos;    // [num_rows], in [0, row]
  const int64_t* logits_indices;        // [num_rows], into the next two
  const int32_t* input_ids;             // [num_tokens]
  const int64_t* positions;             // [num_tokens]
  const int32_t* bitmask;               // [num_masks, bitmask_width] or null
  int64_t bitmask_stride;
  int64_t bitmask_width;
  const int32_t* bitmask_rows;  // [num_rows], the row's mask, or negative: none
  const Bias* bias;
  const Penalties* penalties;
  const BadWords* bad_words;
  const float* temperature;  // [max_num_reqs]
  const float* min_p;        // [max_num_reqs]
  int64_t num_rows;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_FUSED_LOGITS_H_
