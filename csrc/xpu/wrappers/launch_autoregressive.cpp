// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/autoregressive.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const PrepareDraftPrefillInputs& a, const Stream& stream) {
  if (!fit(a.max_num_reqs, a.num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, prepare_draft_prefill_inputs, device(a.last_token_indices),
      device(a.current_step), a.input_ids, device(a.positions), a.query_start_loc,
      a.seq_lens, a.target_input_ids, device(a.target_positions), a.idx_mapping,
      device(a.last_sampled), a.next_prefill_tokens, a.num_sampled, a.num_rejected,
      a.target_query_start, a.target_seq_lens, i32(a.max_num_reqs), i32(a.num_reqs));
}

int launch(const PrepareDecodeInputs& a, const Stream& stream) {
  if (!fit(a.max_num_reqs, a.num_programs, a.max_model_len)) return kTooLarge;
  if (a.num_programs == 0) return kOk;
  return VLLM_KUNLUN_LAUNCH(
      stream, prepare_decode_inputs, device(a.draft_tokens),
      Int64{a.draft_tokens_stride}, a.target_seq_lens, a.num_rejected, a.input_ids,
      device(a.positions), a.query_start_loc, a.seq_lens, i32(a.max_model_len),
      i32(a.max_num_reqs), a.advance_draft_positions, i32(a.num_programs - 1));
}

int launch(const UpdateDraftInputs& a, const Stream& stream) {
  if (!fit(a.num_reqs, a.num_bytes, a.max_model_len)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, update_draft_inputs, device(a.output_draft_tokens),
      Int64{a.output_draft_tokens_stride}, static_cast<char*>(a.next_hidden_states),
      Int64{a.next_hidden_states_row_bytes}, a.input_ids, device(a.positions),
      a.seq_lens, device(a.draft_tokens), device(a.current_step),
      static_cast<const char*>(a.hidden_states), Int64{a.hidden_states_row_bytes},
      i32(a.num_bytes), i32(a.max_model_len), i32(a.num_speculative_steps),
      a.advance_draft_positions, i32(a.num_reqs));
}

}  // namespace xpu
}  // namespace vllm_kunlun
