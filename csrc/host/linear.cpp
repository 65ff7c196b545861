// SPDX-License-Identifier: Apache-2.0
#include "contracts/linear.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "host/floats.h"
#include "host/kernels.h"
#include "host/simd.h"

namespace vllm_kunlun::host {
namespace {

constexpr int64_t kLanes = 8;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Words = uint32_t __attribute__((vector_size(kLanes * sizeof(float))));

// Elements whose products go to neighbouring partial sums are taken so many at a time,
// the even ones and the odd ones by themselves, which is how they come out of bf16.
constexpr int64_t kUnit = 2 * kLanes;
constexpr int64_t kUnits = kLinearSums / kUnit;
struct Sums {
  Floats of[kUnits][2];
};

// Products of a tile: a sum of each, and what they are made of, fit 16 registers.
constexpr int64_t kTile = 12;
constexpr int64_t kTileRows = 3;

// A strip's sums, the rows and the columns that are being multiplied stay in the
// first-level cache.
constexpr int64_t kStrip = 12;
constexpr int64_t kDepth = 1024;
static_assert(kStrip % kTile == 0 && kDepth % kLinearSums == 0);

// So much of a weight stays in the second-level cache while it meets so many rows.
constexpr int64_t kWeights = 32768;
constexpr int64_t kRows = 96;

constexpr int64_t kCacheLine = 64;

#define VLLM_KUNLUN_INLINE __attribute__((always_inline)) static inline

// Of two bf16 in each word the even one as f32, or the odd one.
VLLM_KUNLUN_INLINE void half_of(const uint16_t* x, bool odd, Floats* out) {
  Words words;
  std::memcpy(&words, x, sizeof(words));
  words = odd ? words & 0xffff0000u : words << 16;
  std::memcpy(out, &words, sizeof(words));
}

// As f32, in each unit the even elements before the odd ones.
VLLM_KUNLUN_INLINE void widen(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kUnit) {
    Floats even, odd;
    half_of(x + i, false, &even);
    half_of(x + i, true, &odd);
    std::memcpy(out + i, &even, sizeof(even));
    std::memcpy(out + i + kLanes, &odd, sizeof(odd));
  }
}

// Rows of x and columns of the weight, of which n elements are multiplied.
struct Operands {
  const float* x;
  const uint16_t* weight;
  int64_t depth;
  int64_t n;
  bool fresh;  // sums start here
};

// The columns that come next, asked for little by little, so that they arrive while
// others are multiplied.
struct Ahead {
  const char* at;
  int64_t step;  // bytes
};

// Adds the products of a tile's even or odd elements in one unit out of each
// kLinearSums to its sums, of which those of a row are `stride` from those of the next.
template <int kR, int kC, bool kOdd>
VLLM_KUNLUN_INLINE void add_half(const Operands& a, int64_t unit, Sums* sums,
                                 int64_t stride, Ahead* ahead) {
  Floats total[kR][kC] = {};
  if (!a.fresh) {
#pragma GCC unroll 16
    for (int i = 0; i < kR * kC; ++i) {
      total[i / kC][i % kC] = sums[i / kC * stride + i % kC].of[unit][kOdd];
    }
  }
  const float* x = a.x + (kOdd ? kLanes : 0);
  const char* next = ahead->at;
  for (int64_t k = unit * kUnit; k < a.n; k += kLinearSums) {
    const uint16_t* weight = a.weight + k;
    __builtin_prefetch(next);
    next += ahead->step;
    Floats row[kR];
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r) {
      std::memcpy(&row[r], x + r * a.depth + k, sizeof(Floats));
    }
#pragma GCC unroll 16
    for (int c = 0; c < kC; ++c) {
      Floats column;
      half_of(weight + c * a.depth, kOdd, &column);
#pragma GCC unroll 16
      for (int r = 0; r < kR; ++r) total[r][c] += row[r] * column;
    }
  }
  ahead->at = next;
#pragma GCC unroll 16
  for (int i = 0; i < kR * kC; ++i) {
    sums[i / kC * stride + i % kC].of[unit][kOdd] = total[i / kC][i % kC];
  }
}

template <int kR, int kC>
VLLM_KUNLUN_INLINE void add_tile(const Operands& a, Sums* sums, int64_t stride,
                                 Ahead* ahead) {
  for (int64_t unit = 0; unit < kUnits; ++unit) {
    add_half<kR, kC, false>(a, unit, sums, stride, ahead);
    add_half<kR, kC, true>(a, unit, sums, stride, ahead);
  }
}

// The same for all elements of one row and one column, in the order of memory, which is
// what such a product waits for.
VLLM_KUNLUN_INLINE void add_column(const Operands& a, Sums* sums) {
  Sums total = {};
  if (!a.fresh) total = *sums;
  for (int64_t k = 0; k < a.n; k += kLinearSums) {
#pragma GCC unroll 8
    for (int64_t unit = 0; unit < kUnits; ++unit) {
      const int64_t i = k + unit * kUnit;
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd) {
        Floats row, column;
        std::memcpy(&row, a.x + i + odd * kLanes, sizeof(row));
        half_of(a.weight + i, odd != 0, &column);
        total.of[unit][odd] += row * column;
      }
    }
  }
  *sums = total;
}

template <int kR>
VLLM_KUNLUN_INLINE void add_strip(Operands a, int64_t columns, Sums* sums,
                                  Ahead* ahead) {
  constexpr int kC = kTile / kR;
  int64_t c = 0;
  for (; c + kC <= columns; c += kC, a.weight += kC * a.depth) {
    add_tile<kR, kC>(a, sums + c, columns, ahead);
  }
  for (; c < columns; ++c, a.weight += a.depth) {
    for (int r = 0; r < kR; ++r) {
      Operands row = a;
      row.x += r * a.depth;
      add_column(row, sums + r * columns + c);
    }
  }
}

VLLM_KUNLUN_INLINE void add_strip_of(int64_t rows, Operands a, int64_t columns,
                                     Sums* sums, Ahead* ahead) {
  static_assert(kTileRows == 3);
  switch (rows) {
    case 1:
      for (int64_t c = 0; c < columns; ++c) {
        add_column(a, sums + c);
        a.weight += a.depth;
      }
      break;
    case 2:
      add_strip<2>(a, columns, sums, ahead);
      break;
    default:
      add_strip<3>(a, columns, sums, ahead);
  }
}

// Folds the partial sums of each of two products to 4.
VLLM_KUNLUN_INLINE void fold_pair(const Sums* sums, Floats* out) {
  Floats eight[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const auto& of = sums[i].of;
    static_assert(kUnits == 4);
    const Floats even = (of[0][0] + of[2][0]) + (of[1][0] + of[3][0]);
    const Floats odd = (of[0][1] + of[2][1]) + (of[1][1] + of[3][1]);
    eight[i] = __builtin_shufflevector(even, odd, 0, 1, 2, 3, 8, 9, 10, 11) +
               __builtin_shufflevector(even, odd, 4, 5, 6, 7, 12, 13, 14, 15);
  }
  *out = __builtin_shufflevector(eight[0], eight[1], 0, 1, 8, 9, 4, 5, 12, 13) +
         __builtin_shufflevector(eight[0], eight[1], 2, 3, 10, 11, 6, 7, 14, 15);
}

// Folds those of each of four products to the end.
VLLM_KUNLUN_INLINE void fold_four(const Sums* sums, float* out) {
  Floats first, second;
  fold_pair(sums, &first);
  fold_pair(sums + 2, &second);
  const Floats two = __builtin_shufflevector(first, second, 0, 2, 8, 10, 4, 6, 12, 14) +
                     __builtin_shufflevector(first, second, 1, 3, 9, 11, 5, 7, 13, 15);
  for (int i = 0; i < 4; ++i) out[i] = two[i] + two[i + 4];
}

VLLM_KUNLUN_INLINE void store(const float* sums, const uint16_t* bias, int64_t n,
                              uint16_t* out) {
  if (bias == nullptr) {
    for (int64_t i = 0; i < n; ++i) out[i] = BF16::store(sums[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = BF16::store(sums[i] + BF16::load(bias[i]));
    }
  }
}

// Rows [first, first + rows), which are `wide`, and columns [begin, begin + columns).
VLLM_KUNLUN_INLINE void multiply_strip(const Linear& a, const float* wide,
                                       int64_t first, int64_t rows, int64_t begin,
                                       int64_t columns, Ahead* ahead) {
  Sums sums[kTileRows * kStrip];
  float folded[kTileRows * kStrip];
  const int64_t part = rows == 1 ? a.depth : kDepth;
  for (int64_t k = 0; k < a.depth; k += part) {
    const Operands some{wide + k, a.weight + begin * a.depth + k, a.depth,
                        std::min(part, a.depth - k), k == 0};
    add_strip_of(rows, some, columns, sums, ahead);
  }
  const int64_t products = rows * columns;
  for (int64_t i = products; i % 4 != 0; ++i) sums[i] = {};
  for (int64_t i = 0; i < products; i += 4) fold_four(sums + i, folded + i);
  const uint16_t* bias = a.bias == nullptr ? nullptr : a.bias + begin;
  for (int64_t r = 0; r < rows; ++r) {
    store(folded + r * columns, bias, columns, a.out + (first + r) * a.columns + begin);
  }
}

// From a cache line's beginning on.
float* buffer(int64_t n) {
  struct alignas(kCacheLine) Line {
    float floats[kCacheLine / sizeof(float)];
  };
  thread_local std::vector<Line> lines;
  const size_t wanted = (n * sizeof(float) + kCacheLine - 1) / kCacheLine;
  if (lines.size() < wanted) lines.resize(wanted);
  return lines.front().floats;
}

VLLM_KUNLUN_INLINE void multiply(const Linear& a, int64_t begin, int64_t end) {
  float* wide = buffer(std::min(kRows, a.num_rows) * a.depth);
  const int64_t strips = std::max<int64_t>(kWeights / (kStrip * a.depth), 1);
  const int64_t block = strips * kStrip;
  for (int64_t first = 0; first < a.num_rows; first += kRows) {
    const int64_t rows = std::min(kRows, a.num_rows - first);
    widen(a.x + first * a.depth, rows * a.depth, wide);
    for (int64_t c = begin; c < end; c += block) {
      const int64_t limit = std::min(c + block, end);
      // A tile row's steps are as many as a block has cache lines.
      const int64_t groups = (rows + kTileRows - 1) / kTileRows;
      const uint16_t* next = a.weight + (limit < end ? limit : c) * a.depth;
      Ahead ahead{reinterpret_cast<const char*>(next), kCacheLine / groups};
      for (int64_t r = 0, some; r < rows; r += some) {
        // A row by itself takes as long as two.
        some = rows - r == 4 ? 2 : std::min(kTileRows, rows - r);
        for (int64_t strip = c; strip < limit; strip += kStrip) {
          multiply_strip(a, wide + r * a.depth, first + r, some, strip,
                         std::min(kStrip, limit - strip), &ahead);
        }
      }
    }
  }
}

void plain(const Linear& a, int64_t begin, int64_t end) { multiply(a, begin, end); }

VLLM_KUNLUN_FUSED void fused(const Linear& a, int64_t begin, int64_t end) {
  multiply(a, begin, end);
}

}  // namespace

void linear(const Linear& a, int64_t begin, int64_t end) {
  static const auto version = cpu_fuses() ? fused : plain;
  version(a, begin, end);
}

}  // namespace vllm_kunlun::host
