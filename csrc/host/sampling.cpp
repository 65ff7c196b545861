// SPDX-License-Identifier: Apache-2.0
#include "contracts/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "host/kernels.h"
#include "host/mask_parts.h"
#include "host/simd.h"

namespace vllm_kunlun::host {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

VLLM_KUNLUN_VERSIONS
void forbid_below(float* x, float threshold, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] < threshold ? -kInfinity : x[i];
}

void temperature(const Temperature& a, int64_t begin, int64_t end) {
  for (int64_t program = begin; program < end; ++program) {
    const int64_t row = program / a.num_blocks;
    const float temperature = a.temperature[a.expanded_idx_mapping[row]];
    if (temperature == 0.0f || temperature == 1.0f) continue;
    const int64_t first = program % a.num_blocks * a.block_size;
    const int64_t n = std::min(a.block_size, a.vocab_size - first);
    float* logits = a.logits + row * a.logits_stride + first;
    divide(logits, temperature, n, logits);
  }
}

void min_p(const MinP& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float min_p = a.min_p[a.expanded_idx_mapping[row]];
    if (min_p == 0.0f) continue;
    float* logits = a.logits + row * a.logits_stride;
    const float largest = largest_of(logits, a.vocab_size);
    forbid_below(logits, largest + std::log(min_p), a.vocab_size);
  }
}

}  // namespace vllm_kunlun::host
