// SPDX-License-Identifier: Apache-2.0
// contracts/step.h, PrepareBlockTables, on the XPU. Capacity: a slot's number fits into
// 31 bits.
#ifndef VLLM_KUNLUN_XPU_KERNELS_BATCHED_TABLES_H_
#define VLLM_KUNLUN_XPU_KERNELS_BATCHED_TABLES_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

// Without staged writes num_writes is 0, and what belongs to them null.
__global__ void prepare_block_tables(
    GmParam<const UInt64> tables, GmParam<const UInt64> batch_tables,
    GmParam<const Int64> strides, GmParam<const Int32> block_sizes,
    GmParam<const Int32> num_blocks, Int64 num_blocks_stride, GmParam<Int32> kept_req,
    GmParam<Int32> kept_blocks, int kept_stride, GmParam<Int64> slots,
    Int64 slots_stride, int max_num_tokens, GmParam<const Int32> idx_mapping,
    GmParam<const Int32> query_start_loc, GmParam<const Int64> pos,
    GmParam<const Int32> write_groups, GmParam<const Int32> write_rows,
    GmParam<const Int32> write_starts, GmParam<const Int32> write_ends,
    GmParam<const Int32> contents, int num_writes, int cp_rank, int cp_size,
    int cp_interleave, int pad_id, int num_reqs, int num_rows, int num_groups);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_BATCHED_TABLES_H_
