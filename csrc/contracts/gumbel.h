// SPDX-License-Identifier: Apache-2.0
// Sampling by the Gumbel-max trick. Upstream: vllm/v1/worker/gpu/sample/gumbel.py
#ifndef VLLM_KUNLUN_CONTRACTS_GUMBEL_H_
#define VLLM_KUNLUN_CONTRACTS_GUMBEL_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _gumbel_sample_kernel, grid (num_tokens, num_blocks).
//
// Each row of logits belongs to the state row expanded_idx_mapping[row]; a negative one
// means: temperature 0, no store of processed logits. Program (row, block) looks at the
// tokens [block * block_size, (block + 1) * block_size) that are below vocab_size, as
// f32 whatever the logits' type:
//   1. With apply_temperature, logits are divided by the row's temperature unless that
//      is 0 (a true division).
//   2. They are stored as processed_logits[state row, col], where given: at
//      state row * stride + col * vocab_size + token. Without a col tensor col is 0,
//      with per_token_col it is col[row], else col[0].
//   3. If the temperature is not 0, each token gets its noise. With s the first Philox
//      word of (seeds[state row], pos[row]) and u the uniform draw of (s, token):
//        f32: -log(-log1p(-max(u, kUnitScale)));  f64: -log(-log(u)), logits as f64.
//   4. The largest is found; ties go to the lowest token. NaN is never the largest; if
//      nothing is above -inf the result is the block's first token.
// Written: local_argmax[row, block], the token; local_max[row, block], its value, f64
// with use_fp64, else f32; and the processed logits.
struct GumbelSample {
  int64_t* local_argmax;  // [num_tokens, >= num_blocks]
  int64_t local_argmax_stride;
  void* local_max;  // [num_tokens, >= num_blocks]
  int64_t local_max_stride;
  float* processed_logits;  // [max_num_reqs, steps, vocab_size] or null
  int64_t processed_logits_stride;
  IntList processed_logits_col;  // [], [num_tokens] or null
  const void* logits;            // [num_tokens, >= vocab_size]
  FloatType logits_type;
  int64_t logits_stride;                // 0 where all rows are one
  const int32_t* expanded_idx_mapping;  // [num_tokens]
  const int64_t* seeds;                 // [max_num_reqs]
  IntList pos;                          // [num_tokens]
  const float* temp;                    // [max_num_reqs]
  int64_t vocab_size;
  int64_t block_size;
  bool apply_temperature;
  bool use_fp64;
  bool per_token_col;
  int64_t num_tokens;
  int64_t num_blocks;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_GUMBEL_H_
