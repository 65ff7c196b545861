// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/dflash.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const PrepareDflashInputs& a, const Stream& stream) {
  if (!fit(a.max_num_reqs * a.num_query_per_req,
           a.max_num_reqs * a.num_speculative_steps, a.max_num_tokens,
           a.block_table_stride, a.pad_slot_id,
           a.max_model_len + a.num_query_per_req)) {
    return kTooLarge;
  }
  // The padding is the work of the last request's program.
  if (a.num_reqs == 0) return kOk;
  return VLLM_KUNLUN_LAUNCH(
      stream, prepare_dflash_inputs, a.input_ids, device(a.query_positions),
      a.query_start_loc, a.seq_lens, device(a.query_slots), device(a.context_positions),
      device(a.context_slots), device(a.sample_indices), device(a.sample_pos),
      a.sample_idx_mapping, device(a.target_positions), a.target_query_start,
      a.idx_mapping, device(a.last_sampled), a.next_prefill_tokens, a.num_sampled,
      a.num_rejected, a.block_table, i32(a.block_table_stride),
      i32(a.parallel_drafting_token_id), i32(a.block_size), i32(a.num_query_per_req),
      i32(a.num_speculative_steps), i32(a.max_num_reqs), i32(a.max_num_tokens),
      i32(a.max_model_len), a.sample_from_anchor, i32(a.pad_slot_id), i32(a.num_reqs));
}

}  // namespace xpu
}  // namespace vllm_kunlun
