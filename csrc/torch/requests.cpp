// SPDX-License-Identifier: Apache-2.0
#include "contracts/requests.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/checked.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

void check_indices(const OpCheck& check, const ExpandIdxMapping& a,
                   int64_t num_logits) {
  for (int64_t i = 0; i <= a.num_reqs; ++i) {
    check.index("cu_num_logits_ptr", i, a.cu_num_logits[i],
                i > 0 ? a.cu_num_logits[i - 1] : 0, num_logits + 1);
  }
}

}  // namespace

ExpandIdxMapping checked_expand_idx_mapping(const OpCheck& check,
                                            const Tensor& idx_mapping_ptr,
                                            const Tensor& expanded_idx_mapping_ptr,
                                            const Tensor& expanded_local_pos_ptr,
                                            const Tensor& cu_num_logits_ptr,
                                            int64_t grid_x) {
  const ExpandIdxMapping args{
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<int32_t>("expanded_idx_mapping_ptr", expanded_idx_mapping_ptr, 0),
      check.flat<int32_t>("expanded_local_pos_ptr", expanded_local_pos_ptr,
                          expanded_idx_mapping_ptr.numel()),
      check.flat<const int32_t>("cu_num_logits_ptr", cu_num_logits_ptr, grid_x + 1),
      grid_x};
  if (checks_indices()) check_indices(check, args, expanded_idx_mapping_ptr.numel());
  return args;
}

namespace {

template <void (*kLaunch)(const ExpandIdxMapping&)>
void expand_idx_mapping(const Tensor& idx_mapping_ptr,
                        const Tensor& expanded_idx_mapping_ptr,
                        const Tensor& expanded_local_pos_ptr,
                        const Tensor& cu_num_logits_ptr, int64_t grid_x) {
  const OpCheck check("expand_idx_mapping", idx_mapping_ptr);
  kLaunch(checked_expand_idx_mapping(check, idx_mapping_ptr, expanded_idx_mapping_ptr,
                                     expanded_local_pos_ptr, cu_num_logits_ptr,
                                     grid_x));
}

void on_host(const ExpandIdxMapping& a) {
  launch_on_host(host::expand_idx_mapping, a, a.num_reqs, 8);
}

template <void (*kLaunch)(const PostUpdateNumComputedTokens&)>
void post_update_num_computed_tokens(const Tensor& idx_mapping_ptr,
                                     const Tensor& num_computed_tokens_ptr,
                                     const Tensor& query_start_loc_ptr,
                                     int64_t grid_x) {
  const OpCheck check("post_update_num_computed_tokens", idx_mapping_ptr);
  const PostUpdateNumComputedTokens args{
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<int32_t>("num_computed_tokens_ptr", num_computed_tokens_ptr, 0),
      check.flat<const int32_t>("query_start_loc_ptr", query_start_loc_ptr, grid_x + 1),
      grid_x};
  if (checks_indices()) {
    for (int64_t i = 0; i < grid_x; ++i) {
      check.index("idx_mapping_ptr", i, args.idx_mapping[i], 0,
                  num_computed_tokens_ptr.numel());
    }
  }
  kLaunch(args);
}

void on_host(const PostUpdateNumComputedTokens& a) {
  launch_on_host(host::post_update_num_computed_tokens, a, a.num_reqs, 1);
}

template <void (*kLaunch)(const DcpLocalSeqLens&)>
void dcp_local_seq_lens(const Tensor& out_ptr, const Tensor& seq_lens_ptr,
                        int64_t dcp_size, int64_t dcp_rank, int64_t cp_interleave,
                        int64_t num_reqs, int64_t max_num_reqs) {
  const OpCheck check("dcp_local_seq_lens", out_ptr);
  check.at_least("dcp_size", dcp_size, 1);
  check.in_range("dcp_rank", dcp_rank, 0, dcp_size);
  check.at_least("cp_interleave", cp_interleave, 1);
  check.at_least("num_reqs", num_reqs, 0);
  check.at_least("max_num_reqs", max_num_reqs, 0);
  kLaunch({check.flat<int32_t>("out_ptr", out_ptr, max_num_reqs),
           check.flat<const int32_t>("seq_lens_ptr", seq_lens_ptr,
                                     std::min(num_reqs, max_num_reqs)),
           dcp_size, dcp_rank, cp_interleave, num_reqs, max_num_reqs});
}

void on_host(const DcpLocalSeqLens& a) {
  launch_on_host(host::dcp_local_seq_lens, a, a.max_num_reqs, 4);
}

template <void (*kLaunch)(const ScatterNumAccepted&)>
void scatter_num_accepted(const Tensor& idx_mapping_ptr, const Tensor& num_sampled_ptr,
                          const Tensor& num_accepted_ptr, int64_t grid_x) {
  const OpCheck check("scatter_num_accepted", idx_mapping_ptr);
  const ScatterNumAccepted args{
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<const int32_t>("num_sampled_ptr", num_sampled_ptr, grid_x),
      check.flat<int32_t>("num_accepted_ptr", num_accepted_ptr, 0), grid_x};
  if (checks_indices()) {
    for (int64_t i = 0; i < grid_x; ++i) {
      check.index("idx_mapping_ptr", i, args.idx_mapping[i], INT32_MIN,
                  num_accepted_ptr.numel());
    }
  }
  kLaunch(args);
}

void on_host(const ScatterNumAccepted& a) {
  launch_on_host(host::scatter_num_accepted, a, a.num_reqs, 1);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "expand_idx_mapping(Tensor idx_mapping_ptr, Tensor(a!) expanded_idx_mapping_ptr, "
      "Tensor(b!) expanded_local_pos_ptr, Tensor cu_num_logits_ptr, int grid_x) -> ()");
  m.def(
      "post_update_num_computed_tokens(Tensor idx_mapping_ptr, "
      "Tensor(a!) num_computed_tokens_ptr, Tensor query_start_loc_ptr, "
      "int grid_x) -> ()");
  m.def(
      "dcp_local_seq_lens(Tensor(a!) out_ptr, Tensor seq_lens_ptr, int dcp_size, "
      "int dcp_rank, int cp_interleave, int num_reqs, int max_num_reqs) -> ()");
  m.def(
      "scatter_num_accepted(Tensor idx_mapping_ptr, Tensor num_sampled_ptr, "
      "Tensor(a!) num_accepted_ptr, int grid_x) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("expand_idx_mapping", &expand_idx_mapping<on_host>);
  m.impl("post_update_num_computed_tokens", &post_update_num_computed_tokens<on_host>);
  m.impl("dcp_local_seq_lens", &dcp_local_seq_lens<on_host>);
  m.impl("scatter_num_accepted", &scatter_num_accepted<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("expand_idx_mapping", &expand_idx_mapping<on_xpu>);
  m.impl("post_update_num_computed_tokens", &post_update_num_computed_tokens<on_xpu>);
  m.impl("dcp_local_seq_lens", &dcp_local_seq_lens<on_xpu>);
  m.impl("scatter_num_accepted", &scatter_num_accepted<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("expand_idx_mapping", nothing_to_infer());
  m.impl("post_update_num_computed_tokens", nothing_to_infer());
  m.impl("dcp_local_seq_lens", nothing_to_infer());
  m.impl("scatter_num_accepted", nothing_to_infer());
}

}  // namespace vllm_kunlun
