// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/ngram.h"

namespace vllm_kunlun {
namespace xpu {

static_assert(kMatchClasses == kLengthClasses && kFollowedBack == kLongestMatch &&
                  kNgramTokens == kLongestNgram && kKinds == kAgreements &&
                  kTrialHead == kTrialNumbers,
              "the kernels' sizes are the contract's");

int launch(const NgramDraft& a, const Stream& stream) {
  const SampledStep& s = a.step;
  if (!fit(s.num_reqs, a.num_steps, a.max_model_len)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, ngram_draft, s.idx_mapping, s.num_sampled, s.all_token_ids,
      Int64{s.all_token_ids_stride}, s.total_len, i32(s.num_reqs),
      device(a.draft_tokens), Int64{a.draft_tokens_stride}, a.num_drafts, &a.found->len,
      i32(a.min_len), i32(a.max_len), i32(a.num_steps), i32(a.max_model_len));
}

int launch(const AdaptDraftLength& a, const Stream& stream) {
  const SampledStep& s = a.step;
  if (!fit(s.num_reqs * a.num_steps, a.free_rows)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, adapt_draft_length, s.idx_mapping, s.query_start_loc, s.seq_lens,
      s.prefill_len, s.num_sampled, s.all_token_ids, Int64{s.all_token_ids_stride},
      s.total_len, i32(s.num_reqs), a.num_drafts, a.trials, a.own, a.pool, a.chance,
      device(a.draft_tokens), Int64{a.draft_tokens_stride}, &a.found->len,
      i32(a.num_steps), a.decay, a.pool_decay, a.pool_weight, a.verify_cost,
      i32(a.free_rows));
}

}  // namespace xpu
}  // namespace vllm_kunlun
