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

// A sum in the order of torch's for rows (aten/src/ATen/native/cpu/SumKernel.cpp): four
// vectors of lanes at a time; sums of so many steps, and sums of those, each by
// themselves, over four levels.
template <int64_t kLanes>
__attribute__((always_inline)) inline float sum_of_squares(const float* x, int64_t n) {
  constexpr int64_t kVectors = 4, kLevels = 4;
  constexpr int64_t kSums = kVectors * kLanes;
  float sums[kLevels][kSums] = {};
  const auto add = [&](const float* from, int64_t count) {
    for (int64_t s = 0; s < count; ++s) sums[0][s] += from[s] * from[s];
  };

  const int64_t size = n / kSums;
  int64_t log2 = 0;  // rounded up
  while ((int64_t{1} << log2) < size) ++log2;
  const int64_t power = std::max<int64_t>(4, log2 / kLevels);
  const int64_t step = int64_t{1} << power;
  int64_t i = 0;
  while (i + step <= size) {
    for (const int64_t limit = i + step; i < limit; ++i) add(x + i * kSums, kSums);
    for (int64_t level = 1; level < kLevels; ++level) {
      for (int64_t s = 0; s < kSums; ++s) {
        sums[level][s] += sums[level - 1][s];
        sums[level - 1][s] = 0;
      }
      if ((i & (step - 1) << (level * power)) != 0) break;
    }
  }
  for (; i < size; ++i) add(x + i * kSums, kSums);
  for (int64_t level = 1; level < kLevels; ++level) {
    for (int64_t s = 0; s < kSums; ++s) sums[0][s] += sums[level][s];
  }

  int64_t k = size * kSums;
  for (; k + kLanes <= n; k += kLanes) add(x + k, kLanes);
  for (int64_t vector = 1; vector < kVectors; ++vector) {
    for (int64_t s = 0; s < kLanes; ++s) sums[0][s] += sums[0][vector * kLanes + s];
  }
  float sum = 0;
  for (; k < n; ++k) sum += x[k] * x[k];
  for (int64_t s = 0; s < kLanes; ++s) sum += sums[0][s];
  return sum;
}

VLLM_KUNLUN_VERSIONS
float sum_of_4(const float* x, int64_t n) { return sum_of_squares<4>(x, n); }
VLLM_KUNLUN_VERSIONS
float sum_of_8(const float* x, int64_t n) { return sum_of_squares<8>(x, n); }
VLLM_KUNLUN_VERSIONS
float sum_of_16(const float* x, int64_t n) { return sum_of_squares<16>(x, n); }

float sum_of_squares(const float* x, int64_t n, int64_t lanes) {
  return lanes == 4 ? sum_of_4(x, n) : lanes == 8 ? sum_of_8(x, n) : sum_of_16(x, n);
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
  const float mean = sum_of_squares(row, n, a.lanes) / static_cast<float>(n);
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
__attribute__((always_inline)) inline void silu_row(const SiluAndMul& a, int64_t r) {
  using Word = typename T::Word;
  const Word* gate = static_cast<const Word*>(a.x) + 2 * r * a.width;
  const Word* up = gate + a.width;
  Word* __restrict out = static_cast<Word*>(a.out) + r * a.width;
  for (int64_t i = 0; i < a.width; ++i) {
    const float x = T::load(gate[i]);
    out[i] = T::store(nearest<T>(x / (1.0f + sleef_exp(-x))) * T::load(up[i]));
  }
}

VLLM_KUNLUN_VERSIONS
void norm_f32(const RmsNorm& a, int64_t r, float* row) { norm_row<F32>(a, r, row); }
VLLM_KUNLUN_VERSIONS
void norm_bf16(const RmsNorm& a, int64_t r, float* row) { norm_row<BF16>(a, r, row); }

using Silu = void (*)(const SiluAndMul& a, int64_t r);
template <class T>
void silu(const SiluAndMul& a, int64_t r) {
  silu_row<T>(a, r);
}
template <class T>
VLLM_KUNLUN_FUSED void fused_silu(const SiluAndMul& a, int64_t r) {
  silu_row<T>(a, r);
}

}  // namespace

void rms_norm(const RmsNorm& a, int64_t begin, int64_t end) {
  float* row = row_buffer(a.hidden);
  const auto norm = a.type == FloatType::kF32 ? norm_f32 : norm_bf16;
  for (int64_t r = begin; r < end; ++r) norm(a, r, row);
}

void silu_and_mul(const SiluAndMul& a, int64_t begin, int64_t end) {
  static const bool fuses = cpu_fuses();
  const Silu f32 = fuses ? fused_silu<F32> : silu<F32>;
  const Silu bf16 = fuses ? fused_silu<BF16> : silu<BF16>;
  const Silu row = a.type == FloatType::kF32 ? f32 : bf16;
  for (int64_t r = begin; r < end; ++r) row(a, r);
}

}  // namespace vllm_kunlun::host
