// SPDX-License-Identifier: Apache-2.0
#include "contracts/gumbel.h"

#include <algorithm>

#include "host/kernels.h"
#include "host/noise.h"
#include "host/simd.h"

namespace vllm_kunlun::host {
namespace {

// What a row has in common for all of its blocks.
struct Row {
  float temperature;
  Noise noise;
  float* processed;  // where the processed logits go, or null
};

Row row_of(const GumbelSample& a, int64_t row) {
  const int64_t req = a.expanded_idx_mapping[row];
  if (req < 0) return {0, {}, nullptr};
  Row r{a.temp[req], {}, nullptr};
  if (r.temperature != 0) {
    r.noise = {true, a.use_fp64, random_word(a.seeds[req], a.pos, row)};
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

}  // namespace

void gumbel_sample(const GumbelSample& a, int64_t begin, int64_t end) {
  for (int64_t program = begin; program < end; ++program) {
    const int64_t row = program / a.num_blocks;
    const int64_t block = program % a.num_blocks;
    const int64_t first = block * a.block_size;
    const int64_t last = std::min(first + a.block_size, a.vocab_size);
    const Row r = row_of(a, row);
    const auto processed = [&](int64_t t, int64_t n, float* buffer) {
      const int64_t at = row * a.logits_stride + t;
      const float* x = as_float(a.logits, a.logits_type, at, n, buffer);
      if (a.apply_temperature && r.temperature != 0) {
        divide(x, r.temperature, n, buffer);
        x = buffer;
      }
      if (r.processed != nullptr) std::copy_n(x, n, r.processed + t);
      return x;
    };
    const Largest<double> best = block_largest(first, last, r.noise, processed);
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
