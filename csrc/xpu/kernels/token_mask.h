// SPDX-License-Identifier: Apache-2.0
// contracts/token_mask.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_TOKEN_MASK_H_
#define VLLM_KUNLUN_XPU_KERNELS_TOKEN_MASK_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void bias(
    GmParam<float> logits, Int64 logits_stride, int vocab_size,
    GmParam<const Int32> expanded_idx_mapping,
    GmParam<const Int32> num_allowed_token_ids, GmParam<const Int32> allowed_token_ids,
    Int64 allowed_token_ids_stride, GmParam<const Int32> num_logit_bias,
    GmParam<const Int32> bias_token_ids, Int64 bias_token_ids_stride,
    GmParam<const float> biases, Int64 biases_stride, GmParam<const Int64> pos,
    GmParam<const Int32> min_lens, GmParam<const Int32> num_stop_token_ids,
    GmParam<const Int32> stop_token_ids, Int64 stop_token_ids_stride, int num_rows);

__global__ void bad_words(
    GmParam<float> logits, Int64 logits_stride, int vocab_size,
    GmParam<const Int32> expanded_idx_mapping, GmParam<const Int32> bad_word_token_ids,
    Int64 bad_word_token_ids_stride, GmParam<const Int32> bad_word_offsets,
    Int64 bad_word_offsets_stride, GmParam<const Int32> num_bad_words,
    GmParam<const Int32> all_token_ids, Int64 all_token_ids_stride,
    GmParam<const Int32> prompt_len, GmParam<const Int32> total_len,
    GmParam<const Int32> input_ids, GmParam<const Int32> expanded_local_pos,
    int num_rows, int max_num_words);

// Logits as their bits: those of 32 or those of 16, the other pointer being null.
__global__ void apply_grammar_bitmask(GmParam<UInt32> logits32,
                                      GmParam<unsigned short> logits16,
                                      Int64 logits_stride,
                                      GmParam<const Int32> logits_indices,
                                      GmParam<const Int32> bitmask,
                                      Int64 bitmask_stride, int bitmask_width,
                                      int vocab_size, UInt32 forbidden, int num_masks);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_TOKEN_MASK_H_
