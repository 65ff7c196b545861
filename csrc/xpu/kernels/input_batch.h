// SPDX-License-Identifier: Apache-2.0
// contracts/input_batch.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_INPUT_BATCH_H_
#define VLLM_KUNLUN_XPU_KERNELS_INPUT_BATCH_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void prepare_prefill_inputs(
    GmParam<Int32> input_ids, GmParam<Int32> next_prefill_tokens,
    GmParam<const Int32> idx_mapping, GmParam<const Int32> query_start_loc,
    GmParam<const Int32> all_token_ids, Int64 all_token_ids_stride,
    GmParam<const Int32> prefill_lens, GmParam<const Int32> num_computed_tokens,
    int num_reqs);

__global__ void prepare_pos_seq_lens(GmParam<Int64> pos, GmParam<Int32> seq_lens,
                                     GmParam<const Int32> idx_mapping,
                                     GmParam<const Int32> query_start_loc,
                                     GmParam<const Int32> num_computed_tokens,
                                     int max_num_reqs, int num_columns);

__global__ void combine_sampled_and_draft_tokens(
    GmParam<Int32> input_ids, GmParam<const Int32> idx_mapping,
    GmParam<const Int64> last_sampled_tokens, GmParam<const Int32> query_start_loc,
    GmParam<const Int32> seq_lens, GmParam<const Int32> prefill_len,
    GmParam<const Int64> draft_tokens, Int64 draft_tokens_stride,
    GmParam<const Int32> cu_num_logits, GmParam<Int64> logits_indices,
    int num_new_sampled_tokens, int num_reqs);

__global__ void get_num_sampled_and_rejected(
    GmParam<Int32> num_sampled, GmParam<Int32> num_rejected,
    GmParam<const Int32> seq_lens, GmParam<const Int32> cu_num_logits,
    GmParam<const Int32> idx_mapping, GmParam<const Int32> prefill_len, int num_reqs);

__global__ void post_update(
    GmParam<const Int32> idx_mapping, GmParam<Int32> num_computed_tokens,
    GmParam<Int64> last_sampled_tokens, GmParam<Int32> output_bin_counts,
    Int64 output_bin_counts_stride, GmParam<const Int64> sampled_tokens,
    Int64 sampled_tokens_stride, GmParam<const Int32> num_sampled,
    GmParam<const Int32> num_rejected, GmParam<const Int32> query_start_loc,
    GmParam<Int32> all_token_ids, Int64 all_token_ids_stride, GmParam<Int32> total_len,
    int num_reqs);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_INPUT_BATCH_H_
