// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/gumbel.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const GumbelSample& a, const Stream& stream) {
  if (!fit(a.vocab_size + a.block_size, a.num_tokens * a.num_blocks)) return kTooLarge;
  const LogitsPointers logits(a.logits, a.logits_type);
  return VLLM_KUNLUN_LAUNCH(
      stream, gumbel_sample, device(a.local_argmax), Int64{a.local_argmax_stride},
      in_f32(a.local_max, a.use_fp64), in_f64(a.local_max, a.use_fp64),
      Int64{a.local_max_stride}, a.processed_logits, Int64{a.processed_logits_stride},
      narrow(a.processed_logits_col), wide(a.processed_logits_col), logits.f32,
      logits.f16, logits.bf16, Int64{a.logits_stride}, a.expanded_idx_mapping,
      device(a.seeds), narrow(a.pos), wide(a.pos), device(a.pos.at), a.temp,
      i32(a.vocab_size), i32(a.block_size), a.apply_temperature, a.per_token_col,
      i32(a.num_tokens), i32(a.num_blocks));
}

}  // namespace xpu
}  // namespace vllm_kunlun
