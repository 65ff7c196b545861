// SPDX-License-Identifier: Apache-2.0
// Elementary functions in f32 that give the same on every compiler, and what takes the
// place of sums in f64, which the XPU emulates. C++11, for the XPU's cores.
#ifndef VLLM_KUNLUN_XPU_MATH_H_
#define VLLM_KUNLUN_XPU_MATH_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

union FloatBits {
  float value;
  UInt32 bits;
};

__device__ inline float float_of(UInt32 bits) {
  FloatBits b;
  b.bits = bits;
  return b.value;
}

__device__ inline UInt32 bits_of(float value) {
  FloatBits b;
  b.value = value;
  return b.bits;
}

__device__ inline float infinity() { return float_of(0x7f800000u); }
__device__ inline float not_a_number() { return float_of(0x7fc00000u); }

// exp(x) within 1 ulp: the host's polynomial, so that it is the host's result too.
__device__ inline float exp_f32(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float round = 12582912.0f;  // adding it rounds to an integer
  const float rounded = x * 1.44269502f + round;
  const float n = rounded - round;
  // log(2) in two parts, the first short enough that n times it is exact.
  const float r = x - n * 0.693359375f - n * -0.000212194442f;
  float p = 0.000198756912f;
  p = p * r + 0.00139819994f;
  p = p * r + 0.00833345205f;
  p = p * r + 0.0416661799f;
  p = p * r + 0.166666657f;
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  // In two steps: the exponent reaches beyond those of f32 at both ends.
  const UInt32 exponent = bits_of(rounded) - bits_of(round);
  const UInt32 half = static_cast<UInt32>(static_cast<int>(exponent) >> 1);
  return p * float_of((half + 127) << 23) * float_of((exponent - half + 127) << 23);
}

// log(x * (1 + rest)) for a normal x > 0 and a rest that is smaller than x's last bit:
// x = m * 2^e with m around 1, and log(m) = 2 * atanh((m - 1) / (m + 1)) as a series.
__device__ inline float log_of_sum(float x, float rest) {
  const UInt32 sqrt_half = 0x3f3504f3u;
  const UInt32 shifted = bits_of(x) - sqrt_half;
  const int exponent = static_cast<int>(shifted) >> 23;
  const float m = float_of((shifted & 0x007fffffu) + sqrt_half);
  const float e = static_cast<float>(exponent);
  const float f = m - 1.0f;
  const float s = f / (2.0f + f);
  const float z = s * s;
  float r = 0.181818187f;  // 2 / 11, 2 / 9, ...
  r = r * z + 0.222222224f;
  r = r * z + 0.285714298f;
  r = r * z + 0.400000006f;
  r = r * z + 0.666666687f;
  r = r * z;
  const float half_square = 0.5f * f * f;
  const float small = s * (half_square + r) + (e * 9.05800061e-06f + rest);
  return e * 0.693138123f - (half_square - small - f);
}

// log(x) within 1 ulp of x >= 0 that is no subnormal.
__device__ inline float log_f32(float x) {
  if (x == 0.0f) return -infinity();
  if (!(x > 0.0f)) return not_a_number();
  if (x == infinity()) return x;
  return log_of_sum(x, 0.0f);
}

// log(1 - u) for u in [0, 1], as exact for a small u as for a large one.
__device__ inline float log_of_rest(float u) {
  const float rest = 1.0f - u;
  if (rest <= 0.0f) return -infinity();
  // What rounding took away from 1 - u.
  const float lost = (1.0f - rest) - u;
  return log_of_sum(rest, lost / rest);
}

// log(x) of a normal x > 0 within 2^-50, for those who ask for f64.
__device__ inline double log_f64(double x) {
  union {
    double value;
    UInt64 bits;
  } b;
  b.value = x;
  const UInt64 sqrt_half = 0x3fe6a09e667f3bcdull;
  const UInt64 shifted = b.bits - sqrt_half;
  const int exponent = static_cast<int>(static_cast<Int64>(shifted) >> 52);
  b.bits = (shifted & 0x000fffffffffffffull) + sqrt_half;
  const double s = (b.value - 1.0) / (b.value + 1.0);
  const double z = s * s;
  double sum = 0.0;
  for (int n = 25; n >= 1; n -= 2) sum = sum * z + 1.0 / n;
  return exponent * 0.69314718055994530942 + 2.0 * s * sum;
}

// A sum that keeps what rounding takes away from it.
struct Sum {
  float total;
  float lost;

  __device__ void clear() {
    total = 0.0f;
    lost = 0.0f;
  }
  __device__ void add(float x) {
    const float y = x - lost;
    const float t = total + y;
    // Of infinity nothing is lost, and the difference would be NaN.
    lost = t - t == 0.0f ? (t - total) - y : 0.0f;
    total = t;
  }
};

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_MATH_H_
