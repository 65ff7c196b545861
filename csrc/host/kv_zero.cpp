// SPDX-License-Identifier: Apache-2.0
#include "contracts/kv_zero.h"

#include <algorithm>

#include "host/kernels.h"

namespace vllm_kunlun::host {

void zero_kv_blocks(const ZeroKvBlocks& a, int64_t begin, int64_t end) {
  for (int64_t program = begin; program < end; ++program) {
    const int64_t block = a.block_ids[program / a.num_segments];
    int32_t* segment = a.segments[program % a.num_segments];
    std::fill_n(segment + block * a.page_size, a.page_size, 0);
  }
}

}  // namespace vllm_kunlun::host
