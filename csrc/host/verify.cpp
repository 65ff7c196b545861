// SPDX-License-Identifier: Apache-2.0
#include "contracts/verify.h"

#include <algorithm>
#include <limits>

#include "host/kernels.h"
#include "host/noise.h"
#include "host/simd.h"
#include "host/verify.h"

namespace vllm_kunlun::host {
namespace {

int64_t argmax(const TargetLogits& logits, int64_t row, int64_t vocab_size) {
  // The index is looked for once, in the chunk that has the largest.
  float largest = -std::numeric_limits<float>::infinity();
  int64_t best = -1;
  float buffer[kChunk];
  for (int64_t t = 0; t < vocab_size; t += kChunk) {
    const int64_t n = std::min(kChunk, vocab_size - t);
    const float found = largest_of(target_row(logits, row, t, n, buffer), n);
    if (found > largest) {
      largest = found;
      best = t;
    }
  }
  if (best < 0) return 0;
  const int64_t n = std::min(kChunk, vocab_size - best);
  return best + find_largest(target_row(logits, row, best, n, buffer), n).index;
}

// Accepts request i's drafts as long as they are the tokens of the rows before them.
template <class TokenOf>
void accept_equal(const VerifyGreedy& a, int64_t i, const TokenOf& token_of) {
  const int64_t first = a.counts.cu_num_logits[i];
  const int64_t num_drafts = a.counts.cu_num_logits[i + 1] - first - 1;
  int64_t k = 0;
  for (;; ++k) {
    const int64_t token = token_of(first + k);
    a.sampled[i][k] = token;
    if (k == num_drafts || a.draft_sampled[first + k + 1] != token) break;
  }
  a.counts.num_sampled[i] = static_cast<int32_t>(k + 1);
  get_num_sampled_and_rejected(a.counts, i, i + 1);
}

}  // namespace

void verify_greedy(const VerifyGreedy& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    accept_equal(a, i,
                 [&](int64_t row) { return argmax(a.logits, row, a.vocab_size); });
  }
}

void verify_drawn(const VerifyDrawn& a, int64_t begin, int64_t end) {
  const VerifyGreedy& v = a.verify;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t req = v.counts.idx_mapping[i];
    accept_equal(v, i, [&](int64_t row) {
      if (a.temp[req] == 0) return argmax(v.logits, row, v.vocab_size);
      const Noise noise{true, a.use_fp64, random_word(a.seeds[req], a.pos, row)};
      const auto logits = [&](int64_t t, int64_t n, float* buffer) {
        return target_row(v.logits, row, t, n, buffer);
      };
      return block_largest(0, v.vocab_size, noise, logits).index;
    });
  }
}

void rejection_sample(const RejectionSample& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t blocks = a.stats.num_blocks;
    const auto find_stats = [&](int64_t row) {
      compute_local_logits_stats(a.stats, row * blocks, (row + 1) * blocks);
    };
    const int64_t first = a.rejection.cu_num_logits[i];
    const int64_t last = a.rejection.cu_num_logits[i + 1];
    const bool is_greedy = a.rejection.temp[a.rejection.idx_mapping[i]] == 0;
    if (a.use_block_verification && !is_greedy) {
      for (int64_t row = first; row < last - 1; ++row) find_stats(row);
      compute_cumulative_log_p(a.cumulative_log_p, i, i + 1);
      if (a.local_residual_mass.draft_logits.data != nullptr) {
        compute_local_residual_mass(a.local_residual_mass, first * blocks,
                                    (last - 1) * blocks);
      }
      verify_drafts(a.rejection, i, [](int64_t) {});
    } else {
      // Rows after the first rejected draft are never looked at.
      verify_drafts(a.rejection, i, find_stats);
    }
    const int64_t resampled = a.resample.num_blocks;
    resample(a.resample, i * resampled, (i + 1) * resampled);
    insert_resampled(a.insert_resampled, i, i + 1);
    get_num_sampled_and_rejected(a.counts, i, i + 1);
  }
}

}  // namespace vllm_kunlun::host
