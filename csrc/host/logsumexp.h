// SPDX-License-Identifier: Apache-2.0
// Exponentials and probabilities.
#ifndef VLLM_KUNLUN_HOST_LOGSUMEXP_H_
#define VLLM_KUNLUN_HOST_LOGSUMEXP_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "contracts/rejection.h"
#include "host/simd.h"

namespace vllm_kunlun::host {

inline const float* target_row(const TargetLogits& logits, int64_t row, int64_t first,
                               int64_t n, float* buffer) {
  return as_float(logits.data, logits.type, row * logits.stride + first, n, buffer);
}

inline const float* draft_row(const DraftLogits& logits, int64_t req, int64_t step,
                              int64_t first, int64_t n, float* buffer) {
  const int64_t begin = req * logits.req_stride + step * logits.step_stride + first;
  return as_float(logits.data, logits.type, begin, n, buffer);
}

// The logarithm of a row's sum of exponentials, from its blocks.
float global_logsumexp(const float* max, const float* sumexp, int64_t blocks);

// A draft's log probability for the target and for the drafter, and what both were
// divided by.
struct DraftOdds {
  float target_log_prob;
  float draft_log_prob;
  float target_logsumexp;
  float draft_logsumexp;
};

inline DraftOdds draft_odds(const TargetLogits& target, const DraftLogits& draft,
                            const LogitsStats& stats, int64_t row, int64_t req,
                            int64_t step, int64_t token) {
  float value;
  DraftOdds odds{0, 0, 0, 0};
  odds.target_logsumexp = global_logsumexp(stats.target_max[row],
                                           stats.target_sumexp[row], stats.num_blocks);
  odds.target_log_prob =
      *target_row(target, row, token, 1, &value) - odds.target_logsumexp;
  if (draft.data != nullptr) {
    odds.draft_logsumexp = global_logsumexp(stats.draft_max[row],
                                            stats.draft_sumexp[row], stats.num_blocks);
    odds.draft_log_prob =
        *draft_row(draft, req, step, token, 1, &value) - odds.draft_logsumexp;
  }
  return odds;
}

// sum of exp(x - max), for max >= x; in f64, so that the size of the vocabulary costs
// no precision.
double sum_exp(const float* x, float max, int64_t n);

// sum of max(joint_ratio * exp(target - target_logsumexp) - exp(draft -
// draft_logsumexp), 0).
double residual_mass(const float* target, const float* draft, float target_logsumexp,
                     float draft_logsumexp, float joint_ratio, int64_t n);

// log(max(exp(a) - exp(b), 0)) with a = target - target_logsumexp + shift and
// b = draft - draft_logsumexp.
void log_residual(const float* target, const float* draft, float target_logsumexp,
                  float shift, float draft_logsumexp, int64_t n, float* out);

// The same or up to 0.07 more, for much less work.
void log_residual_bounds(const float* target, const float* draft,
                         float target_logsumexp, float shift, float draft_logsumexp,
                         int64_t n, float* out);

}  // namespace vllm_kunlun::host

#endif  // VLLM_KUNLUN_HOST_LOGSUMEXP_H_
