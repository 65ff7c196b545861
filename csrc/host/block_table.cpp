// SPDX-License-Identifier: Apache-2.0
#include "contracts/block_table.h"

#include <algorithm>

#include "host/kernels.h"

namespace vllm_kunlun::host {
namespace {

// The place of a rank's own token in its share of a block, or -1.
int64_t local_offset(const ComputeSlotMappings& a, int64_t offset) {
  if (offset / a.cp_interleave % a.cp_size != a.cp_rank) return -1;
  const int64_t rounds = offset / (a.cp_interleave * a.cp_size);
  return rounds * a.cp_interleave + offset % a.cp_interleave;
}

}  // namespace

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

void compute_slot_mappings(const ComputeSlotMappings& a, int64_t begin, int64_t end) {
  for (int64_t program = begin; program < end; ++program) {
    const int64_t group = program / a.num_columns;
    const int64_t column = program % a.num_columns;
    const int64_t first = a.query_start_loc[column];
    int64_t* slots = a.slot_mappings + group * a.slot_mappings_stride;
    if (column == a.num_columns - 1) {
      std::fill(slots + first, slots + std::max(first, a.max_num_tokens), a.pad_id);
      continue;
    }
    const int64_t last = a.query_start_loc[column + 1];
    const int64_t block_size = a.block_sizes[group];
    const int64_t positions_per_block = block_size * a.cp_size;
    const int32_t* blocks =
        a.block_tables[group] + a.idx_mapping[column] * a.block_table_strides[group];
    for (int64_t t = first; t < last; ++t) {
      const int64_t slot = blocks[a.pos[t] / positions_per_block] * block_size;
      const int64_t offset = a.pos[t] % positions_per_block;
      if (a.cp_size == 1) {
        slots[t] = slot + offset;
      } else {
        const int64_t local = local_offset(a, offset);
        slots[t] = local < 0 ? a.pad_id : slot + local;
      }
    }
  }
}

}  // namespace vllm_kunlun::host
