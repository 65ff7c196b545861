// SPDX-License-Identifier: Apache-2.0
// contracts/gumbel.h on the XPU. Of the three pointers to logits one is not null, and
// of two for integers of 32 and of 64 bits, and for results in f32 and in f64.
#ifndef VLLM_KUNLUN_XPU_KERNELS_GUMBEL_H_
#define VLLM_KUNLUN_XPU_KERNELS_GUMBEL_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void gumbel_sample(
    GmParam<Int64> local_argmax, Int64 local_argmax_stride, GmParam<float> local_max,
    GmParam<double> local_max_f64, Int64 local_max_stride, GmParam<float> processed,
    Int64 processed_stride, GmParam<const Int32> col32, GmParam<const Int64> col64,
    GmParam<const float> logits_f32, GmParam<const unsigned short> logits_f16,
    GmParam<const unsigned short> logits_bf16, Int64 logits_stride,
    GmParam<const Int32> expanded_idx_mapping, GmParam<const Int64> seeds,
    GmParam<const Int32> pos32, GmParam<const Int64> pos64, GmParam<const Int64> pos_at,
    GmParam<const float> temp, int vocab_size, int block_size, bool apply_temperature,
    bool per_token_col, int num_tokens, int num_blocks);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_GUMBEL_H_
