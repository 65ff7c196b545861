// SPDX-License-Identifier: Apache-2.0
// What a decoder layer does between its matrix products and its attention, in f32 or
// bf16.
#ifndef VLLM_KUNLUN_CONTRACTS_LAYERS_H_
#define VLLM_KUNLUN_CONTRACTS_LAYERS_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// Not Triton's. Upstream: rms_norm and fused_add_rms_norm, vllm/ir/ops/layernorm.py, of
// which each is ten torch kernels on a CPU.
//
// Row r of `out` becomes round(round(s / sqrt(mean(s^2) + epsilon)) * weight), where s
// is row r of x in f32, plus that of `residual` where there is one, which becomes
// round(s). Round is to `type`. Without a weight there is the inner one alone. Squares
// are added up as torch does it, whose vectors have so many f32, so that all bits are
// upstream's.
//
// `out` may be x. One program for each row.
struct RmsNorm {
  void* out;           // [num_rows, hidden]
  const void* x;       // [num_rows, hidden]
  void* residual;      // [num_rows, hidden], or null; written
  const void* weight;  // [hidden], or null
  FloatType type;      // of all of them
  int64_t num_rows;
  int64_t hidden;
  float epsilon;
  int64_t lanes;  // 4, 8 or 16
};

// Not Triton's. Upstream: SiluAndMul.forward_native,
// vllm/model_executor/layers/activation.py, two torch kernels and a row in between.
//
// out[r, i] = round(round(g / (1 + exp(-g))) * x[r, width + i]), g = x[r, i], where exp
// is SLEEF's, as in torch. One program for each row.
struct SiluAndMul {
  void* out;       // [num_rows, width]
  const void* x;   // [num_rows, 2 * width]
  FloatType type;  // of both
  int64_t num_rows;
  int64_t width;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_LAYERS_H_
