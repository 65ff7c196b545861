// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/logprob.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const TopkLogSoftmax& a, const Stream& stream) {
  if (!fit(a.vocab_size, a.num_rows, a.topk)) return kTooLarge;
  const LogitsPointers logits(a.logits, a.logits_type);
  return VLLM_KUNLUN_LAUNCH(stream, topk_log_softmax, a.output, logits.f32, logits.f16,
                            logits.bf16, Int64{a.logits_stride}, device(a.topk_ids),
                            i32(a.topk), i32(a.vocab_size), i32(a.num_rows));
}

int launch(const Ranks& a, const Stream& stream) {
  if (!fit(a.vocab_size, a.num_rows)) return kTooLarge;
  const LogitsPointers logits(a.logits, a.logits_type);
  return VLLM_KUNLUN_LAUNCH(stream, ranks, device(a.output), logits.f32, logits.f16,
                            logits.bf16, Int64{a.logits_stride}, device(a.token_ids),
                            i32(a.vocab_size), i32(a.num_rows));
}

int launch(const NumNans& a, const Stream& stream) {
  if (!fit(a.vocab_size, a.num_rows)) return kTooLarge;
  const LogitsPointers logits(a.logits, a.logits_type);
  return VLLM_KUNLUN_LAUNCH(stream, num_nans, logits.f32, logits.f16, logits.bf16,
                            Int64{a.logits_stride}, a.num_nans, i32(a.vocab_size),
                            i32(a.num_rows));
}

int launch(const FillLogprobTokenIds& a, const Stream& stream) {
  if (!fit(a.topk, a.num_rows)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, fill_logprob_token_ids, device(a.out_token_ids),
      Int64{a.out_token_ids_stride}, a.out_valid_mask, Int64{a.out_valid_mask_stride},
      device(a.sampled_token_ids), a.topk_indices, Int64{a.topk_indices_stride},
      a.expanded_idx_mapping, a.num_per_req_token_ids, a.per_req_token_ids,
      Int64{a.per_req_token_ids_stride}, i32(a.topk), i32(a.num_rows));
}

int launch(const PromptLogprobsTokenIds& a, const Stream& stream) {
  if (!fit(a.max_len, a.num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, prompt_logprobs_token_ids, device(a.token_ids),
                            a.query_start_loc, a.idx_mapping, a.num_computed_tokens,
                            a.all_token_ids, Int64{a.all_token_ids_stride},
                            i32(a.max_len), i32(a.num_reqs));
}

}  // namespace xpu
}  // namespace vllm_kunlun
