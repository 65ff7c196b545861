// SPDX-License-Identifier: Apache-2.0
#include "contracts/autoregressive.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

void check_indices(const OpCheck& check, const PrepareDraftPrefillInputs& a,
                   int64_t num_tokens, int64_t num_states) {
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    const int64_t first = a.target_query_start[i];
    const int64_t last = a.target_query_start[i + 1];
    check.index("query_start_loc_ptr", i, first, 0, num_tokens);
    check.index("query_start_loc_ptr", i + 1, last, first + 1, num_tokens + 1);
    check.index("num_rejected_ptr", i, a.num_rejected[i], 0, last - first);
    check.index("idx_mapping_ptr", i, a.idx_mapping[i], 0, num_states);
  }
}

template <void (*kLaunch)(const PrepareDraftPrefillInputs&)>
void prepare_draft_prefill_inputs(
    const Tensor& last_token_indices_ptr, const Tensor& draft_current_step_ptr,
    const Tensor& draft_input_ids_ptr, const Tensor& draft_positions_ptr,
    const Tensor& draft_query_start_loc_ptr, const Tensor& draft_seq_lens_ptr,
    const Tensor& target_input_ids_ptr, const Tensor& target_positions_ptr,
    const Tensor& idx_mapping_ptr, const Tensor& last_sampled_ptr,
    const Tensor& next_prefill_tokens_ptr, const Tensor& num_sampled_ptr,
    const Tensor& num_rejected_ptr, const Tensor& query_start_loc_ptr,
    const Tensor& seq_lens_ptr, int64_t max_num_reqs, int64_t grid_x) {
  const OpCheck check("prepare_draft_prefill_inputs", last_token_indices_ptr);
  check.at_least("max_num_reqs", max_num_reqs, grid_x);
  const PrepareDraftPrefillInputs args{
      check.flat<int64_t>("last_token_indices_ptr", last_token_indices_ptr,
                          max_num_reqs),
      check.flat<int64_t>("draft_current_step_ptr", draft_current_step_ptr, 1),
      check.flat<int32_t>("draft_input_ids_ptr", draft_input_ids_ptr, 0),
      check.flat<int64_t>("draft_positions_ptr", draft_positions_ptr, 0),
      check.flat<int32_t>("draft_query_start_loc_ptr", draft_query_start_loc_ptr,
                          max_num_reqs + 1),
      check.flat<int32_t>("draft_seq_lens_ptr", draft_seq_lens_ptr, max_num_reqs),
      check.flat<const int32_t>("target_input_ids_ptr", target_input_ids_ptr, 0),
      check.flat<const int64_t>("target_positions_ptr", target_positions_ptr, 0),
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<const int64_t>("last_sampled_ptr", last_sampled_ptr, 0),
      check.flat<const int32_t>("next_prefill_tokens_ptr", next_prefill_tokens_ptr, 0),
      check.flat<const int32_t>("num_sampled_ptr", num_sampled_ptr, grid_x),
      check.flat<const int32_t>("num_rejected_ptr", num_rejected_ptr, grid_x),
      check.flat<const int32_t>("query_start_loc_ptr", query_start_loc_ptr, grid_x + 1),
      check.flat<const int32_t>("seq_lens_ptr", seq_lens_ptr, grid_x),
      max_num_reqs,
      grid_x};
  if (checks_indices()) {
    check_indices(
        check, args,
        std::min({draft_input_ids_ptr.numel(), draft_positions_ptr.numel(),
                  target_input_ids_ptr.numel(), target_positions_ptr.numel()}),
        std::min(last_sampled_ptr.numel(), next_prefill_tokens_ptr.numel()));
  }
  kLaunch(args);
}

void on_host(const PrepareDraftPrefillInputs& a) {
  const int64_t tokens = a.num_reqs > 0 ? a.target_query_start[a.num_reqs] : 0;
  launch_on_host(host::prepare_draft_prefill_inputs, a, a.num_reqs,
                 tokens / std::max<int64_t>(a.num_reqs, 1));
}

template <void (*kLaunch)(const PrepareDecodeInputs&)>
void prepare_decode_inputs(const Tensor& draft_tokens_ptr, int64_t draft_tokens_stride,
                           const Tensor& target_seq_lens_ptr,
                           const Tensor& num_rejected_ptr, const Tensor& input_ids_ptr,
                           const Tensor& positions_ptr,
                           const Tensor& query_start_loc_ptr,
                           const Tensor& seq_lens_ptr, int64_t max_model_len,
                           int64_t max_num_reqs, bool advance_draft_positions,
                           int64_t grid_x) {
  const OpCheck check("prepare_decode_inputs", draft_tokens_ptr);
  const int64_t num_reqs = std::max<int64_t>(grid_x - 1, 0);
  check.at_least("max_num_reqs", max_num_reqs, num_reqs);
  kLaunch(
      {check.rows<const int64_t>("draft_tokens_ptr", draft_tokens_ptr,
                                 draft_tokens_stride, num_reqs),
       draft_tokens_stride,
       check.flat<const int32_t>("target_seq_lens_ptr", target_seq_lens_ptr, num_reqs),
       check.flat<const int32_t>("num_rejected_ptr", num_rejected_ptr, num_reqs),
       check.flat<int32_t>("input_ids_ptr", input_ids_ptr, num_reqs),
       check.flat<int64_t>("positions_ptr", positions_ptr, num_reqs),
       check.flat<int32_t>("query_start_loc_ptr", query_start_loc_ptr,
                           max_num_reqs + 1),
       check.flat<int32_t>("seq_lens_ptr", seq_lens_ptr, max_num_reqs), max_model_len,
       max_num_reqs, advance_draft_positions, grid_x});
}

void on_host(const PrepareDecodeInputs& a) {
  launch_on_host(host::prepare_decode_inputs, a, a.num_programs, 1);
}

template <void (*kLaunch)(const UpdateDraftInputs&)>
void update_draft_inputs(
    const Tensor& output_draft_tokens_ptr, int64_t output_draft_tokens_stride,
    const Tensor& next_input_hidden_states_ptr, int64_t next_input_hidden_states_stride,
    const Tensor& input_ids_ptr, const Tensor& positions_ptr,
    const Tensor& seq_lens_ptr, const Tensor& draft_tokens_ptr,
    const Tensor& current_draft_step_ptr, const Tensor& hidden_states_ptr,
    int64_t hidden_states_stride, int64_t hidden_size, int64_t max_model_len,
    int64_t num_speculative_steps, bool advance_draft_positions, int64_t grid_x) {
  const OpCheck check("update_draft_inputs", output_draft_tokens_ptr);
  const int64_t element = hidden_states_ptr.element_size();
  check.at_least("hidden_size", hidden_size, 0);
  check.check_dtype("next_input_hidden_states_ptr", next_input_hidden_states_ptr,
                    hidden_states_ptr.scalar_type());
  check.check_rows("next_input_hidden_states_ptr", next_input_hidden_states_ptr,
                   next_input_hidden_states_stride, grid_x);
  check.check_rows("hidden_states_ptr", hidden_states_ptr, hidden_states_stride,
                   grid_x);
  check.columns("next_input_hidden_states_ptr", next_input_hidden_states_ptr,
                hidden_size);
  check.columns("hidden_states_ptr", hidden_states_ptr, hidden_size);
  const UpdateDraftInputs args{
      check.rows<int64_t>("output_draft_tokens_ptr", output_draft_tokens_ptr,
                          output_draft_tokens_stride, grid_x),
      output_draft_tokens_stride,
      next_input_hidden_states_ptr.mutable_data_ptr(),
      next_input_hidden_states_stride * element,
      check.flat<int32_t>("input_ids_ptr", input_ids_ptr, grid_x),
      check.flat<int64_t>("positions_ptr", positions_ptr, grid_x),
      check.flat<int32_t>("seq_lens_ptr", seq_lens_ptr, grid_x),
      check.flat<const int64_t>("draft_tokens_ptr", draft_tokens_ptr, grid_x),
      check.flat<const int64_t>("current_draft_step_ptr", current_draft_step_ptr, 1),
      hidden_states_ptr.const_data_ptr(),
      hidden_states_stride * element,
      hidden_size * element,
      max_model_len,
      num_speculative_steps,
      advance_draft_positions,
      grid_x};
  if (checks_indices()) {
    check.index("current_draft_step_ptr", 0, *args.current_step, 0,
                output_draft_tokens_ptr.size(-1));
  }
  kLaunch(args);
}

void on_host(const UpdateDraftInputs& a) {
  launch_on_host(host::update_draft_inputs, a, a.num_reqs, a.num_bytes / 4);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "prepare_draft_prefill_inputs(Tensor(a!) last_token_indices_ptr, "
      "Tensor(b!) draft_current_step_ptr, Tensor(c!) draft_input_ids_ptr, "
      "Tensor(d!) draft_positions_ptr, Tensor(e!) draft_query_start_loc_ptr, "
      "Tensor(f!) draft_seq_lens_ptr, Tensor target_input_ids_ptr, "
      "Tensor target_positions_ptr, Tensor idx_mapping_ptr, Tensor last_sampled_ptr, "
      "Tensor next_prefill_tokens_ptr, Tensor num_sampled_ptr, "
      "Tensor num_rejected_ptr, Tensor query_start_loc_ptr, Tensor seq_lens_ptr, "
      "int max_num_reqs, int grid_x) -> ()");
  m.def(
      "prepare_decode_inputs(Tensor draft_tokens_ptr, int draft_tokens_stride, "
      "Tensor target_seq_lens_ptr, Tensor num_rejected_ptr, Tensor(a!) input_ids_ptr, "
      "Tensor(b!) positions_ptr, Tensor(c!) query_start_loc_ptr, "
      "Tensor(d!) seq_lens_ptr, int max_model_len, int max_num_reqs, "
      "bool ADVANCE_DRAFT_POSITIONS, int grid_x) -> ()");
  m.def(
      "update_draft_inputs(Tensor(a!) output_draft_tokens_ptr, "
      "int output_draft_tokens_stride, Tensor(b!) next_input_hidden_states_ptr, "
      "int next_input_hidden_states_stride, Tensor(c!) input_ids_ptr, "
      "Tensor(d!) positions_ptr, Tensor(e!) seq_lens_ptr, Tensor draft_tokens_ptr, "
      "Tensor current_draft_step_ptr, Tensor hidden_states_ptr, "
      "int hidden_states_stride, int hidden_size, int max_model_len, "
      "int num_speculative_steps, bool ADVANCE_DRAFT_POSITIONS, int grid_x) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("prepare_draft_prefill_inputs", &prepare_draft_prefill_inputs<on_host>);
  m.impl("prepare_decode_inputs", &prepare_decode_inputs<on_host>);
  m.impl("update_draft_inputs", &update_draft_inputs<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("prepare_draft_prefill_inputs", &prepare_draft_prefill_inputs<on_xpu>);
  m.impl("prepare_decode_inputs", &prepare_decode_inputs<on_xpu>);
  m.impl("update_draft_inputs", &update_draft_inputs<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("prepare_draft_prefill_inputs", nothing_to_infer());
  m.impl("prepare_decode_inputs", nothing_to_infer());
  m.impl("update_draft_inputs", nothing_to_infer());
}

}  // namespace vllm_kunlun
