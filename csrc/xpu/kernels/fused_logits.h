// SPDX-License-Identifier: Apache-2.0
// contracts/fused_logits.h on the XPU, but for min_p, which needs a whole row: a launch
// of its own (sampling.h).
#ifndef VLLM_KUNLUN_XPU_KERNELS_FUSED_LOGITS_H_
#define VLLM_KUNLUN_XPU_KERNELS_FUSED_LOGITS_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

// One pointer of the logits is not null; it may be `out`. The first of a group's
// pointers is null where there is nothing of the group.
__global__ void fused_logits(
    GmParam<float> out, Int64 out_stride, GmParam<const float> logits_f32,
    GmParam<const unsigned short> logits_f16, GmParam<const unsigned short> logits_bf16,
    Int64 logits_stride, bool in_place, int vocab_size,
    GmParam<const Int32> expanded_idx_mapping, GmParam<const Int32> expanded_local_pos,
    GmParam<const Int64> logits_indices, GmParam<const Int32> input_ids,
    GmParam<const Int64> positions, GmParam<const Int32> bitmask, Int64 bitmask_stride,
    int bitmask_width, GmParam<const Int32> bitmask_rows,
    GmParam<const Int32> num_allowed_token_ids, GmParam<const Int32> allowed_token_ids,
    Int64 allowed_token_ids_stride, GmParam<const Int32> num_logit_bias,
    GmParam<const Int32> bias_token_ids, Int64 bias_token_ids_stride,
    GmParam<const float> biases, Int64 biases_stride, GmParam<const Int32> min_lens,
    GmParam<const Int32> num_stop_token_ids, GmParam<const Int32> stop_token_ids,
    Int64 stop_token_ids_stride, GmParam<const float> repetition_penalty,
    GmParam<const float> frequency_penalty, GmParam<const float> presence_penalty,
    GmParam<const Int32> prompt_bin_mask, Int64 prompt_bin_mask_stride,
    GmParam<const Int32> output_bin_counts, Int64 output_bin_counts_stride,
    GmParam<const Int32> bad_word_token_ids, Int64 bad_word_token_ids_stride,
    GmParam<const Int32> bad_word_offsets, Int64 bad_word_offsets_stride,
    GmParam<const Int32> num_bad_words, GmParam<const Int32> all_token_ids,
    Int64 all_token_ids_stride, GmParam<const Int32> prompt_len,
    GmParam<const Int32> total_len, GmParam<const float> temperatures, int num_rows);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_FUSED_LOGITS_H_
