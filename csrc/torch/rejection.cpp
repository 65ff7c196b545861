// SPDX-License-Identifier: Apache-2.0
#include "contracts/rejection.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"
#include "torch/rejection.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

void check_indices(const OpCheck& check, const ComputeLocalLogitsStats& a,
                   int64_t num_states) {
  for (int64_t row = 0; row < a.num_logits; ++row) {
    check.index("expanded_local_pos_ptr", row, a.expanded_local_pos[row], 0, INT64_MAX);
    if (a.expanded_local_pos[row] >= a.num_speculative_steps) continue;
    check.index("expanded_idx_mapping_ptr", row, a.expanded_idx_mapping[row], 0,
                num_states);
  }
}

template <void (*kLaunch)(const ComputeLocalLogitsStats&)>
void compute_local_logits_stats(
    const Tensor& target_local_argmax_ptr, int64_t target_local_argmax_stride,
    const Tensor& target_local_max_ptr, int64_t target_local_max_stride,
    const Tensor& target_local_sumexp_ptr, int64_t target_local_sumexp_stride,
    const Tensor& draft_local_max_ptr, int64_t draft_local_max_stride,
    const Tensor& draft_local_sumexp_ptr, int64_t draft_local_sumexp_stride,
    const Tensor& target_logits_ptr, int64_t target_logits_stride,
    const OptionalTensor& draft_logits_ptr, int64_t draft_logits_stride_0,
    int64_t draft_logits_stride_1, const Tensor& expanded_idx_mapping_ptr,
    const Tensor& expanded_local_pos_ptr, const Tensor& temp_ptr, int64_t vocab_size,
    int64_t num_speculative_steps, int64_t block_size, bool has_draft_logits,
    int64_t grid_x, int64_t grid_y) {
  const OpCheck check("compute_local_logits_stats", target_logits_ptr);
  check.at_least("BLOCK_SIZE", block_size, 1);
  const ComputeLocalLogitsStats args{
      row_list<int64_t>(check, "target_local_argmax_ptr", target_local_argmax_ptr,
                        target_local_argmax_stride, grid_x, grid_y),
      row_list<float>(check, "target_local_max_ptr", target_local_max_ptr,
                      target_local_max_stride, grid_x, grid_y),
      row_list<float>(check, "target_local_sumexp_ptr", target_local_sumexp_ptr,
                      target_local_sumexp_stride, grid_x, grid_y),
      row_list<float>(check, "draft_local_max_ptr", draft_local_max_ptr,
                      draft_local_max_stride, grid_x, grid_y),
      row_list<float>(check, "draft_local_sumexp_ptr", draft_local_sumexp_ptr,
                      draft_local_sumexp_stride, grid_x, grid_y),
      target_logits(check, target_logits_ptr, target_logits_stride, grid_x, vocab_size),
      draft_logits(check, draft_logits_ptr, draft_logits_stride_0,
                   draft_logits_stride_1, vocab_size, has_draft_logits),
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
  if (has_draft_logits) {
    check.in_range("num_speculative_steps", num_speculative_steps, 0,
                   draft_logits_ptr->size(1) + 1);
  }
  if (checks_indices()) {
    check_indices(check, args,
                  num_states(temp_ptr, args.draft_logits, draft_logits_ptr));
  }
  kLaunch(args);
}

void on_host(const ComputeLocalLogitsStats& a) {
  launch_on_host(host::compute_local_logits_stats, a, a.num_logits * a.num_blocks,
                 a.block_size);
}

void check_indices(const OpCheck& check, const Rejection& a, int64_t num_logits,
                   int64_t num_states, int64_t num_steps, int64_t vocab_size) {
  check_logit_rows(check, a.cu_num_logits, a.num_reqs, num_logits);
  check_drafts(check, a.cu_num_logits, a.draft_sampled, a.num_reqs, num_steps,
               vocab_size);
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    check.index("idx_mapping_ptr", i, a.idx_mapping[i], 0, num_states);
  }
}

template <void (*kLaunch)(const Rejection&)>
void rejection(
    const Tensor& sampled_ptr, int64_t sampled_stride, const Tensor& rejected_steps_ptr,
    const Tensor& target_rejected_logsumexp_ptr,
    const Tensor& draft_rejected_logsumexp_ptr, const Tensor& target_logits_ptr,
    int64_t target_logits_stride, const Tensor& target_local_argmax_ptr,
    int64_t target_local_argmax_stride, const Tensor& target_local_max_ptr,
    int64_t target_local_max_stride, const Tensor& target_local_sumexp_ptr,
    int64_t target_local_sumexp_stride, const Tensor& draft_sampled_ptr,
    const OptionalTensor& draft_logits_ptr, int64_t draft_logits_stride_0,
    int64_t draft_logits_stride_1, const Tensor& draft_local_max_ptr,
    int64_t draft_local_max_stride, const Tensor& draft_local_sumexp_ptr,
    int64_t draft_local_sumexp_stride, const Tensor& cu_num_logits_ptr,
    const Tensor& idx_mapping_ptr, const Tensor& temp_ptr, const Tensor& seed_ptr,
    const Tensor& pos_ptr, const OptionalTensor& synthetic_conditional_rates_ptr,
    const OptionalTensor& cumulative_log_p_ptr,
    const OptionalTensor& local_residual_mass_ptr, int64_t local_residual_mass_stride,
    int64_t vocab_num_blocks, bool has_draft_logits, bool synthetic_mode,
    bool use_block_verification, int64_t grid_x) {
  const OpCheck check("rejection", target_logits_ptr);
  const int64_t num_logits = draft_sampled_ptr.numel();
  const int64_t blocks = vocab_num_blocks;
  require(check, "synthetic_conditional_rates_ptr", synthetic_conditional_rates_ptr,
          synthetic_mode);
  require(check, "cumulative_log_p_ptr", cumulative_log_p_ptr, use_block_verification);
  const bool has_residual = use_block_verification && has_draft_logits;
  require(check, "local_residual_mass_ptr", local_residual_mass_ptr, has_residual);
  if (synthetic_mode && use_block_verification) {
    check.fail("SYNTHETIC_MODE", "false with USE_BLOCK_VERIFICATION", "true");
  }
  Rejection args{};
  args.sampled =
      row_list<int64_t>(check, "sampled_ptr", sampled_ptr, sampled_stride, grid_x, 0);
  args.rejected_steps =
      check.flat<int32_t>("rejected_steps_ptr", rejected_steps_ptr, grid_x);
  args.target_logsumexp = check.flat<float>("target_rejected_logsumexp_ptr",
                                            target_rejected_logsumexp_ptr, grid_x);
  args.draft_logsumexp = check.flat<float>("draft_rejected_logsumexp_ptr",
                                           draft_rejected_logsumexp_ptr, grid_x);
  args.target_logits =
      target_logits(check, target_logits_ptr, target_logits_stride, num_logits, 0);
  args.target_argmax =
      row_list<const int64_t>(check, "target_local_argmax_ptr", target_local_argmax_ptr,
                              target_local_argmax_stride, num_logits, blocks);
  args.stats = logits_stats(
      check, target_local_max_ptr, target_local_max_stride, target_local_sumexp_ptr,
      target_local_sumexp_stride, draft_local_max_ptr, draft_local_max_stride,
      draft_local_sumexp_ptr, draft_local_sumexp_stride, num_logits, blocks);
  args.draft_sampled = check.integers("draft_sampled_ptr", draft_sampled_ptr, 0);
  args.draft_logits = draft_logits(check, draft_logits_ptr, draft_logits_stride_0,
                                   draft_logits_stride_1, 0, has_draft_logits);
  args.cu_num_logits =
      check.flat<const int32_t>("cu_num_logits_ptr", cu_num_logits_ptr, grid_x + 1);
  args.idx_mapping =
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x);
  args.temp = check.flat<const float>("temp_ptr", temp_ptr, 0);
  args.seed = check.flat<const int64_t>("seed_ptr", seed_ptr, 0);
  args.pos = check.integers("pos_ptr", pos_ptr, num_logits);
  if (synthetic_mode) {
    args.synthetic_conditional_rates = check.flat<const float>(
        "synthetic_conditional_rates_ptr", synthetic_conditional_rates_ptr,
        std::max<int64_t>(sampled_ptr.size(-1) - 1, 0));
  }
  if (use_block_verification) {
    args.cumulative_log_p = check.flat<const float>("cumulative_log_p_ptr",
                                                    cumulative_log_p_ptr, num_logits);
  }
  if (has_residual) {
    args.local_residual_mass = row_list<const float>(
        check, "local_residual_mass_ptr", *local_residual_mass_ptr,
        local_residual_mass_stride, num_logits, blocks);
  }
  args.num_reqs = grid_x;
  if (checks_indices()) {
    const int64_t steps = sampled_ptr.size(-1) - 1;
    const int64_t states = std::min(
        seed_ptr.numel(), num_states(temp_ptr, args.draft_logits, draft_logits_ptr));
    const int64_t width = target_logits_ptr.size(-1);
    check_indices(
        check, args, num_logits, states,
        has_draft_logits ? std::min(steps, draft_logits_ptr->size(1)) : steps,
        has_draft_logits ? std::min(width, draft_logits_ptr->size(2)) : width);
  }
  kLaunch(args);
}

void on_host(const Rejection& a) {
  // An exponential for each block of both sides, for each of a few steps.
  launch_on_host(host::rejection, a, a.num_reqs, 256 * a.stats.num_blocks);
}

void check_indices(const OpCheck& check, const Resample& a, int64_t num_logits,
                   int64_t num_states, int64_t num_steps) {
  check_logit_rows(check, a.cu_num_logits, a.num_reqs, num_logits);
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    const int64_t first = a.cu_num_logits[i];
    const int64_t rows = a.cu_num_logits[i + 1] - first;
    const int64_t step = a.rejected_step[i];
    check.index("rejected_step_ptr", i, step, 0, rows);
    check.index("expanded_idx_mapping_ptr", first + step,
                a.expanded_idx_mapping[first + step], 0, num_states);
    if (step + 1 < rows) check.index("rejected_step_ptr", i, step, 0, num_steps);
  }
}

template <void (*kLaunch)(const Resample&)>
void resample(const Tensor& resampled_local_argmax_ptr,
              int64_t resampled_local_argmax_stride,
              const Tensor& resampled_local_max_ptr, int64_t resampled_local_max_stride,
              const Tensor& target_logits_ptr, int64_t target_logits_stride,
              const Tensor& target_rejected_logsumexp_ptr,
              const OptionalTensor& draft_logits_ptr, int64_t draft_logits_stride_0,
              int64_t draft_logits_stride_1, const Tensor& draft_rejected_logsumexp_ptr,
              const Tensor& rejected_step_ptr, const Tensor& cu_num_logits_ptr,
              const Tensor& expanded_idx_mapping_ptr, const Tensor& draft_sampled_ptr,
              const Tensor& temp_ptr, const Tensor& seed_ptr, const Tensor& pos_ptr,
              const OptionalTensor& cumulative_log_p_ptr, int64_t vocab_size,
              int64_t block_size, bool has_draft_logits, bool use_fp64,
              bool use_block_verification, int64_t grid_x, int64_t grid_y) {
  const OpCheck check("resample", target_logits_ptr);
  const int64_t num_logits = draft_sampled_ptr.numel();
  check.at_least("BLOCK_SIZE", block_size, 1);
  require(check, "cumulative_log_p_ptr", cumulative_log_p_ptr, use_block_verification);
  const Resample args{
      row_list<int64_t>(check, "resampled_local_argmax_ptr", resampled_local_argmax_ptr,
                        resampled_local_argmax_stride, grid_x, grid_y),
      use_fp64
          ? static_cast<void*>(row_list<double>(check, "resampled_local_max_ptr",
                                                resampled_local_max_ptr,
                                                resampled_local_max_stride, grid_x,
                                                grid_y)
                                   .data)
          : row_list<float>(check, "resampled_local_max_ptr", resampled_local_max_ptr,
                            resampled_local_max_stride, grid_x, grid_y)
                .data,
      resampled_local_max_stride,
      target_logits(check, target_logits_ptr, target_logits_stride, num_logits,
                    vocab_size),
      check.flat<const float>("target_rejected_logsumexp_ptr",
                              target_rejected_logsumexp_ptr, grid_x),
      draft_logits(check, draft_logits_ptr, draft_logits_stride_0,
                   draft_logits_stride_1, vocab_size, has_draft_logits),
      check.flat<const float>("draft_rejected_logsumexp_ptr",
                              draft_rejected_logsumexp_ptr, grid_x),
      check.flat<const int32_t>("rejected_step_ptr", rejected_step_ptr, grid_x),
      check.flat<const int32_t>("cu_num_logits_ptr", cu_num_logits_ptr, grid_x + 1),
      check.flat<const int32_t>("expanded_idx_mapping_ptr", expanded_idx_mapping_ptr,
                                num_logits),
      check.integers("draft_sampled_ptr", draft_sampled_ptr, 0),
      check.flat<const float>("temp_ptr", temp_ptr, 0),
      check.flat<const int64_t>("seed_ptr", seed_ptr, 0),
      check.integers("pos_ptr", pos_ptr, num_logits),
      use_block_verification ? check.flat<const float>("cumulative_log_p_ptr",
                                                       cumulative_log_p_ptr, num_logits)
                             : nullptr,
      vocab_size,
      block_size,
      use_fp64,
      grid_x,
      grid_y};
  if (checks_indices()) {
    const int64_t states = std::min(
        seed_ptr.numel(), num_states(temp_ptr, args.draft_logits, draft_logits_ptr));
    check_indices(check, args, num_logits, states,
                  has_draft_logits ? draft_logits_ptr->size(1) : INT64_MAX);
  }
  kLaunch(args);
}

void on_host(const Resample& a) {
  // A token's noise costs as much as several elements of plain work.
  launch_on_host(host::resample, a, a.num_reqs * a.num_blocks, 8 * a.block_size);
}

void check_indices(const OpCheck& check, const InsertResampled& a, int64_t num_logits,
                   int64_t num_states, int64_t columns) {
  check_logit_rows(check, a.cu_num_logits, a.num_reqs, num_logits);
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    const int64_t first = a.cu_num_logits[i];
    const int64_t rows = a.cu_num_logits[i + 1] - first;
    check.index("num_sampled_ptr", i, a.num_sampled[i], 0, std::min(rows, columns));
    const int64_t row = first + a.num_sampled[i];
    check.index("expanded_idx_mapping_ptr", row, a.expanded_idx_mapping[row], 0,
                num_states);
  }
}

template <void (*kLaunch)(const InsertResampled&)>
void insert_resampled(
    const Tensor& sampled_ptr, int64_t sampled_stride, const Tensor& num_sampled_ptr,
    const Tensor& resampled_local_argmax_ptr, int64_t resampled_local_argmax_stride,
    const Tensor& resampled_local_max_ptr, int64_t resampled_local_max_stride,
    int64_t resample_num_blocks, const Tensor& cu_num_logits_ptr,
    const Tensor& expanded_idx_mapping_ptr, const Tensor& temp_ptr, int64_t grid_x) {
  const OpCheck check("insert_resampled", sampled_ptr);
  const bool is_fp64 = resampled_local_max_ptr.scalar_type() == at::kDouble;
  check.at_least("resample_num_blocks", resample_num_blocks, 1);
  const InsertResampled args{
      row_list<int64_t>(check, "sampled_ptr", sampled_ptr, sampled_stride, grid_x, 1),
      check.flat<int32_t>("num_sampled_ptr", num_sampled_ptr, grid_x),
      row_list<const int64_t>(check, "resampled_local_argmax_ptr",
                              resampled_local_argmax_ptr, resampled_local_argmax_stride,
                              grid_x, resample_num_blocks),
      is_fp64 ? static_cast<const void*>(
                    row_list<const double>(
                        check, "resampled_local_max_ptr", resampled_local_max_ptr,
                        resampled_local_max_stride, grid_x, resample_num_blocks)
                        .data)
              : row_list<const float>(
                    check, "resampled_local_max_ptr", resampled_local_max_ptr,
                    resampled_local_max_stride, grid_x, resample_num_blocks)
                    .data,
      resampled_local_max_stride,
      is_fp64,
      check.flat<const int32_t>("cu_num_logits_ptr", cu_num_logits_ptr, grid_x + 1),
      check.flat<const int32_t>("expanded_idx_mapping_ptr", expanded_idx_mapping_ptr,
                                0),
      check.flat<const float>("temp_ptr", temp_ptr, 0),
      grid_x,
      resample_num_blocks};
  if (checks_indices()) {
    check_indices(check, args, expanded_idx_mapping_ptr.numel(), temp_ptr.numel(),
                  sampled_ptr.size(-1));
  }
  kLaunch(args);
}

void on_host(const InsertResampled& a) {
  launch_on_host(host::insert_resampled, a, a.num_reqs, a.num_blocks);
}

template <void (*kLaunch)(const FlattenSampled&)>
void flatten_sampled(const Tensor& flat_sampled_ptr, const Tensor& sampled_ptr,
                     int64_t sampled_stride, const Tensor& num_sampled_ptr,
                     const Tensor& cu_num_logits_ptr, int64_t grid_x) {
  const OpCheck check("flatten_sampled", flat_sampled_ptr);
  const FlattenSampled args{
      check.flat<int64_t>("flat_sampled_ptr", flat_sampled_ptr, 0),
      row_list<const int64_t>(check, "sampled_ptr", sampled_ptr, sampled_stride, grid_x,
                              0),
      check.flat<const int32_t>("num_sampled_ptr", num_sampled_ptr, grid_x),
      check.flat<const int32_t>("cu_num_logits_ptr", cu_num_logits_ptr, grid_x + 1),
      grid_x};
  if (checks_indices()) {
    const int64_t num_logits = flat_sampled_ptr.numel();
    check_logit_rows(check, args.cu_num_logits, grid_x, num_logits);
    for (int64_t i = 0; i < grid_x; ++i) {
      const int64_t room = num_logits - args.cu_num_logits[i];
      check.index("num_sampled_ptr", i, args.num_sampled[i], 0,
                  std::min(room, sampled_ptr.size(-1)) + 1);
    }
  }
  kLaunch(args);
}

void on_host(const FlattenSampled& a) {
  launch_on_host(host::flatten_sampled, a, a.num_reqs, 8);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "compute_local_logits_stats(Tensor(a!) target_local_argmax_ptr, "
      "int target_local_argmax_stride, Tensor(b!) target_local_max_ptr, "
      "int target_local_max_stride, Tensor(c!) target_local_sumexp_ptr, "
      "int target_local_sumexp_stride, Tensor(d!) draft_local_max_ptr, "
      "int draft_local_max_stride, Tensor(e!) draft_local_sumexp_ptr, "
      "int draft_local_sumexp_stride, Tensor target_logits_ptr, "
      "int target_logits_stride, Tensor? draft_logits_ptr, "
      "int draft_logits_stride_0, int draft_logits_stride_1, "
      "Tensor expanded_idx_mapping_ptr, Tensor expanded_local_pos_ptr, "
      "Tensor temp_ptr, int vocab_size, int num_speculative_steps, int BLOCK_SIZE, "
      "bool HAS_DRAFT_LOGITS, int grid_x, int grid_y) -> ()");
  m.def(
      "rejection(Tensor(a!) sampled_ptr, int sampled_stride, "
      "Tensor(b!) rejected_steps_ptr, Tensor(c!) target_rejected_logsumexp_ptr, "
      "Tensor(d!) draft_rejected_logsumexp_ptr, Tensor target_logits_ptr, "
      "int target_logits_stride, Tensor target_local_argmax_ptr, "
      "int target_local_argmax_stride, Tensor target_local_max_ptr, "
      "int target_local_max_stride, Tensor target_local_sumexp_ptr, "
      "int target_local_sumexp_stride, Tensor draft_sampled_ptr, "
      "Tensor? draft_logits_ptr, int draft_logits_stride_0, "
      "int draft_logits_stride_1, Tensor draft_local_max_ptr, "
      "int draft_local_max_stride, Tensor draft_local_sumexp_ptr, "
      "int draft_local_sumexp_stride, Tensor cu_num_logits_ptr, "
      "Tensor idx_mapping_ptr, Tensor temp_ptr, Tensor seed_ptr, Tensor pos_ptr, "
      "Tensor? synthetic_conditional_rates_ptr, Tensor? cumulative_log_p_ptr, "
      "Tensor? local_residual_mass_ptr, int local_residual_mass_stride, "
      "int vocab_num_blocks, bool HAS_DRAFT_LOGITS, bool SYNTHETIC_MODE, "
      "bool USE_BLOCK_VERIFICATION, int grid_x) -> ()");
  m.def(
      "resample(Tensor(a!) resampled_local_argmax_ptr, "
      "int resampled_local_argmax_stride, Tensor(b!) resampled_local_max_ptr, "
      "int resampled_local_max_stride, Tensor target_logits_ptr, "
      "int target_logits_stride, Tensor target_rejected_logsumexp_ptr, "
      "Tensor? draft_logits_ptr, int draft_logits_stride_0, "
      "int draft_logits_stride_1, Tensor draft_rejected_logsumexp_ptr, "
      "Tensor rejected_step_ptr, Tensor cu_num_logits_ptr, "
      "Tensor expanded_idx_mapping_ptr, Tensor draft_sampled_ptr, Tensor temp_ptr, "
      "Tensor seed_ptr, Tensor pos_ptr, Tensor? cumulative_log_p_ptr, "
      "int vocab_size, int BLOCK_SIZE, bool HAS_DRAFT_LOGITS, bool USE_FP64, "
      "bool USE_BLOCK_VERIFICATION, int grid_x, int grid_y) -> ()");
  m.def(
      "insert_resampled(Tensor(a!) sampled_ptr, int sampled_stride, "
      "Tensor(b!) num_sampled_ptr, Tensor resampled_local_argmax_ptr, "
      "int resampled_local_argmax_stride, Tensor resampled_local_max_ptr, "
      "int resampled_local_max_stride, int resample_num_blocks, "
      "Tensor cu_num_logits_ptr, Tensor expanded_idx_mapping_ptr, Tensor temp_ptr, "
      "int grid_x) -> ()");
  m.def(
      "flatten_sampled(Tensor(a!) flat_sampled_ptr, Tensor sampled_ptr, "
      "int sampled_stride, Tensor num_sampled_ptr, Tensor cu_num_logits_ptr, "
      "int grid_x) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("compute_local_logits_stats", &compute_local_logits_stats<on_host>);
  m.impl("rejection", &rejection<on_host>);
  m.impl("resample", &resample<on_host>);
  m.impl("insert_resampled", &insert_resampled<on_host>);
  m.impl("flatten_sampled", &flatten_sampled<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("compute_local_logits_stats", &compute_local_logits_stats<on_xpu>);
  m.impl("rejection", &rejection<on_xpu>);
  m.impl("resample", &resample<on_xpu>);
  m.impl("insert_resampled", &insert_resampled<on_xpu>);
  m.impl("flatten_sampled", &flatten_sampled<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("compute_local_logits_stats", nothing_to_infer());
  m.impl("rejection", nothing_to_infer());
  m.impl("resample", nothing_to_infer());
  m.impl("insert_resampled", nothing_to_infer());
  m.impl("flatten_sampled", nothing_to_infer());
}

}  // namespace vllm_kunlun
