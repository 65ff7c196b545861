// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/penalties.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const Penalties& a, const Stream& stream) {
  if (!fit(a.vocab_size, a.num_rows * a.vocab_size)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, penalties, a.logits, Int64{a.logits_stride}, a.expanded_idx_mapping,
      a.token_ids, a.expanded_local_pos, a.repetition_penalty, a.frequency_penalty,
      a.presence_penalty, a.prompt_bin_mask, Int64{a.prompt_bin_mask_stride},
      a.output_bin_counts, Int64{a.output_bin_counts_stride}, i32(a.vocab_size),
      i32(a.num_rows));
}

int launch(const BinCount& a, const Stream& stream) {
  if (!fit(a.vocab_size, a.num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, bincount, a.expanded_idx_mapping, a.all_token_ids,
                            Int64{a.all_token_ids_stride}, a.prompt_len, a.prefill_len,
                            a.prompt_bin_mask, Int64{a.prompt_bin_mask_stride},
                            a.output_bin_counts, Int64{a.output_bin_counts_stride},
                            i32(a.vocab_size), i32(a.num_reqs));
}

}  // namespace xpu
}  // namespace vllm_kunlun
