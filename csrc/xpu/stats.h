// SPDX-License-Identifier: Apache-2.0
// What the kernels of rejection sampling read: contracts/rejection.h. C++11, for the
// XPU's cores.
#ifndef VLLM_KUNLUN_XPU_STATS_H_
#define VLLM_KUNLUN_XPU_STATS_H_

#include "xpu/logits.h"
#include "xpu/math.h"

namespace vllm_kunlun {
namespace xpu {

// The logarithm of a row's sum of exponentials, from its blocks.
__device__ inline float global_logsumexp(Gm<const float> max, Gm<const float> sumexp,
                                         int num_blocks) {
  float largest = -infinity();
  for (int b = 0; b < num_blocks; ++b) {
    const float value = max[b];
    largest = value > largest ? value : largest;
  }
  Sum sum;
  sum.clear();
  for (int b = 0; b < num_blocks; ++b) {
    sum.add(sumexp[b] * exp_f32(max[b] - largest));
  }
  return largest + log_f32(sum.total);
}

// A draft's log probability for the target and for the drafter, and what both were
// divided by.
struct DraftOdds {
  float target_log_prob;
  float draft_log_prob;
  float target_logsumexp;
  float draft_logsumexp;
};

// Pointers at the row's blocks; without a drafter's logits its probability is 1.
__device__ inline DraftOdds draft_odds(const Logits& target, Int64 target_at,
                                       const Logits& draft, Int64 draft_at, int token,
                                       Gm<const float> target_max,
                                       Gm<const float> target_sumexp,
                                       Gm<const float> draft_max,
                                       Gm<const float> draft_sumexp, int num_blocks) {
  DraftOdds odds = {0.0f, 0.0f, 0.0f, 0.0f};
  odds.target_logsumexp = global_logsumexp(target_max, target_sumexp, num_blocks);
  odds.target_log_prob = one_logit(target, target_at + token) - odds.target_logsumexp;
  if (!draft.is_none()) {
    odds.draft_logsumexp = global_logsumexp(draft_max, draft_sumexp, num_blocks);
    odds.draft_log_prob = one_logit(draft, draft_at + token) - odds.draft_logsumexp;
  }
  return odds;
}

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_STATS_H_
