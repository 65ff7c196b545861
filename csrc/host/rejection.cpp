// SPDX-License-Identifier: Apache-2.0
#include "contracts/rejection.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "contracts/philox.h"
#include "host/kernels.h"
#include "host/logsumexp.h"
#include "host/noise.h"
#include "host/simd.h"
#include "host/verify.h"

namespace vllm_kunlun::host {
namespace {

// Writes a block's largest value and its sum of exponentials.
template <class ChunkOf>
void block_stats(int64_t first, int64_t last, const ChunkOf& chunk_of, float* max,
                 float* sumexp) {
  float buffer[kChunk];
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t t = first; t < last; t += kChunk) {
    const int64_t n = std::min(kChunk, last - t);
    largest = std::max(largest, largest_of(chunk_of(t, n, buffer), n));
  }
  double sum = 0;
  if (largest > -std::numeric_limits<float>::infinity()) {
    for (int64_t t = first; t < last; t += kChunk) {
      const int64_t n = std::min(kChunk, last - t);
      sum += sum_exp(chunk_of(t, n, buffer), largest, n);
    }
  }
  *max = largest;
  *sumexp = static_cast<float>(sum);
}

// The row after the accepted drafts, which a request samples from.
struct Resampled {
  int64_t i;
  int64_t row;
  int64_t step;
  int64_t req;
  bool from_target;
};

// Writes the logarithms of what is left of the target's probabilities, or bounds.
using LogResidual = void (*)(const float*, const float*, float, float, float, int64_t,
                             float*);

// The logits of n <= kChunk tokens from `first` on.
const float* residual_logits(const Resample& a, const Resampled& r,
                             LogResidual log_residual, int64_t first, int64_t n,
                             float* buffer) {
  const float* target = target_row(a.target_logits, r.row, first, n, buffer);
  if (r.from_target) return target;
  if (a.draft_logits.data != nullptr) {
    float space[kChunk];
    const float* draft = draft_row(a.draft_logits, r.req, r.step, first, n, space);
    const bool shifted = a.cumulative_log_p != nullptr && r.step > 0;
    log_residual(target, draft, a.target_logsumexp[r.i],
                 shifted ? a.cumulative_log_p[r.row - 1] : 0.0f, a.draft_logsumexp[r.i],
                 n, buffer);
    return buffer;
  }
  const int64_t rejected = a.draft_sampled[r.row + 1] - first;
  if (rejected < 0 || rejected >= n) return target;
  if (target != buffer) std::copy_n(target, n, buffer);
  buffer[rejected] = -std::numeric_limits<float>::infinity();
  return buffer;
}

}  // namespace

void compute_local_logits_stats(const ComputeLocalLogitsStats& a, int64_t begin,
                                int64_t end) {
  for (int64_t program = begin; program < end; ++program) {
    const int64_t row = program / a.num_blocks;
    const int64_t block = program % a.num_blocks;
    const int64_t step = a.expanded_local_pos[row];
    if (step >= a.num_speculative_steps) continue;
    const int64_t req = a.expanded_idx_mapping[row];
    const int64_t first = block * a.block_size;
    const int64_t last = std::min(first + a.block_size, a.vocab_size);
    const auto target = [&](int64_t t, int64_t n, float* buffer) {
      return target_row(a.target_logits, row, t, n, buffer);
    };
    if (a.temp[req] == 0) {
      const Largest<double> found = block_largest(first, last, {}, target);
      a.target_argmax[row][block] = found.index;
      a.target_max[row][block] = static_cast<float>(found.value);
      continue;
    }
    block_stats(first, last, target, a.target_max[row] + block,
                a.target_sumexp[row] + block);
    if (a.draft_logits.data == nullptr) continue;
    const auto draft = [&](int64_t t, int64_t n, float* buffer) {
      return draft_row(a.draft_logits, req, step, t, n, buffer);
    };
    block_stats(first, last, draft, a.draft_max[row] + block,
                a.draft_sumexp[row] + block);
  }
}

void rejection(const Rejection& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) verify_drafts(a, i, [](int64_t) {});
}

void resample(const Resample& a, int64_t begin, int64_t end) {
  for (int64_t program = begin; program < end; ++program) {
    const int64_t i = program / a.num_blocks;
    const int64_t block = program % a.num_blocks;
    Resampled r{};
    r.i = i;
    r.step = a.rejected_step[i];
    r.row = a.cu_num_logits[i] + r.step;
    r.req = a.expanded_idx_mapping[r.row];
    const bool is_bonus = r.row == a.cu_num_logits[i + 1] - 1;
    if (a.temp[r.req] == 0 && !is_bonus) continue;
    r.from_target = is_bonus || a.draft_sampled[r.row + 1] < 0;
    Noise noise;
    if (a.temp[r.req] != 0) {
      noise = {true, a.use_fp64, random_word(a.seed[r.req], a.pos, r.row)};
    }

    const int64_t first = block * a.block_size;
    const int64_t last = std::min(first + a.block_size, a.vocab_size);
    const bool takes_bounds = noise.is_on && !noise.is_f64;
    const LogResidual residual = takes_bounds ? log_residual_bounds : log_residual;
    const auto logits_of = [&](int64_t t, int64_t n, float* buffer) {
      return residual_logits(a, r, residual, t, n, buffer);
    };
    const auto logit_of = [&](const float*, int64_t t, int64_t k) {
      float logit;
      return *residual_logits(a, r, log_residual, t + k, 1, &logit);
    };
    const Largest<double> best = block_largest(first, last, noise, logits_of, logit_of);
    a.local_argmax[i][block] = best.index;
    const int64_t at = i * a.local_max_stride + block;
    if (a.use_fp64) {
      static_cast<double*>(a.local_max)[at] = best.value;
    } else {
      static_cast<float*>(a.local_max)[at] = static_cast<float>(best.value);
    }
  }
}

void insert_resampled(const InsertResampled& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t accepted = a.num_sampled[i];
    const int64_t row = a.cu_num_logits[i] + accepted;
    a.num_sampled[i] = static_cast<int32_t>(accepted + 1);
    const bool is_bonus = row == a.cu_num_logits[i + 1] - 1;
    if (a.temp[a.expanded_idx_mapping[row]] == 0 && !is_bonus) continue;
    const int64_t at = i * a.local_max_stride;
    const int64_t blocks = a.num_blocks;
    const int64_t block =
        a.is_fp64
            ? find_largest(static_cast<const double*>(a.local_max) + at, blocks).index
            : find_largest(static_cast<const float*>(a.local_max) + at, blocks).index;
    a.sampled[i][accepted] = a.local_argmax[i][block];
  }
}

void flatten_sampled(const FlattenSampled& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t n = std::max(a.num_sampled[i], 0);
    std::copy_n(a.sampled[i], n, a.flat_sampled + a.cu_num_logits[i]);
  }
}

}  // namespace vllm_kunlun::host
