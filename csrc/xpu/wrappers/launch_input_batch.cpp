// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/input_batch.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const PreparePrefillInputs& a, const Stream& stream) {
  if (!fit(a.num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, prepare_prefill_inputs, a.input_ids,
                            a.next_prefill_tokens, a.idx_mapping, a.query_start_loc,
                            a.all_token_ids, Int64{a.all_token_ids_stride},
                            a.prefill_lens, a.num_computed_tokens, i32(a.num_reqs));
}

int launch(const PreparePosSeqLens& a, const Stream& stream) {
  if (!fit(a.num_columns, a.max_num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, prepare_pos_seq_lens, device(a.pos), a.seq_lens,
                            a.idx_mapping, a.query_start_loc, a.num_computed_tokens,
                            i32(a.max_num_reqs), i32(a.num_columns));
}

int launch(const CombineSampledAndDraftTokens& a, const Stream& stream) {
  if (!fit(a.num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, combine_sampled_and_draft_tokens, a.input_ids, a.idx_mapping,
      device(a.last_sampled_tokens), a.query_start_loc, a.seq_lens, a.prefill_len,
      device(a.draft_tokens), Int64{a.draft_tokens_stride}, a.cu_num_logits,
      device(a.logits_indices), i32(a.num_new_sampled_tokens), i32(a.num_reqs));
}

int launch(const GetNumSampledAndRejected& a, const Stream& stream) {
  if (!fit(a.num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, get_num_sampled_and_rejected, a.num_sampled,
                            a.num_rejected, a.seq_lens, a.cu_num_logits, a.idx_mapping,
                            a.prefill_len, i32(a.num_reqs));
}

int launch(const PostUpdate& a, const Stream& stream) {
  if (!fit(a.num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, post_update, a.idx_mapping, a.num_computed_tokens,
      device(a.last_sampled_tokens), a.output_bin_counts,
      Int64{a.output_bin_counts_stride}, device(a.sampled_tokens),
      Int64{a.sampled_tokens_stride}, a.num_sampled, a.num_rejected, a.query_start_loc,
      a.all_token_ids, Int64{a.all_token_ids_stride}, a.total_len, i32(a.num_reqs));
}

}  // namespace xpu
}  // namespace vllm_kunlun
