// SPDX-License-Identifier: Apache-2.0
// contracts/dflash.h, PrepareDraftInputs, on the XPU. Capacity: a slot's number fits
// into 31 bits.
#ifndef VLLM_KUNLUN_XPU_KERNELS_DRAFT_INPUTS_H_
#define VLLM_KUNLUN_XPU_KERNELS_DRAFT_INPUTS_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

// Groups of a launch, of which the first num_groups count. More of them take another
// launch, without the rows.
const int kDraftGroups = 4;

// Temperatures and seeds are copied as words.
__global__ void prepare_draft_inputs(
    GmParam<Int32> input_ids, GmParam<Int64> query_positions,
    GmParam<Int32> query_start_loc, GmParam<Int32> seq_lens,
    GmParam<Int64> context_positions, GmParam<Int64> sample_indices,
    GmParam<Int64> sample_pos, GmParam<Int32> sample_idx_mapping,
    GmParam<const Int64> target_positions, GmParam<const Int32> target_query_start,
    GmParam<const Int32> idx_mapping, GmParam<const Int64> last_sampled,
    GmParam<const Int32> next_prefill_tokens, GmParam<const Int32> num_sampled,
    GmParam<const Int32> num_rejected, int parallel_drafting_token_id,
    int num_query_per_req, int num_speculative_steps, int max_num_reqs,
    int max_num_tokens, int max_model_len, bool sample_from_anchor, int pad_slot_id,
    int num_reqs, GmParam<Int32> out_temperature, GmParam<Int32> out_seeds,
    GmParam<Int32> out_idx_mapping, GmParam<const Int32> temperature,
    GmParam<const Int32> seeds, bool skip_rejected, GmParam<Int64> query_slots_0,
    GmParam<Int64> context_slots_0, GmParam<const Int32> block_table_0,
    int block_table_stride_0, int block_size_0, GmParam<Int64> query_slots_1,
    GmParam<Int64> context_slots_1, GmParam<const Int32> block_table_1,
    int block_table_stride_1, int block_size_1, GmParam<Int64> query_slots_2,
    GmParam<Int64> context_slots_2, GmParam<const Int32> block_table_2,
    int block_table_stride_2, int block_size_2, GmParam<Int64> query_slots_3,
    GmParam<Int64> context_slots_3, GmParam<const Int32> block_table_3,
    int block_table_stride_3, int block_size_3, int num_groups, bool with_rows);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_DRAFT_INPUTS_H_
