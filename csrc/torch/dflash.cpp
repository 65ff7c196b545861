// SPDX-License-Identifier: Apache-2.0
#include "contracts/dflash.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

void check_indices(const OpCheck& check, const PrepareDflashInputs& a,
                   int64_t num_tokens, int64_t num_states) {
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    const int64_t first = a.target_query_start[i];
    const int64_t last = a.target_query_start[i + 1];
    check.index("target_query_start_loc_ptr", i, first, 0, num_tokens);
    check.index("target_query_start_loc_ptr", i + 1, last, first + 1, num_tokens + 1);
    check.index("num_rejected_ptr", i, a.num_rejected[i], 0, last - first);
    check.index("idx_mapping_ptr", i, a.idx_mapping[i], 0, num_states);
    for (int64_t t = first; t < last; ++t) {
      check.index("target_positions_ptr", t, a.target_positions[t], 0, INT64_MAX);
    }
  }
}

template <void (*kLaunch)(const PrepareDflashInputs&)>
void prepare_dflash_inputs(
    const Tensor& out_input_ids_ptr, const Tensor& out_query_positions_ptr,
    const Tensor& out_query_start_loc_ptr, const Tensor& out_seq_lens_ptr,
    const Tensor& out_query_slot_mapping_ptr, const Tensor& out_context_positions_ptr,
    const Tensor& out_context_slot_mapping_ptr, const Tensor& out_sample_indices_ptr,
    const Tensor& out_sample_pos_ptr, const Tensor& out_sample_idx_mapping_ptr,
    const Tensor& target_positions_ptr, const Tensor& target_query_start_loc_ptr,
    const Tensor& idx_mapping_ptr, const Tensor& last_sampled_ptr,
    const Tensor& next_prefill_tokens_ptr, const Tensor& num_sampled_ptr,
    const Tensor& num_rejected_ptr, const Tensor& block_table_ptr,
    int64_t block_table_stride, int64_t parallel_drafting_token_id, int64_t block_size,
    int64_t num_query_per_req, int64_t num_speculative_steps, int64_t max_num_reqs,
    int64_t max_num_tokens, int64_t max_model_len, bool sample_from_anchor,
    int64_t pad_slot_id, int64_t grid_x) {
  const OpCheck check("prepare_dflash_inputs", out_input_ids_ptr);
  check.at_least("block_size", block_size, 1);
  check.at_least("max_model_len", max_model_len, 1);
  check.at_least("num_query_per_req", num_query_per_req, 0);
  check.at_least("max_num_reqs", max_num_reqs, grid_x);
  check.at_least("max_num_tokens", max_num_tokens, grid_x * num_query_per_req);
  // What follows a request's samples is the next request's.
  check.at_least("num_speculative_steps", num_speculative_steps,
                 num_query_per_req - (sample_from_anchor ? 0 : 1));
  const int64_t num_queries = grid_x * num_query_per_req;
  const int64_t max_samples = max_num_reqs * num_speculative_steps;
  const int64_t num_tokens = target_positions_ptr.numel();
  const PrepareDflashInputs args{
      check.flat<int32_t>("out_input_ids_ptr", out_input_ids_ptr, num_queries),
      check.flat<int64_t>("out_query_positions_ptr", out_query_positions_ptr,
                          num_queries),
      check.flat<int32_t>("out_query_start_loc_ptr", out_query_start_loc_ptr,
                          max_num_reqs + 1),
      check.flat<int32_t>("out_seq_lens_ptr", out_seq_lens_ptr, max_num_reqs),
      check.flat<int64_t>("out_query_slot_mapping_ptr", out_query_slot_mapping_ptr,
                          max_num_tokens),
      check.flat<int64_t>("out_context_positions_ptr", out_context_positions_ptr, 0),
      check.flat<int64_t>("out_context_slot_mapping_ptr", out_context_slot_mapping_ptr,
                          0),
      check.flat<int64_t>("out_sample_indices_ptr", out_sample_indices_ptr,
                          max_samples),
      check.flat<int64_t>("out_sample_pos_ptr", out_sample_pos_ptr, max_samples),
      check.flat<int32_t>("out_sample_idx_mapping_ptr", out_sample_idx_mapping_ptr,
                          max_samples),
      check.flat<const int64_t>("target_positions_ptr", target_positions_ptr, 0),
      check.flat<const int32_t>("target_query_start_loc_ptr",
                                target_query_start_loc_ptr, grid_x + 1),
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<const int64_t>("last_sampled_ptr", last_sampled_ptr, 0),
      check.flat<const int32_t>("next_prefill_tokens_ptr", next_prefill_tokens_ptr, 0),
      check.flat<const int32_t>("num_sampled_ptr", num_sampled_ptr, grid_x),
      check.flat<const int32_t>("num_rejected_ptr", num_rejected_ptr, grid_x),
      check.rows<const int32_t>("block_table_ptr", block_table_ptr, block_table_stride,
                                grid_x),
      block_table_stride,
      parallel_drafting_token_id,
      block_size,
      num_query_per_req,
      num_speculative_steps,
      max_num_reqs,
      max_num_tokens,
      max_model_len,
      sample_from_anchor,
      pad_slot_id,
      grid_x};
  if (checks_indices()) {
    check_indices(check, args,
                  std::min({num_tokens, out_context_positions_ptr.numel(),
                            out_context_slot_mapping_ptr.numel()}),
                  std::min(last_sampled_ptr.numel(), next_prefill_tokens_ptr.numel()));
  }
  kLaunch(args);
}

void on_host(const PrepareDflashInputs& a) {
  // Rows of one request: its queries and, on average, its context.
  launch_on_host(
      host::prepare_dflash_inputs, a, a.num_reqs,
      a.num_query_per_req + a.max_num_tokens / std::max<int64_t>(a.max_num_reqs, 1));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "prepare_dflash_inputs(Tensor(a!) out_input_ids_ptr, "
      "Tensor(b!) out_query_positions_ptr, Tensor(c!) out_query_start_loc_ptr, "
      "Tensor(d!) out_seq_lens_ptr, Tensor(e!) out_query_slot_mapping_ptr, "
      "Tensor(f!) out_context_positions_ptr, Tensor(g!) out_context_slot_mapping_ptr, "
      "Tensor(h!) out_sample_indices_ptr, Tensor(i!) out_sample_pos_ptr, "
      "Tensor(j!) out_sample_idx_mapping_ptr, Tensor target_positions_ptr, "
      "Tensor target_query_start_loc_ptr, Tensor idx_mapping_ptr, "
      "Tensor last_sampled_ptr, Tensor next_prefill_tokens_ptr, "
      "Tensor num_sampled_ptr, Tensor num_rejected_ptr, Tensor block_table_ptr, "
      "int block_table_stride, int parallel_drafting_token_id, int block_size, "
      "int num_query_per_req, int num_speculative_steps, int max_num_reqs, "
      "int max_num_tokens, int max_model_len, bool SAMPLE_FROM_ANCHOR, "
      "int PAD_SLOT_ID, int grid_x) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("prepare_dflash_inputs", &prepare_dflash_inputs<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("prepare_dflash_inputs", &prepare_dflash_inputs<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("prepare_dflash_inputs", nothing_to_infer());
}

}  // namespace vllm_kunlun
