// SPDX-License-Identifier: Apache-2.0
// The types that models compute in, to and from f32. Without branches, so that a loop
// around them becomes vector code; inlined, since each version of a caller has to have
// them compiled for its own processor.
#ifndef VLLM_KUNLUN_HOST_FLOATS_H_
#define VLLM_KUNLUN_HOST_FLOATS_H_

#include <cstdint>

#include "host/elementary.h"

namespace vllm_kunlun::host {

#define VLLM_KUNLUN_INLINE __attribute__((always_inline)) static inline

struct F32 {
  using Word = float;

  VLLM_KUNLUN_INLINE float load(Word x) { return x; }
  VLLM_KUNLUN_INLINE Word store(float x) { return x; }
};

struct BF16 {
  using Word = uint16_t;

  VLLM_KUNLUN_INLINE float load(Word x) { return bit_cast<float>(uint32_t{x} << 16); }

  // To the nearest, to the even one of two.
  VLLM_KUNLUN_INLINE Word store(float x) {
    const uint32_t bits = bit_cast<uint32_t>(x);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    const uint32_t nan = bits | 0x400000;  // stays one where the low bits are lost
    return static_cast<Word>((x == x ? rounded : nan) >> 16);
  }
};

struct F16 {
  using Word = uint16_t;

  // Shifted into place, then scaled by the difference of the exponents' biases, which
  // makes subnormals right too.
  VLLM_KUNLUN_INLINE float load(Word half) {
    const uint32_t magnitude = uint32_t{half} << 13 & 0x0fffe000;
    const float scaled = bit_cast<float>(magnitude) * 0x1p112f;
    const uint32_t special = magnitude >= 0x0f800000 ? 0x7f800000 : 0;
    const uint32_t sign = uint32_t{half} << 16 & 0x80000000;
    return bit_cast<float>(bit_cast<uint32_t>(scaled) | special | sign);
  }

  // To the nearest, to the even one of two; inf from 65520 on.
  VLLM_KUNLUN_INLINE Word store(float x) {
    const uint32_t bits = bit_cast<uint32_t>(x);
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t normal =
        (magnitude + 0xfff + (magnitude >> 13 & 1) - (uint32_t{112} << 23)) >> 13;
    // A subnormal is a multiple of 2^-24, the last place of the numbers from 1/2 on.
    const uint32_t small = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) -
                           bit_cast<uint32_t>(0.5f);
    uint32_t half = magnitude < 0x38800000 ? small : normal;
    half = magnitude >= 0x477ff000 ? 0x7c00 : half;
    half = magnitude > 0x7f800000 ? 0x7e00 : half;
    return static_cast<Word>(half | (bits >> 16 & 0x8000));
  }
};

#undef VLLM_KUNLUN_INLINE

// x as the nearest number of a type.
template <class T>
__attribute__((always_inline)) inline float nearest(float x) {
  return T::load(T::store(x));
}

}  // namespace vllm_kunlun::host

#endif  // VLLM_KUNLUN_HOST_FLOATS_H_
