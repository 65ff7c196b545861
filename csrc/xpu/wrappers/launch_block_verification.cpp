// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/block_verification.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const ComputeCumulativeLogP& a, const Stream& stream) {
  if (!fit(a.num_reqs, a.stats.num_blocks)) return kTooLarge;
  const LogitsPointers target(a.target_logits.data, a.target_logits.type);
  const LogitsPointers draft(a.draft_logits.data, a.draft_logits.type);
  return VLLM_KUNLUN_LAUNCH(
      stream, compute_cumulative_log_p, a.cumulative_log_p, target.f32, target.f16,
      target.bf16, Int64{a.target_logits.stride}, a.stats.target_max.data,
      Int64{a.stats.target_max.stride}, a.stats.target_sumexp.data,
      Int64{a.stats.target_sumexp.stride}, a.stats.draft_max.data,
      Int64{a.stats.draft_max.stride}, a.stats.draft_sumexp.data,
      Int64{a.stats.draft_sumexp.stride}, i32(a.stats.num_blocks),
      narrow(a.draft_sampled), wide(a.draft_sampled), device(a.draft_sampled.at),
      draft.f32, draft.f16, draft.bf16, Int64{a.draft_logits.req_stride},
      Int64{a.draft_logits.step_stride}, a.cu_num_logits, a.idx_mapping, a.temp,
      i32(a.num_reqs));
}

int launch(const ComputeLocalResidualMass& a, const Stream& stream) {
  if (!fit(a.vocab_size + a.block_size, a.num_logits * a.num_blocks)) return kTooLarge;
  const LogitsPointers target(a.target_logits.data, a.target_logits.type);
  const LogitsPointers draft(a.draft_logits.data, a.draft_logits.type);
  return VLLM_KUNLUN_LAUNCH(
      stream, compute_local_residual_mass, a.local_residual_mass.data,
      Int64{a.local_residual_mass.stride}, a.cumulative_log_p, target.f32, target.f16,
      target.bf16, Int64{a.target_logits.stride}, a.stats.target_max.data,
      Int64{a.stats.target_max.stride}, a.stats.target_sumexp.data,
      Int64{a.stats.target_sumexp.stride}, a.stats.draft_max.data,
      Int64{a.stats.draft_max.stride}, a.stats.draft_sumexp.data,
      Int64{a.stats.draft_sumexp.stride}, i32(a.stats.num_blocks), draft.f32, draft.f16,
      draft.bf16, Int64{a.draft_logits.req_stride}, Int64{a.draft_logits.step_stride},
      a.expanded_idx_mapping, a.expanded_local_pos, a.temp, i32(a.vocab_size),
      i32(a.num_speculative_steps), i32(a.block_size), i32(a.num_logits),
      i32(a.num_blocks));
}

}  // namespace xpu
}  // namespace vllm_kunlun
