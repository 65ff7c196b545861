// SPDX-License-Identifier: Apache-2.0
// Philox for many tokens at once. Compilers do not see that its products of 32 bits by
// 32 are one instruction on a vector, and take three with what goes around them.
#include <cstring>

#include "contracts/philox.h"
#include "host/simd.h"

#if defined(__x86_64__) && !defined(VLLM_KUNLUN_ONE_VERSION)
#include <immintrin.h>
#define VLLM_KUNLUN_PHILOX_VECTORS
#endif

namespace vllm_kunlun::host {
namespace {

void words_one_by_one(uint32_t seed, uint32_t first, int64_t n, uint32_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = philox(seed, first + static_cast<uint32_t>(i), 0).w0;
  }
}

#ifdef VLLM_KUNLUN_PHILOX_VECTORS

// A word of each token has 64 bits of a vector, of which the upper ones do not matter:
// the product takes the lower 32 of each. A macro, since a template or a lambda would
// not be compiled for the instructions that its caller may use.
#define VLLM_KUNLUN_PHILOX_WORDS(name, isa, bytes, Register, product)              \
  __attribute__((target(isa))) void name(uint32_t seed, uint32_t first, int64_t n, \
                                         uint32_t* out) {                          \
    typedef uint64_t Words __attribute__((vector_size(bytes)));                    \
    typedef uint32_t Halves __attribute__((vector_size((bytes) / 2)));             \
    constexpr int64_t kTokens = (bytes) / sizeof(uint64_t);                        \
    Words lane{};                                                                  \
    for (int64_t j = 0; j < kTokens; ++j) lane[j] = j;                             \
    const Register m0 = (Register)(Words{} + 0xD2511F53);                          \
    const Register m1 = (Register)(Words{} + 0xCD9E8D57);                          \
    const int64_t whole = n - n % kTokens;                                         \
    for (int64_t i = 0; i < whole; i += kTokens) {                                 \
      Words w0 = lane + (first + static_cast<uint64_t>(i)), w1{}, w2{}, w3{};      \
      uint32_t k0 = seed, k1 = 0;                                                  \
      _Pragma("GCC unroll 10") for (int round = 0; round < 10; ++round) {          \
        const Words p0 = (Words)product((Register)w0, m0);                         \
        const Words p1 = (Words)product((Register)w2, m1);                         \
        w0 = p1 >> 32 ^ w1 ^ k0;                                                   \
        w2 = p0 >> 32 ^ w3 ^ k1;                                                   \
        w1 = p1;                                                                   \
        w3 = p0;                                                                   \
        k0 += 0x9E3779B9;                                                          \
        k1 += 0xBB67AE85;                                                          \
      }                                                                            \
      const Halves words = __builtin_convertvector(w0, Halves);                    \
      std::memcpy(out + i, &words, sizeof(words));                                 \
    }                                                                              \
    words_one_by_one(seed, first + static_cast<uint32_t>(whole), n - whole,        \
                     out + whole);                                                 \
  }

// The plain form warns of an uninitialised variable inside GCC's header.
#define VLLM_KUNLUN_MUL512(a, b) _mm512_maskz_mul_epu32(0xff, a, b)

VLLM_KUNLUN_PHILOX_WORDS(words_sse2, "sse2", 16, __m128i, _mm_mul_epu32)
VLLM_KUNLUN_PHILOX_WORDS(words_avx2, "avx2", 32, __m256i, _mm256_mul_epu32)
VLLM_KUNLUN_PHILOX_WORDS(words_avx512, "avx512f", 64, __m512i, VLLM_KUNLUN_MUL512)

using PhiloxWordsOf = void (*)(uint32_t, uint32_t, int64_t, uint32_t*);

PhiloxWordsOf best_for_this_cpu() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return words_avx512;
  if (__builtin_cpu_supports("avx2")) return words_avx2;
  return words_sse2;
}

const PhiloxWordsOf kWords = best_for_this_cpu();

#endif

}  // namespace

void philox_words(uint32_t seed, uint32_t first, int64_t n, uint32_t* out) {
#ifdef VLLM_KUNLUN_PHILOX_VECTORS
  kWords(seed, first, n, out);
#else
  words_one_by_one(seed, first, n, out);
#endif
}

}  // namespace vllm_kunlun::host
