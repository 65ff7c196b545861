// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/batched_tables.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const PrepareBlockTables& a, const Stream& stream) {
  const ApplyWrite& writes = a.writes;
  const GatherBlockTables& gather = a.gather;
  const ComputeSlotMappings& slots = a.slots;
  if (!fit(writes.num_writes, gather.num_groups * a.kept_stride,
           gather.num_groups * gather.num_rows,
           gather.num_groups * (gather.num_blocks_stride + 1), slots.max_num_tokens,
           slots.pad_id, slots.cp_size * slots.cp_interleave)) {
    return kTooLarge;
  }
  declare_tables("block_table_ptrs", gather.src_block_tables, gather.num_groups,
                 [&](int64_t g) {
                   // As many rows as there are requests' counts.
                   return gather.num_blocks_stride * gather.block_table_strides[g];
                 });
  declare_tables(
      "input_block_table_ptrs", gather.dst_block_tables, gather.num_groups,
      [&](int64_t g) { return gather.num_rows * gather.block_table_strides[g]; });
  return VLLM_KUNLUN_LAUNCH(
      stream, prepare_block_tables, device(gather.src_block_tables),
      device(gather.dst_block_tables), device(gather.block_table_strides),
      slots.block_sizes, gather.num_blocks, Int64{gather.num_blocks_stride}, a.kept_req,
      a.kept_blocks, i32(a.kept_stride), device(slots.slot_mappings),
      Int64{slots.slot_mappings_stride}, i32(slots.max_num_tokens),
      gather.batch_idx_to_req_idx, slots.query_start_loc, device(slots.pos),
      writes.group_ids, writes.indices, writes.starts, writes.cu_lens,
      static_cast<const Int32*>(writes.contents), i32(writes.num_writes),
      i32(slots.cp_rank), i32(slots.cp_size), i32(slots.cp_interleave),
      i32(slots.pad_id), i32(gather.num_reqs), i32(gather.num_rows),
      i32(gather.num_groups));
}

}  // namespace xpu
}  // namespace vllm_kunlun
