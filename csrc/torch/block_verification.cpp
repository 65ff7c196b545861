// SPDX-License-Identifier: Apache-2.0
#include "contracts/block_verification.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"
#include "torch/rejection.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

void check_indices(const OpCheck& check, const ComputeCumulativeLogP& a,
                   int64_t num_logits, int64_t num_states, int64_t num_steps,
                   int64_t vocab_size) {
  check_logit_rows(check, a.cu_num_logits, a.num_reqs, num_logits);
  check_drafts(check, a.cu_num_logits, a.draft_sampled, a.num_reqs, num_steps,
               vocab_size);
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    check.index("idx_mapping_ptr", i, a.idx_mapping[i], 0, num_states);
  }
}

template <void (*kLaunch)(const ComputeCumulativeLogP&)>
void compute_cumulative_log_p(
    const Tensor& cumulative_log_p_ptr, const Tensor& target_logits_ptr,
    int64_t target_logits_stride, const Tensor& target_local_max_ptr,
    int64_t target_local_max_stride, const Tensor& target_local_sumexp_ptr,
    int64_t target_local_sumexp_stride, const Tensor& draft_sampled_ptr,
    const OptionalTensor& draft_logits_ptr, int64_t draft_logits_stride_0,
    int64_t draft_logits_stride_1, const Tensor& draft_local_max_ptr,
    int64_t draft_local_max_stride, const Tensor& draft_local_sumexp_ptr,
    int64_t draft_local_sumexp_stride, const Tensor& cu_num_logits_ptr,
    const Tensor& idx_mapping_ptr, const Tensor& temp_ptr, int64_t vocab_num_blocks,
    bool has_draft_logits, int64_t grid_x) {
  const OpCheck check("compute_cumulative_log_p", cumulative_log_p_ptr);
  const int64_t num_logits = draft_sampled_ptr.numel();
  const ComputeCumulativeLogP args{
      check.flat<float>("cumulative_log_p_ptr", cumulative_log_p_ptr, num_logits),
      target_logits(check, target_logits_ptr, target_logits_stride, num_logits, 0),
      logits_stats(check, target_local_max_ptr, target_local_max_stride,
                   target_local_sumexp_ptr, target_local_sumexp_stride,
                   draft_local_max_ptr, draft_local_max_stride, draft_local_sumexp_ptr,
                   draft_local_sumexp_stride, num_logits, vocab_num_blocks),
      check.integers("draft_sampled_ptr", draft_sampled_ptr, 0),
      draft_logits(check, draft_logits_ptr, draft_logits_stride_0,
                   draft_logits_stride_1, 0, has_draft_logits),
      check.flat<const int32_t>("cu_num_logits_ptr", cu_num_logits_ptr, grid_x + 1),
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<const float>("temp_ptr", temp_ptr, 0),
      grid_x};
  if (checks_indices()) {
    const int64_t width = target_logits_ptr.size(-1);
    check_indices(
        check, args, num_logits,
        num_states(temp_ptr, args.draft_logits, draft_logits_ptr),
        has_draft_logits ? draft_logits_ptr->size(1) : INT32_MAX,
        has_draft_logits ? std::min(width, draft_logits_ptr->size(2)) : width);
  }
  kLaunch(args);
}

void on_host(const ComputeCumulativeLogP& a) {
  // An exponential for each block of both sides, for each of a few steps.
  launch_on_host(host::compute_cumulative_log_p, a, a.num_reqs,
                 256 * a.stats.num_blocks);
}

void check_indices(const OpCheck& check, const ComputeLocalResidualMass& a,
                   int64_t num_states) {
  for (int64_t row = 0; row < a.num_logits; ++row) {
    const int64_t step = a.expanded_local_pos[row];
    check.index("expanded_local_pos_ptr", row, step, 0, INT64_MAX);
    if (step == 0 || step >= a.num_speculative_steps) continue;
    // The cumulative ratio is that of the row before.
    check.index("expanded_local_pos_ptr", row, step, 0, row + 1);
    check.index("expanded_idx_mapping_ptr", row, a.expanded_idx_mapping[row], 0,
                num_states);
  }
}

template <void (*kLaunch)(const ComputeLocalResidualMass&)>
void compute_local_residual_mass(
    const Tensor& local_residual_mass_ptr, int64_t local_residual_mass_stride,
    const Tensor& cumulative_log_p_ptr, const Tensor& target_logits_ptr,
    int64_t target_logits_stride, const Tensor& target_local_max_ptr,
    int64_t target_local_max_stride, const Tensor& target_local_sumexp_ptr,
    int64_t target_local_sumexp_stride, const OptionalTensor& draft_logits_ptr,
    int64_t draft_logits_stride_0, int64_t draft_logits_stride_1,
    const Tensor& draft_local_max_ptr, int64_t draft_local_max_stride,
    const Tensor& draft_local_sumexp_ptr, int64_t draft_local_sumexp_stride,
    const Tensor& expanded_idx_mapping_ptr, const Tensor& expanded_local_pos_ptr,
    const Tensor& temp_ptr, int64_t vocab_size, int64_t num_speculative_steps,
    int64_t vocab_num_blocks, int64_t block_size, int64_t grid_x, int64_t grid_y) {
  const OpCheck check("compute_local_residual_mass", local_residual_mass_ptr);
  check.at_least("BLOCK_SIZE", block_size, 1);
  const ComputeLocalResidualMass args{
      row_list<float>(check, "local_residual_mass_ptr", local_residual_mass_ptr,
                      local_residual_mass_stride, grid_x, grid_y),
      check.flat<const float>("cumulative_log_p_ptr", cumulative_log_p_ptr, grid_x),
      target_logits(check, target_logits_ptr, target_logits_stride, grid_x, vocab_size),
      logits_stats(check, target_local_max_ptr, target_local_max_stride,
                   target_local_sumexp_ptr, target_local_sumexp_stride,
                   draft_local_max_ptr, draft_local_max_stride, draft_local_sumexp_ptr,
                   draft_local_sumexp_stride, grid_x, vocab_num_blocks),
      draft_logits(check, draft_logits_ptr, draft_logits_stride_0,
                   draft_logits_stride_1, vocab_size, true),
      check.flat<const int32_t>("expanded_idx_mapping_ptr", expanded_idx_mapping_ptr,
                                grid_x),
      check.flat<const int32_t>("expanded_local_pos_ptr", expanded_local_pos_ptr,
                                grid_x),
      check.flat<const float>("temp_ptr", temp_ptr, 0),
      vocab_size,
      num_speculative_steps,
      block_size,
      grid_x,
      grid_y};
  check.in_range("num_speculative_steps", num_speculative_steps, 0,
                 draft_logits_ptr->size(1) + 1);
  if (checks_indices()) {
    check_indices(check, args,
                  num_states(temp_ptr, args.draft_logits, draft_logits_ptr));
  }
  kLaunch(args);
}

void on_host(const ComputeLocalResidualMass& a) {
  launch_on_host(host::compute_local_residual_mass, a, a.num_logits * a.num_blocks,
                 a.block_size);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "compute_cumulative_log_p(Tensor(a!) cumulative_log_p_ptr, "
      "Tensor target_logits_ptr, int target_logits_stride, "
      "Tensor target_local_max_ptr, int target_local_max_stride, "
      "Tensor target_local_sumexp_ptr, int target_local_sumexp_stride, "
      "Tensor draft_sampled_ptr, Tensor? draft_logits_ptr, int draft_logits_stride_0, "
      "int draft_logits_stride_1, Tensor draft_local_max_ptr, "
      "int draft_local_max_stride, Tensor draft_local_sumexp_ptr, "
      "int draft_local_sumexp_stride, Tensor cu_num_logits_ptr, "
      "Tensor idx_mapping_ptr, Tensor temp_ptr, int vocab_num_blocks, "
      "bool HAS_DRAFT_LOGITS, int grid_x) -> ()");
  m.def(
      "compute_local_residual_mass(Tensor(a!) local_residual_mass_ptr, "
      "int local_residual_mass_stride, Tensor cumulative_log_p_ptr, "
      "Tensor target_logits_ptr, int target_logits_stride, "
      "Tensor target_local_max_ptr, int target_local_max_stride, "
      "Tensor target_local_sumexp_ptr, int target_local_sumexp_stride, "
      "Tensor? draft_logits_ptr, int draft_logits_stride_0, "
      "int draft_logits_stride_1, Tensor draft_local_max_ptr, "
      "int draft_local_max_stride, Tensor draft_local_sumexp_ptr, "
      "int draft_local_sumexp_stride, Tensor expanded_idx_mapping_ptr, "
      "Tensor expanded_local_pos_ptr, Tensor temp_ptr, int vocab_size, "
      "int num_speculative_steps, int vocab_num_blocks, int BLOCK_SIZE, int grid_x, "
      "int grid_y) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("compute_cumulative_log_p", &compute_cumulative_log_p<on_host>);
  m.impl("compute_local_residual_mass", &compute_local_residual_mass<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("compute_cumulative_log_p", &compute_cumulative_log_p<on_xpu>);
  m.impl("compute_local_residual_mass", &compute_local_residual_mass<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("compute_cumulative_log_p", nothing_to_infer());
  m.impl("compute_local_residual_mass", nothing_to_infer());
}

}  // namespace vllm_kunlun
