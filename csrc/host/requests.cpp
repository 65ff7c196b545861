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

}  // namespace vllm_kunlun::host
