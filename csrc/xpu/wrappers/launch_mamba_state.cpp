// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "xpu/host_side.h"
#include "xpu/kernels/mamba_state.h"

namespace vllm_kunlun {
namespace xpu {
namespace {

bool fits(const MambaStates& s, int64_t num_reqs) {
  return fit(num_reqs, s.num_states * kCores * kStateParts, s.block_table_stride);
}

// What the tables of addresses lead to, up to the last block of the batch: how many
// there are is not in the contract.
void declare_states([[maybe_unused]] const MambaStates& s,
                    [[maybe_unused]] int64_t num_reqs) {
#ifdef VLLM_KUNLUN_SIMULATED
  if (num_reqs == 0 || s.num_states == 0) return;
  const int64_t num_groups = *std::max_element(s.groups, s.groups + s.num_states) + 1;
  const int64_t cells = num_reqs * s.block_table_stride;
  declare_tables("block_table_ptrs_ptr", s.block_tables, num_groups,
                 [&](int64_t) { return cells; });
  // States may share a tensor, as views of different types.
  const int32_t element =
      *std::min_element(s.element_sizes, s.element_sizes + s.num_states);
  for (int64_t state = 0; state < s.num_states; ++state) {
    const int32_t* blocks = s.block_tables[s.groups[state]];
    const int64_t last = *std::max_element(blocks, blocks + cells);
    const int64_t width = s.conv_widths[state];
    int64_t bytes =
        s.inner_sizes[state] * s.element_sizes[state] * std::max<int64_t>(width, 1);
    if (s.dim_first && width > 0) bytes = s.row_counts[state] * s.row_strides[state];
    sim::add_argument({"state_base_addrs_ptr[" + std::to_string(state) + "]",
                       reinterpret_cast<const void*>(s.base_addresses[state]),
                       last * s.block_strides[state] + bytes, element});
  }
#endif
}

}  // namespace

int launch(const PreprocessMambaAlign& a, const Stream& stream) {
  if (!fit(a.num_reqs, a.mamba_block_size)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, preprocess_mamba_align, a.idx_mapping, a.state_idx,
                            a.num_computed_tokens, a.query_start_loc, a.num_accepted,
                            a.src_col, a.src_off, i32(a.mamba_block_size),
                            i32(a.num_reqs));
}

int launch(const PrecopyMambaAlign& a, const Stream& stream) {
  const MambaStates& s = a.states;
  if (!fits(s, a.num_reqs)) return kTooLarge;
  declare_states(s, a.num_reqs);
  return VLLM_KUNLUN_LAUNCH(
      stream, precopy_mamba_align, a.state_idx, a.src_col, a.token_bias, a.idx_mapping,
      i32(a.num_reqs), device(s.block_tables), Int64{s.block_table_stride},
      device(s.base_addresses), device(s.block_strides), s.element_sizes,
      device(s.inner_sizes), s.conv_widths, s.groups, s.row_counts,
      device(s.row_strides), i32(s.num_states), s.dim_first);
}

int launch(const PostprocessMamba& a, const Stream& stream) {
  const MambaStates& s = a.states;
  if (!fits(s, a.num_reqs) || !fit(a.block_size)) return kTooLarge;
  declare_states(s, a.num_reqs);
  const int status = VLLM_KUNLUN_LAUNCH(
      stream, postprocess_mamba_states, a.num_accepted, a.state_idx,
      a.num_scheduled_tokens, a.num_computed_tokens, a.num_draft_tokens, a.idx_mapping,
      i32(a.block_size), i32(a.num_reqs), device(s.block_tables),
      Int64{s.block_table_stride}, device(s.base_addresses), device(s.block_strides),
      s.element_sizes, device(s.inner_sizes), s.conv_widths, s.groups, s.row_counts,
      device(s.row_strides), i32(s.num_states), s.dim_first);
  if (status != kOk) return status;
  return VLLM_KUNLUN_LAUNCH(stream, postprocess_mamba_accepted, a.num_accepted,
                            a.state_idx, a.num_scheduled_tokens, a.num_computed_tokens,
                            a.num_draft_tokens, a.accepted_out, a.idx_mapping,
                            i32(a.block_size), i32(a.num_reqs));
}

}  // namespace xpu
}  // namespace vllm_kunlun
