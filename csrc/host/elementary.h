// SPDX-License-Identifier: Apache-2.0
// Elementary functions without branches and tables, so that a loop around them becomes
// vector code.
#ifndef VLLM_KUNLUN_HOST_ELEMENTARY_H_
#define VLLM_KUNLUN_HOST_ELEMENTARY_H_

#include <cstdint>
#include <cstring>

namespace vllm_kunlun::host {

template <class To, class From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// exp(x) as mantissa * 2^exponent, for x that f32 can hold the parts of.
struct SplitExp {
  float mantissa;
  uint32_t exponent;
};

// x = n log(2) + r, where exp(r) for |r| <= log(2) / 2 is a polynomial.
inline SplitExp split_exp(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer
  const float rounded = x * 0x1.715476p0f + kRound;
  const float n = rounded - kRound;
  // log(2) in two parts, the first short enough that n times it is exact.
  const float r = x - n * 0x1.63p-1f - n * -0x1.bd0106p-13f;
  float p = 0x1.a0d2cep-13f;
  p = p * r + 0x1.6e879cp-10f;
  p = p * r + 0x1.111210p-7f;
  p = p * r + 0x1.555450p-5f;
  p = p * r + 0x1.555554p-3f;
  p = p * r + 0x1.000000p-1f;
  p = p * (r * r) + r + 1.0f;
  return {p, bit_cast<uint32_t>(rounded) - bit_cast<uint32_t>(kRound)};
}

// 2^n, from the smallest normal one to the largest.
inline float power_of_2(uint32_t n) { return bit_cast<float>((n + 127) << 23); }

// In two steps: the exponent may reach beyond those of f32 at both ends.
inline float joined(SplitExp e) {
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(e.exponent) >> 1);
  return e.mantissa * power_of_2(half) * power_of_2(e.exponent - half);
}

// exp(x) within 1 ulp, 0 and inf where it leaves f32, NaN for NaN.
inline float fast_exp(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  return joined(split_exp(x));
}

// The same for x <= 0 as a term of a sum in which exp(0) is another: below -87, where
// f32 ends, it is exp(-87), which adds nothing.
inline float exp_term(float x) {
  const SplitExp e = split_exp(x < -87.0f ? -87.0f : x);
  return e.mantissa * power_of_2(e.exponent);
}

// exp(x) to the bit as SLEEF's xexpf has it where the CPU has fused multiply-add, which
// is what torch's activations take (sleefsimdsp.c); NaN for NaN.
inline float sleef_exp(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer
  x = x < -104.0f ? -104.0f : x;
  x = x > 100.0f ? 100.0f : x;
  const float rounded = x * 0x1.715476p0f + kRound;
  const float n = rounded - kRound;
  float r = __builtin_fmaf(n, -0x1.62e4p-1f, x);
  r = __builtin_fmaf(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.a057b4p-13f;
  p = __builtin_fmaf(p, r, 0x1.6d2d92p-10f);
  p = __builtin_fmaf(p, r, 0x1.11114cp-7f);
  p = __builtin_fmaf(p, r, 0x1.5554f4p-5f);
  p = __builtin_fmaf(p, r, 0x1.555556p-3f);
  p = __builtin_fmaf(p, r, 0.5f);
  p = 1.0f + __builtin_fmaf(r * r, p, r);
  return joined({p, bit_cast<uint32_t>(rounded) - bit_cast<uint32_t>(kRound)});
}

// log(x) of a normal x > 0 or up to 0.06 less: the bits of a float, read as an integer,
// are its logarithm with the chord in place of the curve between two powers of 2.
inline float log_below(float x) {
  constexpr float kLog2 = 0x1.62e430p-1f;
  return static_cast<float>(bit_cast<int32_t>(x)) * (kLog2 * 0x1p-23f) - 127 * kLog2;
}

// log(x) of a normal x > 0, within 2^-40: x = m * 2^e with m around 1, and
// log(m) = 2 * atanh((m - 1) / (m + 1)) as a series.
inline double fast_log(double x) {
  constexpr uint64_t kOne = 0x3ff0000000000000;
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  constexpr uint64_t kMantissa = 0x000fffffffffffff;
  constexpr uint64_t kTwo52 = 0x4330000000000000;  // 2^52: holds an integer as it is
  const uint64_t bits = bit_cast<uint64_t>(x) + (kOne - kSqrtHalf);
  const double e = bit_cast<double>((bits >> 52) | kTwo52) - (0x1p52 + 1023);
  const double m = bit_cast<double>((bits & kMantissa) + kSqrtHalf);
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double sum = 1.0 / 13;
  sum = sum * z + 1.0 / 11;
  sum = sum * z + 1.0 / 9;
  sum = sum * z + 1.0 / 7;
  sum = sum * z + 1.0 / 5;
  sum = sum * z + 1.0 / 3;
  sum = sum * z + 1.0;
  return e * 0x1.62e42fefa39efp-1 + 2 * s * sum;
}

}  // namespace vllm_kunlun::host

#endif  // VLLM_KUNLUN_HOST_ELEMENTARY_H_
