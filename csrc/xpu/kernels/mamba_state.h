// SPDX-License-Identifier: Apache-2.0
// contracts/mamba_state.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_MAMBA_STATE_H_
#define VLLM_KUNLUN_XPU_KERNELS_MAMBA_STATE_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

const int kStateParts = 16;  // cores that share the move of one state

__global__ void preprocess_mamba_align(GmParam<const Int32> idx_mapping,
                                       GmParam<Int32> state_idx,
                                       GmParam<const Int32> num_computed_tokens,
                                       GmParam<const Int32> query_start_loc,
                                       GmParam<Int32> num_accepted,
                                       GmParam<Int32> src_col, GmParam<Int32> src_off,
                                       int mamba_block_size, int num_reqs);

__global__ void precopy_mamba_align(
    GmParam<const Int32> state_idx, GmParam<const Int32> src_col,
    GmParam<const Int32> token_bias, GmParam<const Int32> idx_mapping, int num_reqs,
    GmParam<const UInt64> block_tables, Int64 block_table_stride,
    GmParam<const Int64> base_addresses, GmParam<const Int64> block_strides,
    GmParam<const Int32> element_sizes, GmParam<const Int64> inner_sizes,
    GmParam<const Int32> conv_widths, GmParam<const Int32> groups,
    GmParam<const Int32> row_counts, GmParam<const Int64> row_strides, int num_states,
    bool dim_first);

// num_scheduled_tokens, num_draft_tokens and idx_mapping may be null.
__global__ void postprocess_mamba_states(
    GmParam<const Int32> num_accepted, GmParam<const Int32> state_idx,
    GmParam<const Int32> num_scheduled_tokens, GmParam<const Int32> num_computed_tokens,
    GmParam<const Int32> num_draft_tokens, GmParam<const Int32> idx_mapping,
    int block_size, int num_reqs, GmParam<const UInt64> block_tables,
    Int64 block_table_stride, GmParam<const Int64> base_addresses,
    GmParam<const Int64> block_strides, GmParam<const Int32> element_sizes,
    GmParam<const Int64> inner_sizes, GmParam<const Int32> conv_widths,
    GmParam<const Int32> groups, GmParam<const Int32> row_counts,
    GmParam<const Int64> row_strides, int num_states, bool dim_first);

// A launch of its own: accepted_out may be what all cores decide on the moves by.
__global__ void postprocess_mamba_accepted(
    GmParam<const Int32> num_accepted, GmParam<const Int32> state_idx,
    GmParam<const Int32> num_scheduled_tokens, GmParam<const Int32> num_computed_tokens,
    GmParam<const Int32> num_draft_tokens, GmParam<Int32> accepted_out,
    GmParam<const Int32> idx_mapping, int block_size, int num_reqs);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_MAMBA_STATE_H_
