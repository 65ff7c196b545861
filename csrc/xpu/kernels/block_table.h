// SPDX-License-Identifier: Apache-2.0
// contracts/block_table.h on the XPU. Capacity: a slot's number fits into 31 bits.
#ifndef VLLM_KUNLUN_XPU_KERNELS_BLOCK_TABLE_H_
#define VLLM_KUNLUN_XPU_KERNELS_BLOCK_TABLE_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void gather_block_tables(GmParam<const Int32> order,
                                    GmParam<const UInt64> src_tables,
                                    GmParam<const UInt64> dst_tables,
                                    GmParam<const Int64> strides,
                                    GmParam<const Int32> num_blocks,
                                    Int64 num_blocks_stride, int num_reqs,
                                    int num_groups, int num_rows);

__global__ void compute_slot_mappings(
    int max_num_tokens, GmParam<const Int32> idx_mapping,
    GmParam<const Int32> query_start_loc, GmParam<const Int64> pos,
    GmParam<const UInt64> tables, GmParam<const Int64> strides,
    GmParam<const Int32> block_sizes, GmParam<Int64> slots, Int64 slots_stride,
    int cp_rank, int cp_size, int cp_interleave, int pad_id, int num_groups,
    int num_columns);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_BLOCK_TABLE_H_
