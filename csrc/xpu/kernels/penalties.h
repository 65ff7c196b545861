// SPDX-License-Identifier: Apache-2.0
// contracts/penalties.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_PENALTIES_H_
#define VLLM_KUNLUN_XPU_KERNELS_PENALTIES_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void penalties(
    GmParam<float> logits, Int64 logits_stride,
    GmParam<const Int32> expanded_idx_mapping, GmParam<const Int32> token_ids,
    GmParam<const Int32> expanded_local_pos, GmParam<const float> repetition_penalty,
    GmParam<const float> frequency_penalty, GmParam<const float> presence_penalty,
    GmParam<const Int32> prompt_bin_mask, Int64 prompt_bin_mask_stride,
    GmParam<const Int32> output_bin_counts, Int64 output_bin_counts_stride,
    int vocab_size, int num_rows);

__global__ void bincount(GmParam<const Int32> expanded_idx_mapping,
                         GmParam<const Int32> all_token_ids, Int64 all_token_ids_stride,
                         GmParam<const Int32> prompt_len,
                         GmParam<const Int32> prefill_len,
                         GmParam<Int32> prompt_bin_mask, Int64 prompt_bin_mask_stride,
                         GmParam<Int32> output_bin_counts,
                         Int64 output_bin_counts_stride, int vocab_size, int num_reqs);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_PENALTIES_H_
