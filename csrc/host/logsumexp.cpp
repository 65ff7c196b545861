// SPDX-License-Identifier: Apache-2.0
#include "host/logsumexp.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "host/elementary.h"

namespace vllm_kunlun::host {
namespace {

// The sum of term(i) for i < n, in double. Inlined, since each version of a caller has
// to have it compiled for its own processor.
template <class Term>
__attribute__((always_inline)) inline double sum_terms(int64_t n, const Term& term) {
  constexpr int64_t kLanes = 32;
  double lanes[kLanes] = {};
  const int64_t whole = n - n % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  }
  for (int64_t j = 0; j < kLanes / 2; ++j) lanes[j] += lanes[j + kLanes / 2];
  for (int64_t j = 0; j < kLanes / 4; ++j) lanes[j] += lanes[j + kLanes / 4];
  double sum = 0;
  for (int64_t j = 0; j < kLanes / 4; ++j) sum += lanes[j];
  for (int64_t i = whole; i < n; ++i) sum += term(i);
  return sum;
}

}  // namespace

VLLM_KUNLUN_VERSIONS
float global_logsumexp(const float* max, const float* sumexp, int64_t blocks) {
  constexpr int64_t kTerms = 16;  // at a time, before they are added up one by one
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t b = 0; b < blocks; ++b) largest = max[b] > largest ? max[b] : largest;
  double sum = 0;
  for (int64_t first = 0; first < blocks; first += kTerms) {
    const int64_t n = std::min(kTerms, blocks - first);
    float terms[kTerms];
    for (int64_t b = 0; b < n; ++b) {
      terms[b] = sumexp[first + b] * fast_exp(max[first + b] - largest);
    }
    for (int64_t b = 0; b < n; ++b) sum += terms[b];
  }
  return static_cast<float>(largest + std::log(sum));
}

VLLM_KUNLUN_VERSIONS
double sum_exp(const float* x, float max, int64_t n) {
  return sum_terms(n, [=](int64_t i) { return exp_term(x[i] - max); });
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

VLLM_KUNLUN_VERSIONS
void log_residual(const float* target, const float* draft, float target_logsumexp,
                  float shift, float draft_logsumexp, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float target_log_prob = target[i] - target_logsumexp + shift;
    const float draft_log_prob = draft[i] - draft_logsumexp;
    // Stable: log(e^a - e^b) = a + log(1 - e^(b - a)). In double, 1 - x is exact enough
    // to do without log1p.
    const float ratio = fast_exp(draft_log_prob - target_log_prob);
    const float value = target_log_prob + static_cast<float>(fast_log(1.0 - ratio));
    out[i] = ratio < 1.0f ? value : -std::numeric_limits<float>::infinity();
  }
}

VLLM_KUNLUN_VERSIONS
void log_residual_bounds(const float* target, const float* draft,
                         float target_logsumexp, float shift, float draft_logsumexp,
                         int64_t n, float* out) {
  constexpr float kSlack = 0.06f + 1e-3f;  // what log_below leaves, and roundings
  for (int64_t i = 0; i < n; ++i) {
    const float target_log_prob = target[i] - target_logsumexp + shift;
    const float draft_log_prob = draft[i] - draft_logsumexp;
    const float ratio = fast_exp(draft_log_prob - target_log_prob);
    const float value = target_log_prob + (log_below(1.0f - ratio) + kSlack);
    out[i] = ratio < 1.0f ? value : -std::numeric_limits<float>::infinity();
  }
}

}  // namespace vllm_kunlun::host
