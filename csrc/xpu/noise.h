// SPDX-License-Identifier: Apache-2.0
// contracts/philox.h and the Gumbel noise, with 32-bit arithmetic alone. C++11, for the
// XPU's cores.
#ifndef VLLM_KUNLUN_XPU_NOISE_H_
#define VLLM_KUNLUN_XPU_NOISE_H_

#include "xpu/language.h"
#include "xpu/math.h"

namespace vllm_kunlun {
namespace xpu {

// The high half of a product.
__device__ inline UInt32 high_product(UInt32 a, UInt32 b) {
  const UInt32 a0 = a & 0xffffu;
  const UInt32 a1 = a >> 16;
  const UInt32 b0 = b & 0xffffu;
  const UInt32 b1 = b >> 16;
  const UInt32 low = a0 * b0;
  const UInt32 cross = a1 * b0;
  const UInt32 middle = (low >> 16) + (cross & 0xffffu) + a0 * b1;
  // middle may have passed 2^32: a0 * b1 has at most 0xfffe0001 and the rest 0x1fffd.
  const UInt32 carry = middle < a0 * b1 ? 0x10000u : 0u;
  return a1 * b1 + (cross >> 16) + (middle >> 16) + carry;
}

struct Words {
  UInt32 w0, w1, w2, w3;
};

__device__ inline Words philox(UInt32 key0, UInt32 key1, UInt32 offset_low,
                               UInt32 offset_high) {
  Words c = {offset_low, offset_high, 0u, 0u};
  for (int round = 0; round < 10; ++round) {
    const Words next = {
        high_product(0xCD9E8D57u, c.w2) ^ c.w1 ^ key0, 0xCD9E8D57u * c.w2,
        high_product(0xD2511F53u, c.w0) ^ c.w3 ^ key1, 0xD2511F53u * c.w0};
    c = next;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

const float kUnitScale = 4.6566126e-10f;  // 2^-31 * (1 - 2^-24)

// Of a word, in [kUnitScale, 1).
__device__ inline float unit_float(UInt32 word) {
  const UInt32 mirrored = word ^ (0u - (word >> 31));
  const float u = static_cast<float>(static_cast<int>(mirrored)) * kUnitScale;
  return u > kUnitScale ? u : kUnitScale;
}

// The first word of a seed and a row's position of 32 or 64 bits (see item()).
__device__ inline UInt32 random_word(Gm<const Int64> seeds, int req,
                                     Gm<const Int32> pos32, Gm<const Int64> pos64,
                                     Gm<const Int64> at, int row) {
  if (at != nullptr) row = static_cast<int>(at[row]);
  const UInt64 seed = static_cast<UInt64>(seeds[req]);
  UInt32 low;
  UInt32 high = 0u;
  if (pos64 != nullptr) {
    const UInt64 offset = static_cast<UInt64>(pos64[row]);
    low = static_cast<UInt32>(offset);
    high = static_cast<UInt32>(offset >> 32);
  } else {
    low = static_cast<UInt32>(pos32[row]);
  }
  return philox(static_cast<UInt32>(seed), static_cast<UInt32>(seed >> 32), low, high)
      .w0;
}

__device__ inline float gumbel_noise(UInt32 seed, int token) {
  const UInt32 word = philox(seed, 0u, static_cast<UInt32>(token), 0u).w0;
  return -log_f32(-log_of_rest(unit_float(word)));
}

__device__ inline double gumbel_noise_f64(UInt32 seed, int token) {
  const Words w = philox(seed, 0u, static_cast<UInt32>(token), 0u);
  const double unit = 5.42101086242752217e-20;  // 2^-64
  double u = (static_cast<double>(w.w1) * 4294967296.0 + w.w0) * unit;
  // The smallest normal number in the place of 0.
  u = u < 2.2250738585072014e-308 ? 2.2250738585072014e-308 : u;
  return -log_f64(-log_f64(u));
}

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_NOISE_H_
