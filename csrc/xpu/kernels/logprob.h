// SPDX-License-Identifier: Apache-2.0
// contracts/logprob.h on the XPU. Of the three pointers to logits one is not null.
#ifndef VLLM_KUNLUN_XPU_KERNELS_LOGPROB_H_
#define VLLM_KUNLUN_XPU_KERNELS_LOGPROB_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void topk_log_softmax(GmParam<float> output, GmParam<const float> logits_f32,
                                 GmParam<const unsigned short> logits_f16,
                                 GmParam<const unsigned short> logits_bf16,
                                 Int64 logits_stride, GmParam<const Int64> topk_ids,
                                 int topk, int vocab_size, int num_rows);

__global__ void ranks(GmParam<Int64> output, GmParam<const float> logits_f32,
                      GmParam<const unsigned short> logits_f16,
                      GmParam<const unsigned short> logits_bf16, Int64 logits_stride,
                      GmParam<const Int64> token_ids, int vocab_size, int num_rows);

__global__ void num_nans(GmParam<const float> logits_f32,
                         GmParam<const unsigned short> logits_f16,
                         GmParam<const unsigned short> logits_bf16, Int64 logits_stride,
                         GmParam<Int32> output, int vocab_size, int num_rows);

__global__ void fill_logprob_token_ids(
    GmParam<Int64> out_token_ids, Int64 out_token_ids_stride,
    GmParam<bool> out_valid_mask, Int64 out_valid_mask_stride,
    GmParam<const Int64> sampled_token_ids, GmParam<const Int32> topk_indices,
    Int64 topk_indices_stride, GmParam<const Int32> expanded_idx_mapping,
    GmParam<const Int32> num_per_req_token_ids, GmParam<const Int32> per_req_token_ids,
    Int64 per_req_token_ids_stride, int topk, int num_rows);

__global__ void prompt_logprobs_token_ids(GmParam<Int64> token_ids,
                                          GmParam<const Int32> query_start_loc,
                                          GmParam<const Int32> idx_mapping,
                                          GmParam<const Int32> num_computed_tokens,
                                          GmParam<const Int32> all_token_ids,
                                          Int64 all_token_ids_stride, int max_len,
                                          int num_reqs);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_LOGPROB_H_
