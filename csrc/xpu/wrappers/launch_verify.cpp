// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/verify.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const VerifyGreedy& a, const Stream& stream) {
  return launch(VerifyDrawn{a, nullptr, nullptr, {}, false}, stream);
}

int launch(const VerifyDrawn& a, const Stream& stream) {
  const VerifyGreedy& v = a.verify;
  if (!fit(v.vocab_size, v.counts.num_reqs)) return kTooLarge;
  const LogitsPointers logits(v.logits.data, v.logits.type);
  return VLLM_KUNLUN_LAUNCH(
      stream, verify_drawn, device(v.sampled.data), Int64{v.sampled.stride}, logits.f32,
      logits.f16, logits.bf16, Int64{v.logits.stride}, i32(v.vocab_size),
      narrow(v.draft_sampled), wide(v.draft_sampled), device(v.draft_sampled.at),
      v.counts.num_sampled, v.counts.num_rejected, v.counts.seq_lens,
      v.counts.cu_num_logits, v.counts.idx_mapping, v.counts.prefill_len,
      i32(v.counts.num_reqs), a.temp, device(a.seeds), narrow(a.pos), wide(a.pos),
      device(a.pos.at), a.use_fp64);
}

int launch(const RejectionSample& a, const Stream& stream) {
  const bool has_residual =
      a.use_block_verification && a.local_residual_mass.draft_logits.data != nullptr;
  int status = launch(a.stats, stream);
  if (status == kOk && a.use_block_verification) {
    status = launch(a.cumulative_log_p, stream);
  }
  if (status == kOk && has_residual) status = launch(a.local_residual_mass, stream);
  if (status == kOk) status = launch(a.rejection, stream);
  if (status == kOk) status = launch(a.resample, stream);
  if (status == kOk) status = launch(a.insert_resampled, stream);
  if (status == kOk) status = launch(a.counts, stream);
  return status;
}

}  // namespace xpu
}  // namespace vllm_kunlun
