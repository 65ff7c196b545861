// SPDX-License-Identifier: Apache-2.0
#include "contracts/markov.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "host/floats.h"
#include "host/kernels.h"
#include "host/simd.h"

namespace vllm_kunlun::host {
namespace {

static_assert(kMarkovBlock <= kChunk);

// Tokens that are looked at before asking whether one of them can be the best.
constexpr int64_t kGroup = 64;

float round_to(FloatType type, float x) {
  switch (type) {
    case FloatType::kF16:
      return nearest<F16>(x);
    case FloatType::kBF16:
      return nearest<BF16>(x);
    case FloatType::kF32:
      break;
  }
  return x;
}

// How much rounding can add to a sum, as a part of its terms: for the type of the
// logits and, in all of them, for an f32 accumulation of up to kChunk terms.
float slack_of(FloatType type) {
  switch (type) {
    case FloatType::kF16:
      return 0x1p-9f;
    case FloatType::kBF16:
      return 0x1p-6f;
    case FloatType::kF32:
      break;
  }
  return 0x1p-15f;
}

// The most that each biased logit can be.
VLLM_KUNLUN_VERSIONS
void limits(const float* base, const float* norms, float norm, float slack, int64_t n,
            float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float bias = norm * norms[i];
    out[i] = base[i] + bias + slack * (std::fabs(base[i]) + bias) + 0x1p-23f;
  }
}

VLLM_KUNLUN_VERSIONS
bool any_reaches(const float* x, float least, int64_t n) {
  int hits = 0;
  for (int64_t i = 0; i < n; ++i) hits |= x[i] >= least;
  return hits != 0;
}

// Requests that share a look at the head's weights.
constexpr int64_t kTile = 16;

struct Best {
  float logit;
  int64_t token;

  void take(float other, int64_t at) {
    if (other > logit || (other == logit && at < token)) *this = {other, at};
  }
};

// A request's view of a block of the vocabulary.
struct Row {
  float base_buffer[kChunk];
  float w1_buffer[kChunk];
  float limit[kChunk];
  const float* base;
  const float* w1;
  Best best;
  int32_t products;

  void open(const MarkovArgmax& a, int64_t req, int64_t first, int64_t n) {
    const int64_t previous =
        a.step == 0 ? a.anchors[req * a.anchor_stride]
                    : a.draft_tokens[req * a.draft_tokens_stride + a.step - 1];
    const int64_t begin = req * a.req_stride + a.step * a.step_stride + first;
    base = as_float(a.base_logits, a.type, begin, n, base_buffer);
    w1 = as_float(a.w1, a.type, previous * a.rank, a.rank, w1_buffer);
    const float norm = std::sqrt(dot(w1, w1, a.rank)) * (1 + 0x1p-15f);
    limits(base, a.w2_norms + first, norm, slack_of(a.type), n, limit);
    products = 0;
  }

  void take(const MarkovArgmax& a, const float* w2, int64_t first, int64_t i) {
    const float bias = round_to(a.type, dot(w1, w2, a.rank));
    best.take(round_to(a.type, base[i] + bias), first + i);
    ++products;
  }
};

// What the block changes of the best tokens of `count` requests.
void look_at(const MarkovArgmax& a, int64_t block, Row* rows, int64_t count) {
  const int64_t first = block * kMarkovBlock;
  const int64_t n = std::min(kMarkovBlock, a.vocab_size - first);
  float buffer[kChunk];
  const auto w2_row = [&](int64_t i) {
    return as_float(a.w2, a.type, (first + i) * a.rank, a.rank, buffer);
  };

  // The best token is often the best one without its bias: then few others can be.
  for (int64_t r = 0; r < count; ++r) {
    const int64_t likely = find_largest(rows[r].base, n).index;
    if (rows[r].limit[likely] >= rows[r].best.logit) {
      rows[r].take(a, w2_row(likely), first, likely);
    }
  }
  for (int64_t i = 0; i < n; i += kGroup) {
    const int64_t group_end = std::min(i + kGroup, n);
    int64_t open[kTile];
    int64_t num_open = 0;
    for (int64_t r = 0; r < count; ++r) {
      if (any_reaches(rows[r].limit + i, rows[r].best.logit, group_end - i)) {
        open[num_open++] = r;
      }
    }
    for (int64_t j = i; num_open > 0 && j < group_end; ++j) {
      const float* w2 = nullptr;
      for (int64_t k = 0; k < num_open; ++k) {
        Row& row = rows[open[k]];
        if (!(row.limit[j] >= row.best.logit)) continue;
        if (w2 == nullptr) w2 = w2_row(j);
        row.take(a, w2, first, j);
      }
    }
  }
}

}  // namespace

void find_markov_best(const MarkovArgmax& a, int64_t begin, int64_t end) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Row rows[kTile];
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * kMarkovBlock;
    const int64_t n = std::min(kMarkovBlock, a.vocab_size - first);
    for (int64_t tile = 0; tile < a.num_reqs; tile += kTile) {
      const int64_t count = std::min(kTile, a.num_reqs - tile);
      const int64_t out = block * a.num_reqs + tile;
      for (int64_t r = 0; r < count; ++r) {
        rows[r].open(a, tile + r, first, n);
        rows[r].best = {kLowest, std::numeric_limits<int32_t>::max()};
        // What the blocks before have found rules out more of this one's.
        const int64_t before = out + r - a.num_reqs;
        if (block > begin) rows[r].best = {a.block_max[before], a.block_argmax[before]};
      }
      look_at(a, block, rows, count);
      for (int64_t r = 0; r < count; ++r) {
        a.block_max[out + r] = rows[r].best.logit;
        a.block_argmax[out + r] = static_cast<int32_t>(rows[r].best.token);
        a.block_products[out + r] = rows[r].products;
      }
    }
  }
}

void choose_markov_draft(const MarkovArgmax& a, int64_t begin, int64_t end) {
  const int64_t num_blocks = (a.vocab_size + kMarkovBlock - 1) / kMarkovBlock;
  for (int64_t req = begin; req < end; ++req) {
    Best best{-std::numeric_limits<float>::infinity(), 0};
    for (int64_t block = 0; block < num_blocks; ++block) {
      const int64_t at = block * a.num_reqs + req;
      if (a.block_max[at] > best.logit) {
        best = {a.block_max[at], a.block_argmax[at]};
      }
    }
    const int64_t offset = a.d2t == nullptr ? 0 : a.d2t[best.token];
    const int64_t token = best.token + offset;
    a.draft_tokens[req * a.draft_tokens_stride + a.step] = token;
    if (a.table != nullptr && a.rows[req] >= 0) {
      a.table[a.rows[req] * a.table_stride + a.step] = token;
    }
  }
}

}  // namespace vllm_kunlun::host
