// SPDX-License-Identifier: Apache-2.0
#include "contracts/layers.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "host/floats.h"
#include "host/kernels.h"
#include "host/simd.h"

namespace vllm_kunlun::host {
namespace {

// The row that a thread works on, in f32.
float* row_buffer(int64_t n) {
  thread_local std::vector<float> row;
  if (static_cast<int64_t>(row.size()) < n) row.resize(n);
  return row.data();
}

template <class T>
__attribute__((always_inline)) inline void norm_row(const RmsNorm& a, int64_t r,
                                                    float* __restrict row) {
  using Word = typename T::Word;
  const int64_t n = a.hidden;
  const Word* x = static_cast<const Word*>(a.x) + r * n;
  if (a.residual != nullptr) {
    Word* __restrict residual = static_cast<Word*>(a.residual) + r * n;
    for (int64_t i = 0; i < n; ++i) {
      row[i] = T::load(x[i]) + T::load(residual[i]);
      residual[i] = T::store(row[i]);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) row[i] = T::load(x[i]);
  }
  const float mean = dot(row, row, n) / static_cast<float>(n);
  const float scale = 1.0f / std::sqrt(mean + a.epsilon);
  Word* __restrict out = static_cast<Word*>(a.out) + r * n;
  if (a.weight != nullptr) {
    const Word* weight = static_cast<const Word*>(a.weight);
    for (int64_t i = 0; i < n; ++i) {
      out[i] = T::store(nearest<T>(row[i] * scale) * T::load(weight[i]));
    }
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = T::store(row[i] * scale);
  }
}

template <class T>
__attribute__((always_inline)) inline void silu_part(const typename T::Word* gate,
                                                     const typename T::Word* up,
                                                     int64_t n,
                                                     typename T::Word* __restrict out) {
  // A loop of its own: next to the division the compiler makes a case of either limit.
  float power[kChunk];
  for (int64_t i = 0; i < n; ++i) {
    float x = -T::load(gate[i]);
    x = x < -87.0f ? -87.0f : x;
    power[i] = x > 89.0f ? 89.0f : x;
  }
  for (int64_t i = 0; i < n; ++i) {
    const float silu = T::load(gate[i]) / (1.0f + exp_in_range(power[i]));
    out[i] = T::store(nearest<T>(silu) * T::load(up[i]));
  }
}

template <class T>
__attribute__((always_inline)) inline void silu_row(const SiluAndMul& a, int64_t r) {
  using Word = typename T::Word;
  const Word* gate = static_cast<const Word*>(a.x) + 2 * r * a.width;
  Word* out = static_cast<Word*>(a.out) + r * a.width;
  for (int64_t first = 0; first < a.width; first += kChunk) {
    silu_part<T>(gate + first, gate + a.width + first,
                 std::min(kChunk, a.width - first), out + first);
  }
}

VLLM_KUNLUN_VERSIONS
void norm_f32(const RmsNorm& a, int64_t r, float* row) { norm_row<F32>(a, r, row); }
VLLM_KUNLUN_VERSIONS
void norm_bf16(const RmsNorm& a, int64_t r, float* row) { norm_row<BF16>(a, r, row); }

VLLM_KUNLUN_VERSIONS
void silu_f32(const SiluAndMul& a, int64_t r) { silu_row<F32>(a, r); }
VLLM_KUNLUN_VERSIONS
void silu_bf16(const SiluAndMul& a, int64_t r) { silu_row<BF16>(a, r); }

}  // namespace

void rms_norm(const RmsNorm& a, int64_t begin, int64_t end) {
  float* row = row_buffer(a.hidden);
  const auto norm = a.type == FloatType::kF32 ? norm_f32 : norm_bf16;
  for (int64_t r = begin; r < end; ++r) norm(a, r, row);
}

void silu_and_mul(const SiluAndMul& a, int64_t begin, int64_t end) {
  const auto silu = a.type == FloatType::kF32 ? silu_f32 : silu_bf16;
  for (int64_t r = begin; r < end; ++r) silu(a, r);
}

}  // namespace vllm_kunlun::host
