// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "xpu/host_side.h"
#include "xpu/kernels/block_table.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const GatherBlockTables& a, const Stream& stream) {
  if (!fit(a.num_groups * a.num_rows)) return kTooLarge;
  declare_tables("src_block_table_ptrs", a.src_block_tables, a.num_groups,
                 [&](int64_t g) {
                   // As many rows as there are requests' counts.
                   return a.num_blocks_stride * a.block_table_strides[g];
                 });
  declare_tables("dst_block_table_ptrs", a.dst_block_tables, a.num_groups,
                 [&](int64_t g) { return a.num_rows * a.block_table_strides[g]; });
  return VLLM_KUNLUN_LAUNCH(
      stream, gather_block_tables, a.batch_idx_to_req_idx, device(a.src_block_tables),
      device(a.dst_block_tables), device(a.block_table_strides), a.num_blocks,
      Int64{a.num_blocks_stride}, i32(a.num_reqs), i32(a.num_groups), i32(a.num_rows));
}

int launch(const ComputeSlotMappings& a, const Stream& stream) {
  if (!fit(a.max_num_tokens, a.num_groups * a.num_columns, a.pad_id,
           a.cp_size * a.cp_interleave)) {
    return kTooLarge;
  }
  if (a.num_columns == 0) return kOk;
  declare_tables("block_table_ptrs", a.block_tables, a.num_groups, [&](int64_t g) {
    int64_t rows = 0;
    for (int64_t i = 0; i + 1 < a.num_columns; ++i) {
      rows = std::max<int64_t>(rows, a.idx_mapping[i] + 1);
    }
    return rows * a.block_table_strides[g];
  });
  return VLLM_KUNLUN_LAUNCH(
      stream, compute_slot_mappings, i32(a.max_num_tokens), a.idx_mapping,
      a.query_start_loc, device(a.pos), device(a.block_tables),
      device(a.block_table_strides), a.block_sizes, device(a.slot_mappings),
      Int64{a.slot_mappings_stride}, i32(a.cp_rank), i32(a.cp_size),
      i32(a.cp_interleave), i32(a.pad_id), i32(a.num_groups), i32(a.num_columns));
}

}  // namespace xpu
}  // namespace vllm_kunlun
