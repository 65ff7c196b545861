// SPDX-License-Identifier: Apache-2.0
// What a request's temperature and min_p do to its logits.
// Upstream: vllm/v1/worker/gpu/sample/gumbel.py, min_p.py
#ifndef VLLM_KUNLUN_CONTRACTS_SAMPLING_H_
#define VLLM_KUNLUN_CONTRACTS_SAMPLING_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _temperature_kernel, grid (num_rows, num_blocks), which cover vocab_size.
//
// Divides each row of logits by its request's temperature: a true f32 division, not a
// multiplication by the reciprocal.
// Written: logits[row, 0..vocab_size) of rows whose temperature is neither 0 nor 1.
struct Temperature {
  float* logits;  // [num_rows, >= vocab_size]
  int64_t logits_stride;
  const int32_t* expanded_idx_mapping;  // [num_rows], >= 0
  const float* temperature;             // [max_num_reqs]
  int64_t vocab_size;
  int64_t block_size;
  int64_t num_rows;
  int64_t num_blocks;
};

// _min_p_kernel, grid (num_rows).
//
// Sets to -inf what lies below max + log(min_p) of its row, which is to have less than
// min_p times the probability of the likeliest token. A NaN never is the maximum and
// never is below.
// Written: logits[row, 0..vocab_size) of rows whose min_p is not 0.
struct MinP {
  float* logits;  // [num_rows, >= vocab_size]
  int64_t logits_stride;
  const int32_t* expanded_idx_mapping;  // [num_rows], >= 0
  const float* min_p;                   // [max_num_reqs]
  int64_t vocab_size;
  int64_t num_rows;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_SAMPLING_H_
