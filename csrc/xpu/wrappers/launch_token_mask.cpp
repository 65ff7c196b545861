// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/token_mask.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const Bias& a, const Stream& stream) {
  if (!fit(a.vocab_size, a.num_rows * a.vocab_size)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, bias, a.logits, Int64{a.logits_stride}, i32(a.vocab_size),
      a.expanded_idx_mapping, a.num_allowed_token_ids, a.allowed_token_ids,
      Int64{a.allowed_token_ids_stride}, a.num_logit_bias, a.bias_token_ids,
      Int64{a.bias_token_ids_stride}, a.bias, Int64{a.bias_stride}, device(a.pos),
      a.min_lens, a.num_stop_token_ids, a.stop_token_ids,
      Int64{a.stop_token_ids_stride}, i32(a.num_rows));
}

int launch(const BadWords& a, const Stream& stream) {
  if (!fit(a.vocab_size, a.num_rows, a.max_num_words)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, bad_words, a.logits, Int64{a.logits_stride}, i32(a.vocab_size),
      a.expanded_idx_mapping, a.bad_word_token_ids, Int64{a.bad_word_token_ids_stride},
      a.bad_word_offsets, Int64{a.bad_word_offsets_stride}, a.num_bad_words,
      a.all_token_ids, Int64{a.all_token_ids_stride}, a.prompt_len, a.total_len,
      a.input_ids, a.expanded_local_pos, i32(a.num_rows), i32(a.max_num_words));
}

int launch(const ApplyGrammarBitmask& a, const Stream& stream) {
  if (!fit(a.vocab_size, a.bitmask_width, a.num_masks * a.vocab_size)) return kTooLarge;
  UInt32* logits32 = nullptr;
  unsigned short* logits16 = nullptr;
  UInt32 forbidden = 0xff800000u;  // -inf
  if (a.logits_type == FloatType::kF32) {
    logits32 = static_cast<UInt32*>(a.logits);
  } else {
    logits16 = static_cast<unsigned short*>(a.logits);
    forbidden = a.logits_type == FloatType::kF16 ? 0xfc00u : 0xff80u;
  }
  return VLLM_KUNLUN_LAUNCH(stream, apply_grammar_bitmask, logits32, logits16,
                            Int64{a.logits_stride}, a.logits_indices, a.bitmask,
                            Int64{a.bitmask_stride}, i32(a.bitmask_width),
                            i32(a.vocab_size), forbidden, i32(a.num_masks));
}

}  // namespace xpu
}  // namespace vllm_kunlun
