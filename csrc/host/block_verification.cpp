// SPDX-License-Identifier: Apache-2.0
#include "contracts/block_verification.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "host/kernels.h"
#include "host/logsumexp.h"

namespace vllm_kunlun::host {

void compute_cumulative_log_p(const ComputeCumulativeLogP& a, int64_t begin,
                              int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t req = a.idx_mapping[i];
    if (a.temp[req] == 0) continue;
    const int64_t start = a.cu_num_logits[i];
    const int64_t num_drafts = a.cu_num_logits[i + 1] - start - 1;
    float log_p = 0;
    for (int64_t k = 0; k < num_drafts; ++k) {
      const int64_t row = start + k;
      const int64_t draft = a.draft_sampled[row + 1];
      if (draft < 0) {
        log_p = -std::numeric_limits<float>::infinity();
      } else if (log_p > -std::numeric_limits<float>::infinity()) {
        const DraftOdds odds =
            draft_odds(a.target_logits, a.draft_logits, a.stats, row, req, k, draft);
        log_p = std::min(log_p + (odds.target_log_prob - odds.draft_log_prob), 0.0f);
      }
      a.cumulative_log_p[row] = log_p;
    }
  }
}

void compute_local_residual_mass(const ComputeLocalResidualMass& a, int64_t begin,
                                 int64_t end) {
  for (int64_t program = begin; program < end; ++program) {
    const int64_t row = program / a.num_blocks;
    const int64_t block = program % a.num_blocks;
    const int64_t step = a.expanded_local_pos[row];
    if (step == 0 || step >= a.num_speculative_steps) continue;
    const int64_t req = a.expanded_idx_mapping[row];
    if (a.temp[req] == 0) continue;
    const int64_t blocks = a.stats.num_blocks;
    const float target_logsumexp =
        global_logsumexp(a.stats.target_max[row], a.stats.target_sumexp[row], blocks);
    const float draft_logsumexp =
        global_logsumexp(a.stats.draft_max[row], a.stats.draft_sumexp[row], blocks);
    const float joint_ratio = std::exp(a.cumulative_log_p[row - 1]);

    const int64_t last = std::min((block + 1) * a.block_size, a.vocab_size);
    double mass = 0;
    for (int64_t t = block * a.block_size; t < last; t += kChunk) {
      const int64_t n = std::min(kChunk, last - t);
      float target_space[kChunk];
      float draft_space[kChunk];
      mass += residual_mass(target_row(a.target_logits, row, t, n, target_space),
                            draft_row(a.draft_logits, req, step, t, n, draft_space),
                            target_logsumexp, draft_logsumexp, joint_ratio, n);
    }
    a.local_residual_mass[row][block] = static_cast<float>(mass);
  }
}

}  // namespace vllm_kunlun::host
