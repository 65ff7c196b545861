// SPDX-License-Identifier: Apache-2.0
// The random numbers of upstream's kernels: Triton's tl.randint and tl.rand, which are
// Philox4x32-10. Part of the contract: a seed gives the same tokens on every device.
#ifndef VLLM_KUNLUN_CONTRACTS_PHILOX_H_
#define VLLM_KUNLUN_CONTRACTS_PHILOX_H_

#include <cstdint>

namespace vllm_kunlun {

struct PhiloxWords {
  uint32_t w0, w1, w2, w3;
};

// Recursion, not a loop: compilers vectorise a loop over tokens only around straight
// code.
template <int kRounds>
[[gnu::always_inline]] inline PhiloxWords philox_rounds(PhiloxWords c, uint32_t k0,
                                                        uint32_t k1) {
  if constexpr (kRounds == 0) {
    return c;
  } else {
    const uint64_t p0 = uint64_t{0xD2511F53} * c.w0;
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c.w2;
    const PhiloxWords next{
        static_cast<uint32_t>(p1 >> 32) ^ c.w1 ^ k0, static_cast<uint32_t>(p1),
        static_cast<uint32_t>(p0 >> 32) ^ c.w3 ^ k1, static_cast<uint32_t>(p0)};
    return philox_rounds<kRounds - 1>(next, k0 + 0x9E3779B9, k1 + 0xBB67AE85);
  }
}

// tl.randint4x. The offset's high word is 0 where upstream's offset has 32 bits.
[[gnu::always_inline]] inline PhiloxWords philox(uint64_t seed, uint32_t offset_low,
                                                 uint32_t offset_high) {
  return philox_rounds<10>({offset_low, offset_high, 0, 0}, static_cast<uint32_t>(seed),
                           static_cast<uint32_t>(seed >> 32));
}

// 2^-31 * (1 - 2^-24): the float that Triton scales by, and its smallest draw but 0.
inline constexpr float kUnitScale = 0x1.fffffep-32f;

// tl.rand of a word: in [0, 1). A word that is negative as a number is mirrored, -x -
// 1, so that 31 bits are left for the float.
inline float unit_float(uint32_t word) {
  const uint32_t mirrored = word ^ (0u - (word >> 31));
  return static_cast<float>(static_cast<int32_t>(mirrored)) * kUnitScale;
}

// The draw in (0, 1] of two words that use_fp64 samples with.
inline double unit_double(uint32_t low, uint32_t high) {
  const uint64_t r = uint64_t{high} << 32 | low;
  const double u = static_cast<double>(r) * 0x1p-64;
  return u < 0x1p-1022 ? 0x1p-1022 : u;
}

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_PHILOX_H_
