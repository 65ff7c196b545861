// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "xpu/host_side.h"
#include "xpu/kernels/kv_zero.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const ZeroKvBlocks& a, const Stream& stream) {
  if (!fit(a.page_size, a.num_blocks * a.num_segments)) return kTooLarge;
  declare_tables("seg_addrs_ptr", a.segments, a.num_segments, [&](int64_t) {
    // How long a segment is is not in the contract: up to the last of the blocks.
    int64_t blocks = 0;
    for (int64_t i = 0; i < a.num_blocks; ++i) {
      blocks = std::max(blocks, a.block_ids[i] + 1);
    }
    return blocks * a.page_size;
  });
  return VLLM_KUNLUN_LAUNCH(stream, zero_kv_blocks, device(a.segments),
                            device(a.block_ids), i32(a.num_blocks), i32(a.num_segments),
                            i32(a.page_size));
}

}  // namespace xpu
}  // namespace vllm_kunlun
