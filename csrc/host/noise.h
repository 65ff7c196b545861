// SPDX-License-Identifier: Apache-2.0
// Random numbers, and the noise that turns an argmax into a draw.
#ifndef VLLM_KUNLUN_HOST_NOISE_H_
#define VLLM_KUNLUN_HOST_NOISE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "contracts/philox.h"
#include "contracts/types.h"
#include "host/simd.h"

namespace vllm_kunlun::host {

// The first Philox word of a seed and a position, which may have 32 or 64 bits.
inline uint32_t random_word(int64_t seed, const IntList& pos, int64_t row) {
  const uint64_t offset = static_cast<uint64_t>(pos[row]);
  const uint32_t high = pos.is_i64 ? static_cast<uint32_t>(offset >> 32) : 0;
  return philox(static_cast<uint64_t>(seed), static_cast<uint32_t>(offset), high).w0;
}

// The noise of a row's tokens, if any.
struct Noise {
  bool is_on = false;
  bool is_f64 = false;
  uint32_t seed = 0;
};

// The largest of n <= kChunk logits from token `first` on, with their noise; its index
// counts from `first`. Under f32 noise `x` may hold upper bounds of the logits:
// logit_of(i) gives the i-th itself.
template <class LogitOf>
Largest<double> find_noisy(const float* x, const Noise& noise, int64_t first, int64_t n,
                           const LogitOf& logit_of) {
  if (!noise.is_on) {
    const Largest<float> found = find_largest(x, n);
    return {found.value, found.index};
  }
  if (noise.is_f64) {
    double noisy[kChunk];
    for (int64_t i = 0; i < n; ++i) {
      const PhiloxWords w = philox(noise.seed, static_cast<uint32_t>(first + i), 0);
      noisy[i] = x[i] - std::log(-std::log(unit_double(w.w0, w.w1)));
    }
    return find_largest(noisy, n);
  }
  // The noise itself, with its two logarithms, is needed only where a cheap upper bound
  // says that a token may win.
  const auto noisy = [&](int64_t i) {
    return logit_of(i) + gumbel(noise.seed, static_cast<uint32_t>(first + i));
  };
  float bound[kChunk];
  noisy_bounds(x, noise.seed, static_cast<uint32_t>(first), n, bound);
  const int64_t likely = find_largest(bound, n).index;
  // Just below it, so that the search finds it or what is before it and as large.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Largest<float> best{std::nextafter(noisy(likely), -kInfinity), 0};
  if (!(best.value >= -kInfinity)) best.value = -kInfinity;
  for (int64_t i = find_above(bound, 0, n, best.value); i < n;
       i = find_above(bound, i + 1, n, best.value)) {
    const float value = noisy(i);
    if (value > best.value) best = {value, i};
  }
  return {best.value, best.index};
}

// The largest of the tokens [first, last) with their noise; its index is the token.
// chunk_of(t, n, buffer) gives the logits of n <= kChunk tokens from t on, where they
// are or in `buffer`. If it gives
// upper bounds, logit_of(x, t, i) gives the logit of token t + i instead of x[i].
template <class ChunkOf, class LogitOf>
Largest<double> block_largest(int64_t first, int64_t last, const Noise& noise,
                              const ChunkOf& chunk_of, const LogitOf& logit_of) {
  Largest<double> best{-std::numeric_limits<double>::infinity(), first};
  float buffer[kChunk];
  for (int64_t t = first; t < last; t += kChunk) {
    const int64_t n = std::min(kChunk, last - t);
    const float* x = chunk_of(t, n, buffer);
    const Largest<double> found =
        find_noisy(x, noise, t, n, [&](int64_t i) { return logit_of(x, t, i); });
    if (found.value > best.value) best = {found.value, t + found.index};
  }
  return best;
}

template <class ChunkOf>
Largest<double> block_largest(int64_t first, int64_t last, const Noise& noise,
                              const ChunkOf& chunk_of) {
  return block_largest(first, last, noise, chunk_of,
                       [](const float* x, int64_t, int64_t i) { return x[i]; });
}

}  // namespace vllm_kunlun::host

#endif  // VLLM_KUNLUN_HOST_NOISE_H_
