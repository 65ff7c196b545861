// SPDX-License-Identifier: Apache-2.0
// Loops over a vocabulary, written so that the compiler turns them into vector code.
#ifndef VLLM_KUNLUN_HOST_SIMD_H_
#define VLLM_KUNLUN_HOST_SIMD_H_

#include <cstdint>

#include "contracts/types.h"

// One build runs on every x86-64: the loader picks the version that the CPU has.
#if defined(__x86_64__) && !defined(VLLM_KUNLUN_ONE_VERSION)
#define VLLM_KUNLUN_VERSIONS \
  __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define VLLM_KUNLUN_VERSIONS
#endif

// The same with fused multiply-add, which target_clones cannot ask for beside AVX2: a
// function that is marked so may be called where cpu_fuses(). Elsewhere it is slow.
#if defined(__x86_64__) && !defined(VLLM_KUNLUN_ONE_VERSION)
#define VLLM_KUNLUN_FUSED __attribute__((target("avx2,fma")))
#else
#define VLLM_KUNLUN_FUSED
#endif

namespace vllm_kunlun::host {

inline bool cpu_fuses() {
#if defined(__x86_64__) && !defined(VLLM_KUNLUN_ONE_VERSION)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

// Elements that are worked on at a time: fit the first-level cache several times.
inline constexpr int64_t kChunk = 1024;

template <class T>
struct Largest {
  T value;
  int64_t index;
};

// The first of the largest elements. NaN is not larger than anything: where nothing is
// above -inf the answer is -inf at index 0.
Largest<float> find_largest(const float* x, int64_t n);
Largest<double> find_largest(const double* x, int64_t n);

// The same without the index, which takes a second look at the elements.
float largest_of(const float* x, int64_t n);

// Reads n elements from `begin` on as f32.
void to_float(const void* x, FloatType type, int64_t begin, int64_t n, float* out);

// The same where they are, if they are f32, or else in `buffer`.
inline const float* as_float(const void* x, FloatType type, int64_t begin, int64_t n,
                             float* buffer) {
  if (type == FloatType::kF32) return static_cast<const float*>(x) + begin;
  to_float(x, type, begin, n, buffer);
  return buffer;
}

// x / divisor, as a true division; may be in place.
void divide(const float* x, float divisor, int64_t n, float* out);

// The sum of a[i] * b[i], accumulated in f32.
float dot(const float* a, const float* b, int64_t n);

// The first i in [from, n) with x[i] > limit, or n.
int64_t find_above(const float* x, int64_t from, int64_t n, float limit);

// The first Philox word of each of the tokens [first, first + n) under `seed`.
void philox_words(uint32_t seed, uint32_t first, int64_t n, uint32_t* out);

// The f32 Gumbel noise of a token under `seed`.
float gumbel(uint32_t seed, uint32_t token);

// At least x[i] + gumbel(seed, first + i), NaN for NaN, for n <= kChunk; where noise is
// large, by less than 0.07 more.
void noisy_bounds(const float* x, uint32_t seed, uint32_t first, int64_t n, float* out);

}  // namespace vllm_kunlun::host

#endif  // VLLM_KUNLUN_HOST_SIMD_H_
