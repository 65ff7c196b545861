// SPDX-License-Identifier: Apache-2.0
#include "host/logsumexp.h"

#include <cstring>

namespace vllm_kunlun::host {
namespace {

inline float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

inline uint32_t to_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// exp(x) within 2 ulp, 0 and inf where it leaves f32, NaN for NaN. With x = n log(2) +
// r exp(x) = 2^n exp(r), and exp(r) for |r| <= log(2) / 2 is a polynomial. No branch
// and no table, so that loops around it become vector code.
inline float fast_exp(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
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
  // 2^n in two steps: n reaches beyond the exponents of f32 at both ends.
  const uint32_t exponent = to_bits(rounded) - to_bits(kRound);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(exponent) >> 1);
  const float scale = from_bits((half + 127) << 23);
  const float rest = from_bits((exponent - half + 127) << 23);
  return p * scale * rest;
}

// The sum of term(i) for i < n, in double.
template <class Term>
inline double sum_terms(int64_t n, const Term& term) {
  constexpr int64_t kLanes = 32;
  double lanes[kLanes] = {};
  const int64_t whole = n - n % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (int64_t i = whole; i < n; ++i) sum += term(i);
  return sum;
}

}  // namespace

VLLM_KUNLUN_VERSIONS
double sum_exp(const float* x, float max, int64_t n) {
  return sum_terms(n, [=](int64_t i) { return fast_exp(x[i] - max); });
}

VLLM_KUNLUN_VERSIONS
double residual_mass(const float* target, const float* draft, float target_logsumexp,
                     float draft_logsumexp, float joint_ratio, int64_t n) {
  return sum_terms(n, [=](int64_t i) {
    const float p = fast_exp(target[i] - target_logsumexp);
    const float q = fast_exp(draft[i] - draft_logsumexp);
    const float rest = joint_ratio * p - q;
    return rest > 0.0f ? rest : 0.0f;
  });
}

void log_residual(const float* target, const float* draft, float target_logsumexp,
                  float shift, float draft_logsumexp, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float target_log_prob = target[i] - target_logsumexp + shift;
    const float draft_log_prob = draft[i] - draft_logsumexp;
    // Stable: log(e^a - e^b) = a + log(1 - e^(b - a)).
    const float ratio = std::exp(draft_log_prob - target_log_prob);
    out[i] = ratio < 1.0f ? target_log_prob + std::log1p(-ratio)
                          : -std::numeric_limits<float>::infinity();
  }
}

}  // namespace vllm_kunlun::host
