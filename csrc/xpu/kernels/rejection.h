// SPDX-License-Identifier: Apache-2.0
// contracts/rejection.h on the XPU. Of the three pointers to a kind of logits one is
// not null, or none where there are no such logits; of two for integers of 32 and of 64
// bits one, and of two for results in f32 and in f64.
#ifndef VLLM_KUNLUN_XPU_KERNELS_REJECTION_H_
#define VLLM_KUNLUN_XPU_KERNELS_REJECTION_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void compute_local_logits_stats(
    GmParam<Int64> target_argmax, Int64 target_argmax_stride, GmParam<float> target_max,
    Int64 target_max_stride, GmParam<float> target_sumexp, Int64 target_sumexp_stride,
    GmParam<float> draft_max, Int64 draft_max_stride, GmParam<float> draft_sumexp,
    Int64 draft_sumexp_stride, GmParam<const float> target_f32,
    GmParam<const unsigned short> target_f16, GmParam<const unsigned short> target_bf16,
    Int64 target_stride, GmParam<const float> draft_f32,
    GmParam<const unsigned short> draft_f16, GmParam<const unsigned short> draft_bf16,
    Int64 draft_req_stride, Int64 draft_step_stride,
    GmParam<const Int32> expanded_idx_mapping, GmParam<const Int32> expanded_local_pos,
    GmParam<const float> temp, int vocab_size, int num_speculative_steps,
    int block_size, int num_logits, int num_blocks);

__global__ void rejection(
    GmParam<Int64> sampled, Int64 sampled_stride, GmParam<Int32> rejected_steps,
    GmParam<float> target_logsumexp, GmParam<float> draft_logsumexp,
    GmParam<const float> target_f32, GmParam<const unsigned short> target_f16,
    GmParam<const unsigned short> target_bf16, Int64 target_stride,
    GmParam<const Int64> target_argmax, Int64 target_argmax_stride,
    GmParam<const float> target_max, Int64 target_max_stride,
    GmParam<const float> target_sumexp, Int64 target_sumexp_stride,
    GmParam<const float> draft_max, Int64 draft_max_stride,
    GmParam<const float> draft_sumexp, Int64 draft_sumexp_stride, int num_blocks,
    GmParam<const Int32> drafts32, GmParam<const Int64> drafts64,
    GmParam<const Int64> drafts_at, GmParam<const float> draft_f32,
    GmParam<const unsigned short> draft_f16, GmParam<const unsigned short> draft_bf16,
    Int64 draft_req_stride, Int64 draft_step_stride, GmParam<const Int32> cu_num_logits,
    GmParam<const Int32> idx_mapping, GmParam<const float> temp,
    GmParam<const Int64> seeds, GmParam<const Int32> pos32, GmParam<const Int64> pos64,
    GmParam<const Int64> pos_at, GmParam<const float> synthetic_rates,
    GmParam<const float> cumulative_log_p, GmParam<const float> residual_mass,
    Int64 residual_mass_stride, int num_reqs);

__global__ void resample(
    GmParam<Int64> local_argmax, Int64 local_argmax_stride, GmParam<float> local_max,
    GmParam<double> local_max_f64, Int64 local_max_stride,
    GmParam<const float> target_f32, GmParam<const unsigned short> target_f16,
    GmParam<const unsigned short> target_bf16, Int64 target_stride,
    GmParam<const float> target_logsumexp, GmParam<const float> draft_f32,
    GmParam<const unsigned short> draft_f16, GmParam<const unsigned short> draft_bf16,
    Int64 draft_req_stride, Int64 draft_step_stride,
    GmParam<const float> draft_logsumexp, GmParam<const Int32> rejected_step,
    GmParam<const Int32> cu_num_logits, GmParam<const Int32> expanded_idx_mapping,
    GmParam<const Int32> drafts32, GmParam<const Int64> drafts64,
    GmParam<const Int64> drafts_at, GmParam<const float> temp,
    GmParam<const Int64> seeds, GmParam<const Int32> pos32, GmParam<const Int64> pos64,
    GmParam<const Int64> pos_at, GmParam<const float> cumulative_log_p, int vocab_size,
    int block_size, int num_reqs, int num_blocks);

__global__ void insert_resampled(
    GmParam<Int64> sampled, Int64 sampled_stride, GmParam<Int32> num_sampled,
    GmParam<const Int64> local_argmax, Int64 local_argmax_stride,
    GmParam<const float> local_max, GmParam<const double> local_max_f64,
    Int64 local_max_stride, GmParam<const Int32> cu_num_logits,
    GmParam<const Int32> expanded_idx_mapping, GmParam<const float> temp, int num_reqs,
    int num_blocks);

__global__ void flatten_sampled(GmParam<Int64> flat_sampled,
                                GmParam<const Int64> sampled, Int64 sampled_stride,
                                GmParam<const Int32> num_sampled,
                                GmParam<const Int32> cu_num_logits, int num_reqs);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_REJECTION_H_
