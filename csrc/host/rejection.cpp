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

namespace vllm_kunlun::host {
namespace {

float uniform(int64_t seed, const IntList& pos, int64_t row) {
  return std::max(unit_float(random_word(seed, pos, row)), kUnitScale);
}

// The drafts of a request, up to the first negative one.
int64_t usable_drafts(const IntList& draft_sampled, int64_t start, int64_t num_drafts) {
  int64_t k = 0;
  while (k < num_drafts && draft_sampled[start + k + 1] >= 0) ++k;
  return k;
}

// What _rejection_kernel knows about a request.
struct Verified {
  int64_t i;
  int64_t req;
  int64_t start;
  int64_t num_drafts;
};

int64_t verify_greedy(const Rejection& a, const Verified& v) {
  const int64_t blocks = a.stats.num_blocks;
  for (int64_t k = 0; k < v.num_drafts; ++k) {
    const int64_t row = v.start + k;
    const int64_t draft = a.draft_sampled[row + 1];
    const int64_t block = find_largest(a.stats.target_max[row], blocks).index;
    const int64_t argmax = a.target_argmax[row][block];
    const bool accepted = a.synthetic_conditional_rates != nullptr
                              ? draft >= 0 && uniform(a.seed[v.req], a.pos, row) <
                                                  a.synthetic_conditional_rates[k]
                              : draft == argmax;
    a.sampled[v.i][k] = accepted ? draft : argmax;
    if (!accepted) return k;
  }
  return v.num_drafts;
}

int64_t verify_standard(const Rejection& a, const Verified& v) {
  for (int64_t k = 0; k < v.num_drafts; ++k) {
    const int64_t row = v.start + k;
    const int64_t draft = a.draft_sampled[row + 1];
    const int64_t token = std::max<int64_t>(draft, 0);
    const DraftOdds odds =
        draft_odds(a.target_logits, a.draft_logits, a.stats, row, v.req, k, token);
    a.target_logsumexp[v.i] = odds.target_logsumexp;
    a.draft_logsumexp[v.i] = odds.draft_logsumexp;
    a.sampled[v.i][k] = token;
    const float u = uniform(a.seed[v.req], a.pos, row);
    const bool accepted =
        a.synthetic_conditional_rates != nullptr
            ? u < a.synthetic_conditional_rates[k]
            : odds.target_log_prob > std::log(u) + odds.draft_log_prob;
    if (!accepted || draft < 0) return k;
  }
  return v.num_drafts;
}

// The chance that block verification accepts all drafts up to the k-th.
float block_threshold(const Rejection& a, int64_t row, float joint_ratio) {
  float mass = 0;
  if (a.draft_logits.data != nullptr) {
    double sum = 0;
    for (int64_t b = 0; b < a.stats.num_blocks; ++b) {
      sum += a.local_residual_mass[row + 1][b];
    }
    mass = static_cast<float>(sum);
  } else {
    const DraftOdds odds = draft_odds(a.target_logits, a.draft_logits, a.stats, row + 1,
                                      0, 0, a.draft_sampled[row + 2]);
    mass = joint_ratio * (1.0f - std::exp(odds.target_log_prob));
  }
  const float denominator = mass + 1.0f - joint_ratio;
  return denominator > 0.0f ? mass / denominator : 1.0f;
}

int64_t verify_block(const Rejection& a, const Verified& v) {
  for (int64_t k = 0; k < v.num_drafts; ++k) {
    a.sampled[v.i][k] = a.draft_sampled[v.start + k + 1];
  }
  // A later draft can be accepted where an earlier one alone was not.
  const int64_t usable = usable_drafts(a.draft_sampled, v.start, v.num_drafts);
  int64_t accepted = usable;
  for (; accepted > 0; --accepted) {
    const int64_t row = v.start + accepted - 1;
    const float joint_ratio = std::exp(a.cumulative_log_p[row]);
    const float h =
        accepted < usable ? block_threshold(a, row, joint_ratio) : joint_ratio;
    if (uniform(a.seed[v.req], a.pos, row) <= h) break;
  }
  if (accepted < v.num_drafts) {
    const int64_t row = v.start + accepted;
    const int64_t blocks = a.stats.num_blocks;
    a.target_logsumexp[v.i] =
        global_logsumexp(a.stats.target_max[row], a.stats.target_sumexp[row], blocks);
    if (a.draft_logits.data != nullptr) {
      a.draft_logsumexp[v.i] =
          global_logsumexp(a.stats.draft_max[row], a.stats.draft_sumexp[row], blocks);
    }
  }
  return accepted;
}

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

// The logits of n <= kChunk tokens from `first` on.
const float* residual_logits(const Resample& a, const Resampled& r, int64_t first,
                             int64_t n, float* buffer) {
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
  for (int64_t i = begin; i < end; ++i) {
    const int64_t start = a.cu_num_logits[i];
    const Verified v{i, a.idx_mapping[i], start, a.cu_num_logits[i + 1] - start - 1};
    a.target_logsumexp[i] = 0;
    a.draft_logsumexp[i] = 0;
    int64_t accepted;
    if (a.temp[v.req] == 0) {
      accepted = verify_greedy(a, v);
    } else if (a.cumulative_log_p != nullptr) {
      accepted = verify_block(a, v);
    } else {
      accepted = verify_standard(a, v);
    }
    a.rejected_steps[i] = static_cast<int32_t>(std::max<int64_t>(accepted, 0));
  }
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
    const Largest<double> best =
        block_largest(first, last, noise, [&](int64_t t, int64_t n, float* buffer) {
          return residual_logits(a, r, t, n, buffer);
        });
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
