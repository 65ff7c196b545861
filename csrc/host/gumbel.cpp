// SPDX-License-Identifier: Apache-2.0
#include "contracts/gumbel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "contracts/philox.h"
#include "host/kernels.h"
#include "host/simd.h"

namespace vllm_kunlun::host {
namespace {

// What is worked on at a time: fits the first-level cache with its noise.
constexpr int64_t kChunk = 1024;

// What a row has in common for all of its blocks.
struct Row {
  float temperature;
  uint32_t seed;     // of the noise; meaningful if the temperature is not 0
  float* processed;  // where the processed logits go, or null
};

Row row_of(const GumbelSample& a, int64_t row) {
  const int64_t req = a.expanded_idx_mapping[row];
  if (req < 0) return {0, 0, nullptr};
  Row r{a.temp[req], 0, nullptr};
  if (r.temperature != 0) {
    const uint64_t pos = static_cast<uint64_t>(a.pos[row]);
    const uint32_t high = a.pos.is_i64 ? static_cast<uint32_t>(pos >> 32) : 0;
    r.seed = philox(a.seeds[req], static_cast<uint32_t>(pos), high).w0;
  }
  if (a.processed_logits != nullptr) {
    int64_t col = 0;
    if (a.processed_logits_col.data != nullptr) {
      col = a.processed_logits_col[a.per_token_col ? row : 0];
    }
    r.processed =
        a.processed_logits + req * a.processed_logits_stride + col * a.vocab_size;
  }
  return r;
}

// Adds the f64 noise of the tokens [first, first + n).
void add_noise(uint32_t seed, int64_t first, int64_t n, const float* x, double* out) {
  for (int64_t i = 0; i < n; ++i) {
    const PhiloxWords w = philox(seed, static_cast<uint32_t>(first + i), 0);
    out[i] = x[i] - std::log(-std::log(unit_double(w.w0, w.w1)));
  }
}

// The largest of n <= kChunk tokens from `first` on; its index counts from `first`.
Largest<double> chunk_largest(const GumbelSample& a, const Row& r, int64_t row,
                              int64_t first, int64_t n) {
  const int64_t begin = row * a.logits_stride + first;
  float buffer[kChunk];
  const float* x = buffer;
  if (a.logits_type == FloatType::kF32) {
    x = static_cast<const float*>(a.logits) + begin;
  } else {
    to_float(a.logits, a.logits_type, begin, n, buffer);
  }
  if (a.apply_temperature && r.temperature != 0) {
    divide(x, r.temperature, n, buffer);
    x = buffer;
  }
  if (r.processed != nullptr) std::copy_n(x, n, r.processed + first);
  if (r.temperature != 0) {
    if (a.use_fp64) {
      double noisy[kChunk];
      add_noise(r.seed, first, n, x, noisy);
      return find_largest(noisy, n);
    }
    float noise[kChunk];
    gumbel_noise(r.seed, static_cast<uint32_t>(first), n, noise);
    for (int64_t i = 0; i < n; ++i) buffer[i] = x[i] + noise[i];
    x = buffer;
  }
  const Largest<float> found = find_largest(x, n);
  return {found.value, found.index};
}

}  // namespace

void gumbel_sample(const GumbelSample& a, int64_t begin, int64_t end) {
  for (int64_t program = begin; program < end; ++program) {
    const int64_t row = program / a.num_blocks;
    const int64_t block = program % a.num_blocks;
    const int64_t first = block * a.block_size;
    const int64_t last = std::min(first + a.block_size, a.vocab_size);
    const Row r = row_of(a, row);
    Largest<double> best{-std::numeric_limits<double>::infinity(), first};
    for (int64_t t = first; t < last; t += kChunk) {
      const Largest<double> found =
          chunk_largest(a, r, row, t, std::min(kChunk, last - t));
      if (found.value > best.value) best = {found.value, t + found.index};
    }
    a.local_argmax[row * a.local_argmax_stride + block] = best.index;
    const int64_t at = row * a.local_max_stride + block;
    if (a.use_fp64) {
      static_cast<double*>(a.local_max)[at] = best.value;
    } else {
      static_cast<float*>(a.local_max)[at] = static_cast<float>(best.value);
    }
  }
}

}  // namespace vllm_kunlun::host
