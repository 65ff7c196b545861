// SPDX-License-Identifier: Apache-2.0
// contracts/dflash.h on the XPU. Capacity: a slot's number fits into 31 bits.
#ifndef VLLM_KUNLUN_XPU_KERNELS_DFLASH_H_
#define VLLM_KUNLUN_XPU_KERNELS_DFLASH_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void prepare_dflash_inputs(
    GmParam<Int32> input_ids, GmParam<Int64> query_positions,
    GmParam<Int32> query_start_loc, GmParam<Int32> seq_lens, GmParam<Int64> query_slots,
    GmParam<Int64> context_positions, GmParam<Int64> context_slots,
    GmParam<Int64> sample_indices, GmParam<Int64> sample_pos,
    GmParam<Int32> sample_idx_mapping, GmParam<const Int64> target_positions,
    GmParam<const Int32> target_query_start, GmParam<const Int32> idx_mapping,
    GmParam<const Int64> last_sampled, GmParam<const Int32> next_prefill_tokens,
    GmParam<const Int32> num_sampled, GmParam<const Int32> num_rejected,
    GmParam<const Int32> block_table, int block_table_stride,
    int parallel_drafting_token_id, int block_size, int num_query_per_req,
    int num_speculative_steps, int max_num_reqs, int max_num_tokens, int max_model_len,
    bool sample_from_anchor, int pad_slot_id, int num_reqs);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_DFLASH_H_
