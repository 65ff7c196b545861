// SPDX-License-Identifier: Apache-2.0
#include "contracts/requests.h"

#include <algorithm>
#include <numeric>

#include "host/kernels.h"

namespace vllm_kunlun::host {

void expand_idx_mapping(const ExpandIdxMapping& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = a.cu_num_logits[i];
    const int64_t last = a.cu_num_logits[i + 1];
    if (last <= first) continue;
    std::fill(a.expanded_idx_mapping + first, a.expanded_idx_mapping + last,
              a.idx_mapping[i]);
    std::iota(a.expanded_local_pos + first, a.expanded_local_pos + last, 0);
  }
}

void post_update_num_computed_tokens(const PostUpdateNumComputedTokens& a,
                                     int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    a.num_computed_tokens[a.idx_mapping[i]] +=
        a.query_start_loc[i + 1] - a.query_start_loc[i];
  }
}

void dcp_local_seq_lens(const DcpLocalSeqLens& a, int64_t begin, int64_t end) {
  const int64_t round = a.dcp_size * a.cp_interleave;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t seq_len = i < a.num_reqs ? a.seq_lens[i] : 0;
    const int64_t rest = seq_len % round - a.dcp_rank * a.cp_interleave;
    a.out[i] = static_cast<int32_t>(seq_len / round * a.cp_interleave +
                                    std::clamp<int64_t>(rest, 0, a.cp_interleave));
  }
}

void scatter_num_accepted(const ScatterNumAccepted& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (a.idx_mapping[i] < 0) continue;
    a.num_accepted[a.idx_mapping[i]] = std::max(a.num_sampled[i], 1);
  }
}

}  // namespace vllm_kunlun::host
