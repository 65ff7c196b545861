// SPDX-License-Identifier: Apache-2.0
// Rounding of f32 to the types that models compute in, to the nearest, ties to even.
// C++11, for the XPU's cores.
#ifndef VLLM_KUNLUN_XPU_ROUNDING_H_
#define VLLM_KUNLUN_XPU_ROUNDING_H_

#include "xpu/logits.h"

namespace vllm_kunlun {
namespace xpu {

__device__ inline float round_to_bfloat(float x) {
  if (x != x) return x;
  const UInt32 bits = bits_of(x);
  return float_of((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}

__device__ inline float round_to_half(float x) {
  if (x != x) return x;
  const UInt32 bits = bits_of(x);
  const UInt32 sign = bits & 0x80000000u;
  const float magnitude = float_of(bits & 0x7fffffffu);
  if (magnitude >= 65520.0f) return float_of(sign | 0x7f800000u);
  if (magnitude < 6.103515625e-05f) {
    // Subnormal: a multiple of 2^-24, which is the last place of numbers around this.
    const float shift = 0.75f;
    return float_of(sign | bits_of((magnitude + shift) - shift));
  }
  return float_of((bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u);
}

// To the type of these logits.
__device__ inline float round_as(const Logits& type, float x) {
  if (type.f16 != nullptr) return round_to_half(x);
  if (type.bf16 != nullptr) return round_to_bfloat(x);
  return x;
}

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_ROUNDING_H_
