// SPDX-License-Identifier: Apache-2.0
// Rows of logits in the model's type, as f32. C++11, for the XPU's cores.
#ifndef VLLM_KUNLUN_XPU_LOGITS_H_
#define VLLM_KUNLUN_XPU_LOGITS_H_

#include "xpu/device.h"
#include "xpu/math.h"

namespace vllm_kunlun {
namespace xpu {

const int kLogits = 256;  // that are worked on at a time

// f32, or 16-bit numbers of either kind: one pointer at most is not null.
struct Logits {
  Gm<const float> f32;
  Gm<const unsigned short> f16;
  Gm<const unsigned short> bf16;

  __device__ Logits(Gm<const float> a, Gm<const unsigned short> b,
                    Gm<const unsigned short> c)
      : f32(a), f16(b), bf16(c) {}
  __device__ bool is_none() const {
    return f32 == nullptr && f16 == nullptr && bf16 == nullptr;
  }
};

// The bits of an f16 as f32: shifted into place, then scaled by the difference of the
// exponents' biases, which makes subnormals right too.
__device__ inline float float_of_half(UInt32 half) {
  const UInt32 magnitude = half << 13 & 0x0fffe000u;
  const float scaled = float_of(magnitude) * 5.19229686e+33f;
  const UInt32 special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
  return float_of(bits_of(scaled) | special | (half << 16 & 0x80000000u));
}

__device__ inline float one_logit(const Logits& logits, Int64 at) {
  if (logits.f32 != nullptr) return (logits.f32 + at)[0];
  if (logits.f16 != nullptr) return float_of_half((logits.f16 + at)[0]);
  const UInt32 bits = (logits.bf16 + at)[0];
  return float_of(bits << 16);
}

// Loads the logits [at, at + n), n <= kLogits, as f32.
__device__ inline void load_logits(const Logits& logits, Int64 at, int n,
                                   Lm<float> out) {
  if (logits.f32 != nullptr) {
    GM2LM(logits.f32 + at, out, 4 * n);
    return;
  }
  LmArray<unsigned short, kLogits> half;
  const bool is_f16 = logits.f16 != nullptr;
  GM2LM((is_f16 ? logits.f16 : logits.bf16) + at, half, 2 * n);
  for (int i = 0; i < n; ++i) {
    const UInt32 bits = half[i];
    out[i] = is_f16 ? float_of_half(bits) : float_of(bits << 16);
  }
}

// Walks along a row, loading logits while those before them are worked on.
class LogitsReader {
 public:
  // Begins with the logits [at, at + n), n <= kLogits.
  __device__ LogitsReader(const Logits& logits, Int64 at, int n)
      : logits_(logits), turn_(0), size_(n) {
    load(at);
  }

  // The logits that were asked for last, to be used until the next call. Asks for
  // [at, at + n) next; n may be 0.
  __device__ Lm<float> next(Int64 at, int n) {
    mfence_lm();
    const bool first = turn_ == 0;
    const int size = size_;
    turn_ = 1 - turn_;
    size_ = n;
    if (n > 0) load(at);
    Lm<float> out = even_;
    if (!first) out = odd_;
    if (logits_.f32 != nullptr) return out;
    out = even_;
    Lm<unsigned short> half = even_half_;
    if (!first) half = odd_half_;
    const bool is_f16 = logits_.f16 != nullptr;
    for (int i = 0; i < size; ++i) {
      const UInt32 bits = half[i];
      out[i] = is_f16 ? float_of_half(bits) : float_of(bits << 16);
    }
    return out;
  }

 private:
  __device__ void load(Int64 at) {
    if (logits_.f32 != nullptr) {
      Lm<float> to = even_;
      if (turn_ == 1) to = odd_;
      GM2LM_ASYNC(logits_.f32 + at, to, 4 * size_);
      return;
    }
    Lm<unsigned short> to = even_half_;
    if (turn_ == 1) to = odd_half_;
    GM2LM_ASYNC((logits_.f16 != nullptr ? logits_.f16 : logits_.bf16) + at, to,
                2 * size_);
  }

  Logits logits_;
  int turn_;
  int size_;
  LmArray<float, kLogits> even_;
  LmArray<float, kLogits> odd_;
  LmArray<unsigned short, kLogits> even_half_;
  LmArray<unsigned short, kLogits> odd_half_;
};

// The first of the largest of what it is shown, in order. NaN is never larger.
template <class T>
struct Largest {
  T value;
  int index;

  __device__ Largest(T least_value, int first) : value(least_value), index(first) {}
  __device__ void look(T x, int i) {
    if (x > value) {
      value = x;
      index = i;
    }
  }
};

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_LOGITS_H_
