// SPDX-License-Identifier: Apache-2.0
#include "host/simd.h"

#include <cstring>
#include <limits>

#include "contracts/philox.h"
#include "host/elementary.h"
#include "host/floats.h"

namespace vllm_kunlun::host {
namespace {

// Wide enough for several of the widest registers, to hide the latency of a maximum.
constexpr int64_t kLanes = 64;

// Elements that are looked at before asking whether one of them is the largest.
constexpr int64_t kSearched = 128;

// Leaves the largest of 2 * kHalf lanes in the first one. By halves: one lane after
// the other takes as long as a thousand elements. Recursion, so that each step has a
// width that the compiler knows.
template <int64_t kHalf, class T>
__attribute__((always_inline)) inline void fold(T* lanes) {
  for (int64_t j = 0; j < kHalf; ++j) {
    lanes[j] = lanes[j + kHalf] > lanes[j] ? lanes[j + kHalf] : lanes[j];
  }
  if constexpr (kHalf > 1) fold<kHalf / 2>(lanes);
}

// Inlined, since each version of a caller has to have it compiled for its own
// processor.
template <class T>
__attribute__((always_inline)) inline T largest_value(const T* x, int64_t n) {
  T lanes[kLanes];
  for (T& lane : lanes) lane = -std::numeric_limits<T>::infinity();
  const int64_t whole = n - n % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    }
  }
  fold<kLanes / 2>(lanes);
  T best = lanes[0];
  for (int64_t i = whole; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

template <class T>
__attribute__((always_inline)) inline Largest<T> largest(const T* x, int64_t n) {
  const T best = largest_value(x, n);
  if (best == -std::numeric_limits<T>::infinity()) return {best, 0};

  const int64_t whole = n - n % kSearched;
  for (int64_t i = 0; i < whole; i += kSearched) {
    int hit = 0;
    for (int64_t j = 0; j < kSearched; ++j) hit |= x[i + j] == best;
    if (hit == 0) continue;
    while (x[i] != best) ++i;
    return {best, i};
  }
  int64_t i = whole;
  while (x[i] != best) ++i;
  return {best, i};
}

// The uniform draw that a token's noise is made of, in (0, 1).
inline float gumbel_draw(uint32_t word) {
  const float u = unit_float(word);
  return u > kUnitScale ? u : kUnitScale;
}

VLLM_KUNLUN_VERSIONS
void bounds_from_words(const float* x, const uint32_t* words, int64_t n, float* out) {
  // -log(-log(1 - u)) <= -log(u). Roundings of all that follows stay below 1e-4; sums
  // with x round monotonously.
  constexpr float kSlack = 1e-3f;
  for (int64_t i = 0; i < n; ++i) {
    out[i] = x[i] + (kSlack - log_below(gumbel_draw(words[i])));
  }
}

VLLM_KUNLUN_VERSIONS
void halves_to_float(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = F16::load(x[i]);
}

VLLM_KUNLUN_VERSIONS
void bfloats_to_float(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = BF16::load(x[i]);
}

}  // namespace

VLLM_KUNLUN_VERSIONS
Largest<float> find_largest(const float* x, int64_t n) { return largest(x, n); }

VLLM_KUNLUN_VERSIONS
Largest<double> find_largest(const double* x, int64_t n) { return largest(x, n); }

VLLM_KUNLUN_VERSIONS
float largest_of(const float* x, int64_t n) { return largest_value(x, n); }

void to_float(const void* x, FloatType type, int64_t begin, int64_t n, float* out) {
  switch (type) {
    case FloatType::kF32:
      std::memcpy(out, static_cast<const float*>(x) + begin, n * sizeof(float));
      break;
    case FloatType::kF16:
      halves_to_float(static_cast<const uint16_t*>(x) + begin, n, out);
      break;
    case FloatType::kBF16:
      bfloats_to_float(static_cast<const uint16_t*>(x) + begin, n, out);
      break;
  }
}

VLLM_KUNLUN_VERSIONS
void divide(const float* x, float divisor, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] / divisor;
}

VLLM_KUNLUN_VERSIONS
float dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kSums = 32;  // independent, which a vector register or two hold
  float lanes[kSums] = {};
  const int64_t whole = n - n % kSums;
  for (int64_t i = 0; i < whole; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  float sum = 0;
  for (int64_t i = whole; i < n; ++i) sum += a[i] * b[i];
  for (int64_t width = kSums / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return sum + lanes[0];
}

VLLM_KUNLUN_VERSIONS
int64_t find_above(const float* x, int64_t from, int64_t n, float limit) {
  int64_t i = from;
  for (; i < n && i % kSearched != 0; ++i) {
    if (x[i] > limit) return i;
  }
  for (; i + kSearched <= n; i += kSearched) {
    int hit = 0;
    for (int64_t j = 0; j < kSearched; ++j) hit |= x[i + j] > limit;
    if (hit != 0) break;
  }
  while (i < n && !(x[i] > limit)) ++i;
  return i;
}

float gumbel(uint32_t seed, uint32_t token) {
  // The logarithms are taken in double and rounded once: for the smallest draws, which
  // decide the winner, 1 - u is then good to 2^-54.
  const double u = gumbel_draw(philox(seed, token, 0).w0);
  return static_cast<float>(-fast_log(-fast_log(1.0 - u)));
}

void noisy_bounds(const float* x, uint32_t seed, uint32_t first, int64_t n,
                  float* out) {
  uint32_t words[kChunk];
  philox_words(seed, first, n, words);
  bounds_from_words(x, words, n, out);
}

}  // namespace vllm_kunlun::host
