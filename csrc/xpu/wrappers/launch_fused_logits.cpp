// SPDX-License-Identifier: Apache-2.0
#include "contracts/fused_logits.h"
#include "xpu/host_side.h"
#include "xpu/kernels/fused_logits.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const FusedLogits& a, const Stream& stream) {
  if (!fit(a.vocab_size, a.num_rows * a.vocab_size, a.bitmask_width)) return kTooLarge;
  const bool in_place = a.logits == nullptr;
  const LogitsPointers logits(in_place ? a.out : a.logits,
                              in_place ? FloatType::kF32 : a.logits_type);
  const Bias bias = a.bias != nullptr ? *a.bias : Bias{};
  const Penalties penalties = a.penalties != nullptr ? *a.penalties : Penalties{};
  const BadWords bad_words = a.bad_words != nullptr ? *a.bad_words : BadWords{};
  const int status = VLLM_KUNLUN_LAUNCH(
      stream, fused_logits, a.out, Int64{a.out_stride}, logits.f32, logits.f16,
      logits.bf16, Int64{in_place ? a.out_stride : a.logits_stride}, in_place,
      i32(a.vocab_size), a.expanded_idx_mapping, a.expanded_local_pos,
      device(a.logits_indices), a.input_ids, device(a.positions), a.bitmask,
      Int64{a.bitmask_stride}, i32(a.bitmask_width), a.bitmask_rows,
      bias.num_allowed_token_ids, bias.allowed_token_ids,
      Int64{bias.allowed_token_ids_stride}, bias.num_logit_bias, bias.bias_token_ids,
      Int64{bias.bias_token_ids_stride}, bias.bias, Int64{bias.bias_stride},
      bias.min_lens, bias.num_stop_token_ids, bias.stop_token_ids,
      Int64{bias.stop_token_ids_stride}, penalties.repetition_penalty,
      penalties.frequency_penalty, penalties.presence_penalty,
      penalties.prompt_bin_mask, Int64{penalties.prompt_bin_mask_stride},
      penalties.output_bin_counts, Int64{penalties.output_bin_counts_stride},
      bad_words.bad_word_token_ids, Int64{bad_words.bad_word_token_ids_stride},
      bad_words.bad_word_offsets, Int64{bad_words.bad_word_offsets_stride},
      bad_words.num_bad_words, bad_words.all_token_ids,
      Int64{bad_words.all_token_ids_stride}, bad_words.prompt_len, bad_words.total_len,
      a.temperature, i32(a.num_rows));
  if (status != kOk) return status;
  return launch(MinP{a.out, a.out_stride, a.expanded_idx_mapping, a.min_p, a.vocab_size,
                     a.num_rows},
                stream);
}

}  // namespace xpu
}  // namespace vllm_kunlun
