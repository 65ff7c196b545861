// SPDX-License-Identifier: Apache-2.0
#include "contracts/mamba_state.h"

#include "host/kernels.h"
#include "host/mamba_state.h"
#include "torch/check.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

template <void (*kLaunch)(const PreprocessMambaAlign&)>
void preprocess_mamba_align_fused(const Tensor& idx_mapping_ptr,
                                  const Tensor& state_idx_ptr,
                                  const Tensor& num_computed_tokens_ptr,
                                  const Tensor& query_start_loc_ptr,
                                  const Tensor& num_accepted_tokens_ptr,
                                  const Tensor& src_col_ptr, const Tensor& src_off_ptr,
                                  int64_t num_reqs, int64_t mamba_block_size) {
  const OpCheck check("preprocess_mamba_align_fused", idx_mapping_ptr);
  check.at_least("num_reqs", num_reqs, 0);
  check.at_least("MAMBA_BLOCK_SIZE", mamba_block_size, 1);
  const int64_t states = state_idx_ptr.numel();
  const PreprocessMambaAlign args{
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, num_reqs),
      check.flat<int32_t>("state_idx_ptr", state_idx_ptr, 0),
      check.flat<const int32_t>("num_computed_tokens_ptr", num_computed_tokens_ptr,
                                states),
      check.flat<const int32_t>("query_start_loc_ptr", query_start_loc_ptr,
                                num_reqs + 1),
      check.flat<int32_t>("num_accepted_tokens_ptr", num_accepted_tokens_ptr, states),
      check.flat<int32_t>("src_col_ptr", src_col_ptr, states),
      check.flat<int32_t>("src_off_ptr", src_off_ptr, states),
      num_reqs,
      mamba_block_size};
  if (checks_indices()) {
    for (int64_t i = 0; i < num_reqs; ++i) {
      check.index("idx_mapping_ptr", i, args.idx_mapping[i], 0, states);
    }
  }
  kLaunch(args);
}

void on_host(const PreprocessMambaAlign& a) {
  launch_on_host(host::preprocess_mamba_align, a, a.num_reqs, 8);
}

// The arguments that the kernels that move states share, in upstream's order.
struct StateTensors {
  const Tensor& block_table_ptrs;
  int64_t block_table_stride_req;
  const Tensor& base_addrs;
  const Tensor& block_strides;
  const Tensor& elem_sizes;
  const Tensor& inner_sizes;
  const Tensor& conv_widths;
  const Tensor& group_indices;
  const Tensor& dim_row_count;
  const Tensor& dim_row_stride;
};

MambaStates checked(const OpCheck& check, const StateTensors& t, bool dim_first,
                    int64_t num_states) {
  check.at_least("block_table_stride_req", t.block_table_stride_req, 0);
  const int64_t* tables =
      check.flat<const int64_t>("block_table_ptrs_ptr", t.block_table_ptrs, 1);
  const MambaStates states{
      {reinterpret_cast<const uint64_t*>(tables)},
      t.block_table_stride_req,
      check.flat<const int64_t>("state_base_addrs_ptr", t.base_addrs, num_states),
      check.flat<const int64_t>("state_block_strides_ptr", t.block_strides, num_states),
      check.flat<const int32_t>("state_elem_sizes_ptr", t.elem_sizes, num_states),
      check.flat<const int64_t>("state_inner_sizes_ptr", t.inner_sizes, num_states),
      check.flat<const int32_t>("state_conv_widths_ptr", t.conv_widths, num_states),
      check.flat<const int32_t>("state_group_indices_ptr", t.group_indices, num_states),
      check.flat<const int32_t>("state_dim_row_count_ptr", t.dim_row_count, num_states),
      check.flat<const int64_t>("state_dim_row_stride_ptr", t.dim_row_stride,
                                num_states),
      num_states,
      dim_first};
  if (checks_indices()) {
    for (int64_t s = 0; s < num_states; ++s) {
      check.index("state_group_indices_ptr", s, states.groups[s], 0,
                  t.block_table_ptrs.numel());
    }
  }
  return states;
}

// Checks the columns of a move of row i of the block tables, which the arguments with
// the given names have for request `req`.
void check_move(const OpCheck& check, const MambaStates& s, int64_t i, int64_t req,
                const host::Move& move, const char* source, const char* target) {
  check.index(target, req, move.target, 0, s.block_table_stride);
  for (int64_t state = 0; state < s.num_states; ++state) {
    const int64_t bias = s.conv_widths[state] == 0 ? move.bias : 0;
    check.index(source, req, move.source, 0, s.block_table_stride - bias);
    const int64_t group = s.groups[state];
    const std::string table = "block_table_ptrs_ptr[" + std::to_string(group) + ']';
    for (const int64_t column : {move.source + bias, move.target}) {
      const int64_t at = i * s.block_table_stride + column;
      check.index(table.c_str(), at, s.block_tables[group][at], 0, INT64_MAX);
    }
  }
}

// Checks the requests of a launch and their moves; every request's row is < `limit`.
template <class Args>
void check_moves(const OpCheck& check, const Args& a, int64_t limit, const char* source,
                 const char* target) {
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    const int64_t req = a.idx_mapping != nullptr ? a.idx_mapping[i] : i;
    check.index("idx_mapping_ptr", i, req, INT32_MIN, limit);
    const std::optional<host::Move> move = host::move_of(a, i);
    if (!move || move->is_nothing()) continue;
    check_move(check, a.states, i, req, *move, source, target);
  }
}

// What a program touches on average: most steps move little or nothing.
template <class Args>
int64_t elements_of_program(const Args& a) {
  int64_t moves = 0;
  for (int64_t i = 0; i < a.num_reqs; ++i) moves += host::move_of(a, i).has_value();
  if (moves == 0) return 1;
  int64_t largest = 0;
  for (int64_t s = 0; s < a.states.num_states; ++s) {
    const int64_t rows = a.states.dim_first ? a.states.row_counts[s] : 1;
    const int64_t width = a.states.conv_widths[s];
    const int64_t tokens = width > 0 ? width * rows : 1;
    largest = std::max(largest, tokens * a.states.inner_sizes[s]);
  }
  return largest * moves / a.num_reqs;
}

template <void (*kLaunch)(const PrecopyMambaAlign&)>
void precopy_mamba_align_fused(
    const Tensor& mamba_state_idx_ptr, const Tensor& src_col_ptr,
    const Tensor& token_bias_ptr, const Tensor& block_table_ptrs_ptr,
    int64_t block_table_stride_req, const Tensor& state_base_addrs_ptr,
    const Tensor& state_block_strides_ptr, const Tensor& state_elem_sizes_ptr,
    const Tensor& state_inner_sizes_ptr, const Tensor& state_conv_widths_ptr,
    const Tensor& state_group_indices_ptr, const Tensor& state_dim_row_count_ptr,
    const Tensor& state_dim_row_stride_ptr, const Tensor& idx_mapping_ptr,
    int64_t num_reqs, bool conv_state_dim_first, int64_t grid_x, int64_t grid_y) {
  const OpCheck check("precopy_mamba_align_fused", mamba_state_idx_ptr);
  check.at_least("num_reqs", num_reqs, 0);
  const int64_t n = std::min(num_reqs, grid_x);
  const int64_t rows = mamba_state_idx_ptr.numel();
  const PrecopyMambaAlign args{
      check.flat<const int32_t>("mamba_state_idx_ptr", mamba_state_idx_ptr, 0),
      check.flat<const int32_t>("src_col_ptr", src_col_ptr, rows),
      check.flat<const int32_t>("token_bias_ptr", token_bias_ptr, rows),
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, n),
      n,
      checked(check,
              {block_table_ptrs_ptr, block_table_stride_req, state_base_addrs_ptr,
               state_block_strides_ptr, state_elem_sizes_ptr, state_inner_sizes_ptr,
               state_conv_widths_ptr, state_group_indices_ptr, state_dim_row_count_ptr,
               state_dim_row_stride_ptr},
              conv_state_dim_first, grid_y)};
  if (checks_indices()) {
    check_moves(check, args, rows, "src_col_ptr", "mamba_state_idx_ptr");
  }
  kLaunch(args);
}

void on_host(const PrecopyMambaAlign& a) {
  launch_on_host(host::precopy_mamba_align, a, a.num_reqs * a.states.num_states,
                 elements_of_program(a));
}

// A tensor that the launch's flags make necessary.
const Tensor& needed(const OpCheck& check, const char* name, const OptionalTensor& t) {
  if (!t) check.fail(name, "a tensor with these flags", "None");
  return *t;
}

template <void (*kLaunch)(const PostprocessMamba&)>
void postprocess_mamba_fused(
    const Tensor& num_accepted_tokens_ptr, const Tensor& mamba_state_idx_ptr,
    const OptionalTensor& num_scheduled_tokens_ptr,
    const Tensor& num_computed_tokens_ptr, const OptionalTensor& num_draft_tokens_ptr,
    const Tensor& block_table_ptrs_ptr, int64_t block_table_stride_req,
    const Tensor& state_base_addrs_ptr, const Tensor& state_block_strides_ptr,
    const Tensor& state_elem_sizes_ptr, const Tensor& state_inner_sizes_ptr,
    const Tensor& state_conv_widths_ptr, const Tensor& state_group_indices_ptr,
    const Tensor& state_dim_row_count_ptr, const Tensor& state_dim_row_stride_ptr,
    const OptionalTensor& num_accepted_tokens_out_ptr,
    const OptionalTensor& idx_mapping_ptr, int64_t num_reqs, int64_t block_size,
    bool conv_state_dim_first, bool has_idx_mapping, bool precomputed_new_computed,
    int64_t grid_x, int64_t grid_y) {
  const OpCheck check("postprocess_mamba_fused", num_accepted_tokens_ptr);
  check.at_least("num_reqs", num_reqs, 0);
  check.at_least("block_size", block_size, 1);
  const int64_t n = std::min(num_reqs, grid_x);
  const int64_t rows = has_idx_mapping ? num_accepted_tokens_ptr.numel() : n;
  PostprocessMamba args{};
  args.num_accepted =
      check.flat<const int32_t>("num_accepted_tokens_ptr", num_accepted_tokens_ptr, n);
  args.state_idx =
      check.flat<const int32_t>("mamba_state_idx_ptr", mamba_state_idx_ptr, rows);
  args.num_computed_tokens = check.flat<const int32_t>("num_computed_tokens_ptr",
                                                       num_computed_tokens_ptr, rows);
  if (!precomputed_new_computed) {
    const char* scheduled = "num_scheduled_tokens_ptr";
    const char* draft = "num_draft_tokens_ptr";
    args.num_scheduled_tokens = check.flat<const int32_t>(
        scheduled, needed(check, scheduled, num_scheduled_tokens_ptr), rows);
    args.num_draft_tokens = check.flat<const int32_t>(
        draft, needed(check, draft, num_draft_tokens_ptr), rows);
  }
  if (has_idx_mapping) {
    const char* name = "idx_mapping_ptr";
    args.idx_mapping =
        check.flat<const int32_t>(name, needed(check, name, idx_mapping_ptr), n);
    args.accepted_out =
        check.flat<int32_t>("num_accepted_tokens_ptr", num_accepted_tokens_ptr, 0);
  } else {
    const char* name = "num_accepted_tokens_out_ptr";
    args.accepted_out =
        check.flat<int32_t>(name, needed(check, name, num_accepted_tokens_out_ptr), n);
  }
  args.num_reqs = n;
  args.block_size = block_size;
  args.states =
      checked(check,
              {block_table_ptrs_ptr, block_table_stride_req, state_base_addrs_ptr,
               state_block_strides_ptr, state_elem_sizes_ptr, state_inner_sizes_ptr,
               state_conv_widths_ptr, state_group_indices_ptr, state_dim_row_count_ptr,
               state_dim_row_stride_ptr},
              conv_state_dim_first, grid_y);
  if (checks_indices()) {
    check_moves(check, args, rows, "mamba_state_idx_ptr", "num_computed_tokens_ptr");
  }
  kLaunch(args);
}

void on_host(const PostprocessMamba& a) {
  if (simulated(a)) return;
  launch_on_host(host::postprocess_mamba_states, a, a.num_reqs * a.states.num_states,
                 elements_of_program(a));
  host::postprocess_mamba_accepted(a);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "preprocess_mamba_align_fused(Tensor idx_mapping_ptr, Tensor(a!) state_idx_ptr, "
      "Tensor num_computed_tokens_ptr, Tensor query_start_loc_ptr, "
      "Tensor(b!) num_accepted_tokens_ptr, Tensor(c!) src_col_ptr, "
      "Tensor(d!) src_off_ptr, int num_reqs, int MAMBA_BLOCK_SIZE) -> ()");
  // The tables of addresses are marked as written for the states behind them.
  m.def(
      "precopy_mamba_align_fused(Tensor mamba_state_idx_ptr, Tensor src_col_ptr, "
      "Tensor token_bias_ptr, Tensor block_table_ptrs_ptr, int block_table_stride_req, "
      "Tensor(a!) state_base_addrs_ptr, Tensor state_block_strides_ptr, "
      "Tensor state_elem_sizes_ptr, Tensor state_inner_sizes_ptr, "
      "Tensor state_conv_widths_ptr, Tensor state_group_indices_ptr, "
      "Tensor state_dim_row_count_ptr, Tensor state_dim_row_stride_ptr, "
      "Tensor idx_mapping_ptr, int num_reqs, bool CONV_STATE_DIM_FIRST, int grid_x, "
      "int grid_y) -> ()");
  m.def(
      "postprocess_mamba_fused(Tensor(a!) num_accepted_tokens_ptr, "
      "Tensor mamba_state_idx_ptr, Tensor? num_scheduled_tokens_ptr, "
      "Tensor num_computed_tokens_ptr, Tensor? num_draft_tokens_ptr, "
      "Tensor block_table_ptrs_ptr, int block_table_stride_req, "
      "Tensor(b!) state_base_addrs_ptr, Tensor state_block_strides_ptr, "
      "Tensor state_elem_sizes_ptr, Tensor state_inner_sizes_ptr, "
      "Tensor state_conv_widths_ptr, Tensor state_group_indices_ptr, "
      "Tensor state_dim_row_count_ptr, Tensor state_dim_row_stride_ptr, "
      "Tensor(c!)? num_accepted_tokens_out_ptr, Tensor? idx_mapping_ptr, int num_reqs, "
      "int block_size, bool CONV_STATE_DIM_FIRST, bool HAS_IDX_MAPPING, "
      "bool PRECOMPUTED_NEW_COMPUTED, int grid_x, int grid_y) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("preprocess_mamba_align_fused", &preprocess_mamba_align_fused<on_host>);
  m.impl("precopy_mamba_align_fused", &precopy_mamba_align_fused<on_host>);
  m.impl("postprocess_mamba_fused", &postprocess_mamba_fused<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("preprocess_mamba_align_fused", &preprocess_mamba_align_fused<on_xpu>);
  m.impl("precopy_mamba_align_fused", &precopy_mamba_align_fused<on_xpu>);
  m.impl("postprocess_mamba_fused", &postprocess_mamba_fused<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("preprocess_mamba_align_fused", nothing_to_infer());
  m.impl("precopy_mamba_align_fused", nothing_to_infer());
  m.impl("postprocess_mamba_fused", nothing_to_infer());
}

}  // namespace vllm_kunlun
