// SPDX-License-Identifier: Apache-2.0
// contracts/verify.h on the XPU: VerifyDrawn; without temperatures it is VerifyGreedy.
// RejectionSample is the launches of its fields, one after the other.
#ifndef VLLM_KUNLUN_XPU_KERNELS_VERIFY_H_
#define VLLM_KUNLUN_XPU_KERNELS_VERIFY_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void verify_drawn(
    GmParam<Int64> sampled, Int64 sampled_stride, GmParam<const float> logits_f32,
    GmParam<const unsigned short> logits_f16, GmParam<const unsigned short> logits_bf16,
    Int64 logits_stride, int vocab_size, GmParam<const Int32> drafts32,
    GmParam<const Int64> drafts64, GmParam<const Int64> drafts_at,
    GmParam<Int32> num_sampled, GmParam<Int32> num_rejected,
    GmParam<const Int32> seq_lens, GmParam<const Int32> cu_num_logits,
    GmParam<const Int32> idx_mapping, GmParam<const Int32> prefill_len, int num_reqs,
    GmParam<const float> temp, GmParam<const Int64> seeds, GmParam<const Int32> pos32,
    GmParam<const Int64> pos64, GmParam<const Int64> pos_at, bool in_f64);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_VERIFY_H_
