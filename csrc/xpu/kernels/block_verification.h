// SPDX-License-Identifier: Apache-2.0
// contracts/block_verification.h on the XPU; pointers as in rejection.h.
#ifndef VLLM_KUNLUN_XPU_KERNELS_BLOCK_VERIFICATION_H_
#define VLLM_KUNLUN_XPU_KERNELS_BLOCK_VERIFICATION_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void compute_cumulative_log_p(
    GmParam<float> cumulative_log_p, GmParam<const float> target_f32,
    GmParam<const unsigned short> target_f16, GmParam<const unsigned short> target_bf16,
    Int64 target_stride, GmParam<const float> target_max, Int64 target_max_stride,
    GmParam<const float> target_sumexp, Int64 target_sumexp_stride,
    GmParam<const float> draft_max, Int64 draft_max_stride,
    GmParam<const float> draft_sumexp, Int64 draft_sumexp_stride, int num_blocks,
    GmParam<const Int32> drafts32, GmParam<const Int64> drafts64,
    GmParam<const Int64> drafts_at, GmParam<const float> draft_f32,
    GmParam<const unsigned short> draft_f16, GmParam<const unsigned short> draft_bf16,
    Int64 draft_req_stride, Int64 draft_step_stride, GmParam<const Int32> cu_num_logits,
    GmParam<const Int32> idx_mapping, GmParam<const float> temp, int num_reqs);

__global__ void compute_local_residual_mass(
    GmParam<float> residual_mass, Int64 residual_mass_stride,
    GmParam<const float> cumulative_log_p, GmParam<const float> target_f32,
    GmParam<const unsigned short> target_f16, GmParam<const unsigned short> target_bf16,
    Int64 target_stride, GmParam<const float> target_max, Int64 target_max_stride,
    GmParam<const float> target_sumexp, Int64 target_sumexp_stride,
    GmParam<const float> draft_max, Int64 draft_max_stride,
    GmParam<const float> draft_sumexp, Int64 draft_sumexp_stride,
    int num_blocks_of_stats, GmParam<const float> draft_f32,
    GmParam<const unsigned short> draft_f16, GmParam<const unsigned short> draft_bf16,
    Int64 draft_req_stride, Int64 draft_step_stride,
    GmParam<const Int32> expanded_idx_mapping, GmParam<const Int32> expanded_local_pos,
    GmParam<const float> temp, int vocab_size, int num_speculative_steps,
    int block_size, int num_logits, int num_blocks);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_BLOCK_VERIFICATION_H_
