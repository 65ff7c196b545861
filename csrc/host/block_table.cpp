// SPDX-License-Identifier: Apache-2.0
#include "contracts/block_table.h"

#include <algorithm>

#include "host/kernels.h"

namespace vllm_kunlun::host {

void gather_block_tables(const GatherBlockTables& a, int64_t begin, int64_t end) {
  for (int64_t program = begin; program < end; ++program) {
    const int64_t group = program / a.num_rows;
    const int64_t row = program % a.num_rows;
    const int64_t stride = a.block_table_strides[group];
    int32_t* dst = a.dst_block_tables[group] + row * stride;
    if (row >= a.num_reqs) {
      std::fill_n(dst, stride, 0);
      continue;
    }
    const int64_t req = a.batch_idx_to_req_idx[row];
    const int32_t* src = a.src_block_tables[group] + req * stride;
    std::copy_n(src, a.num_blocks[group * a.num_blocks_stride + req], dst);
  }
}

}  // namespace vllm_kunlun::host
