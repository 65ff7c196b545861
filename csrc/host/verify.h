// SPDX-License-Identifier: Apache-2.0
// How many of a request's drafts are accepted: what rejection and rejection_sample
// share.
#ifndef VLLM_KUNLUN_HOST_VERIFY_H_
#define VLLM_KUNLUN_HOST_VERIFY_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "contracts/rejection.h"
#include "host/logsumexp.h"
#include "host/noise.h"
#include "host/simd.h"

namespace vllm_kunlun::host {

inline float uniform(int64_t seed, const IntList& pos, int64_t row) {
  return std::max(unit_float(random_word(seed, pos, row)), kUnitScale);
}

// The drafts of a request, up to the first negative one.
inline int64_t usable_drafts(const IntList& draft_sampled, int64_t start,
                             int64_t num_drafts) {
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

template <class FindStats>
int64_t verify_argmax(const Rejection& a, const Verified& v,
                      const FindStats& find_stats) {
  const int64_t blocks = a.stats.num_blocks;
  for (int64_t k = 0; k < v.num_drafts; ++k) {
    const int64_t row = v.start + k;
    const int64_t draft = a.draft_sampled[row + 1];
    find_stats(row);
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

template <class FindStats>
int64_t verify_standard(const Rejection& a, const Verified& v,
                        const FindStats& find_stats) {
  for (int64_t k = 0; k < v.num_drafts; ++k) {
    const int64_t row = v.start + k;
    const int64_t draft = a.draft_sampled[row + 1];
    find_stats(row);
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
inline float block_threshold(const Rejection& a, int64_t row, float joint_ratio) {
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

inline int64_t verify_block(const Rejection& a, const Verified& v) {
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

// Does what rejection does for request i. find_stats(row) is called before the stats of
// a row are read for the first time; block verification expects all of them.
template <class FindStats>
void verify_drafts(const Rejection& a, int64_t i, const FindStats& find_stats) {
  const int64_t start = a.cu_num_logits[i];
  const Verified v{i, a.idx_mapping[i], start, a.cu_num_logits[i + 1] - start - 1};
  a.target_logsumexp[i] = 0;
  a.draft_logsumexp[i] = 0;
  int64_t accepted;
  if (a.temp[v.req] == 0) {
    accepted = verify_argmax(a, v, find_stats);
  } else if (a.cumulative_log_p != nullptr) {
    accepted = verify_block(a, v);
  } else {
    accepted = verify_standard(a, v, find_stats);
  }
  a.rejected_steps[i] = static_cast<int32_t>(std::max<int64_t>(accepted, 0));
}

}  // namespace vllm_kunlun::host

#endif  // VLLM_KUNLUN_HOST_VERIFY_H_
