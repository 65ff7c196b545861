// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/rejection.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const ComputeLocalLogitsStats& a, const Stream& stream) {
  if (!fit(a.vocab_size + a.block_size, a.num_logits * a.num_blocks)) return kTooLarge;
  const LogitsPointers target(a.target_logits.data, a.target_logits.type);
  const LogitsPointers draft(a.draft_logits.data, a.draft_logits.type);
  return VLLM_KUNLUN_LAUNCH(
      stream, compute_local_logits_stats, device(a.target_argmax.data),
      Int64{a.target_argmax.stride}, a.target_max.data, Int64{a.target_max.stride},
      a.target_sumexp.data, Int64{a.target_sumexp.stride}, a.draft_max.data,
      Int64{a.draft_max.stride}, a.draft_sumexp.data, Int64{a.draft_sumexp.stride},
      target.f32, target.f16, target.bf16, Int64{a.target_logits.stride}, draft.f32,
      draft.f16, draft.bf16, Int64{a.draft_logits.req_stride},
      Int64{a.draft_logits.step_stride}, a.expanded_idx_mapping, a.expanded_local_pos,
      a.temp, i32(a.vocab_size), i32(a.num_speculative_steps), i32(a.block_size),
      i32(a.num_logits), i32(a.num_blocks));
}

int launch(const Rejection& a, const Stream& stream) {
  if (!fit(a.num_reqs, a.stats.num_blocks)) return kTooLarge;
  const LogitsPointers target(a.target_logits.data, a.target_logits.type);
  const LogitsPointers draft(a.draft_logits.data, a.draft_logits.type);
  return VLLM_KUNLUN_LAUNCH(
      stream, rejection, device(a.sampled.data), Int64{a.sampled.stride},
      a.rejected_steps, a.target_logsumexp, a.draft_logsumexp, target.f32, target.f16,
      target.bf16, Int64{a.target_logits.stride}, device(a.target_argmax.data),
      Int64{a.target_argmax.stride}, a.stats.target_max.data,
      Int64{a.stats.target_max.stride}, a.stats.target_sumexp.data,
      Int64{a.stats.target_sumexp.stride}, a.stats.draft_max.data,
      Int64{a.stats.draft_max.stride}, a.stats.draft_sumexp.data,
      Int64{a.stats.draft_sumexp.stride}, i32(a.stats.num_blocks),
      narrow(a.draft_sampled), wide(a.draft_sampled), device(a.draft_sampled.at),
      draft.f32, draft.f16, draft.bf16, Int64{a.draft_logits.req_stride},
      Int64{a.draft_logits.step_stride}, a.cu_num_logits, a.idx_mapping, a.temp,
      device(a.seed), narrow(a.pos), wide(a.pos), device(a.pos.at),
      a.synthetic_conditional_rates, a.cumulative_log_p, a.local_residual_mass.data,
      Int64{a.local_residual_mass.stride}, i32(a.num_reqs));
}

int launch(const Resample& a, const Stream& stream) {
  if (!fit(a.vocab_size + a.block_size, a.num_reqs * a.num_blocks)) return kTooLarge;
  const LogitsPointers target(a.target_logits.data, a.target_logits.type);
  const LogitsPointers draft(a.draft_logits.data, a.draft_logits.type);
  return VLLM_KUNLUN_LAUNCH(
      stream, resample, device(a.local_argmax.data), Int64{a.local_argmax.stride},
      in_f32(a.local_max, a.use_fp64), in_f64(a.local_max, a.use_fp64),
      Int64{a.local_max_stride}, target.f32, target.f16, target.bf16,
      Int64{a.target_logits.stride}, a.target_logsumexp, draft.f32, draft.f16,
      draft.bf16, Int64{a.draft_logits.req_stride}, Int64{a.draft_logits.step_stride},
      a.draft_logsumexp, a.rejected_step, a.cu_num_logits, a.expanded_idx_mapping,
      narrow(a.draft_sampled), wide(a.draft_sampled), device(a.draft_sampled.at),
      a.temp, device(a.seed), narrow(a.pos), wide(a.pos), device(a.pos.at),
      a.cumulative_log_p, i32(a.vocab_size), i32(a.block_size), i32(a.num_reqs),
      i32(a.num_blocks));
}

int launch(const InsertResampled& a, const Stream& stream) {
  if (!fit(a.num_reqs, a.num_blocks)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, insert_resampled, device(a.sampled.data), Int64{a.sampled.stride},
      a.num_sampled, device(a.local_argmax.data), Int64{a.local_argmax.stride},
      in_f32(a.local_max, a.is_fp64), in_f64(a.local_max, a.is_fp64),
      Int64{a.local_max_stride}, a.cu_num_logits, a.expanded_idx_mapping, a.temp,
      i32(a.num_reqs), i32(a.num_blocks));
}

int launch(const FlattenSampled& a, const Stream& stream) {
  if (!fit(a.num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, flatten_sampled, device(a.flat_sampled),
                            device(a.sampled.data), Int64{a.sampled.stride},
                            a.num_sampled, a.cu_num_logits, i32(a.num_reqs));
}

}  // namespace xpu
}  // namespace vllm_kunlun
