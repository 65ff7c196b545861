// SPDX-License-Identifier: Apache-2.0
// The product of rows with a weight, in bf16, for CPUs that have no instruction for it.
#ifndef VLLM_KUNLUN_CONTRACTS_LINEAR_H_
#define VLLM_KUNLUN_CONTRACTS_LINEAR_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// Partial sums of each product.
inline constexpr int64_t kLinearSums = 64;

// Not Triton's. Upstream: torch.nn.functional.linear, which on a CPU with AVX2 and no
// more makes one product after the other (dot_with_fp32_arith,
// aten/src/ATen/native/cpu/ReducedPrecisionFloatGemvFastPathKernel.cpp).
//
// out[r, c] = round(the sum of x[r, k] * weight[c, k] over k + bias[c]). Partial sum s
// is that of every kLinearSums-th product from s on, in f32, one after the other; these
// are folded by halves: s and s + 32, s and s + 16, down to one. Products of two bf16
// are exact in f32, so that this gives torch's bits, whatever rows are beside a row.
// One program for each column.
struct Linear {
  uint16_t* out;           // [num_rows, columns], bf16 as all of them
  const uint16_t* x;       // [num_rows, depth]
  const uint16_t* weight;  // [columns, depth]
  const uint16_t* bias;    // [columns], or null
  int64_t num_rows;
  int64_t columns;
  int64_t depth;  // a multiple of kLinearSums
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_LINEAR_H_
