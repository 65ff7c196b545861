// SPDX-License-Identifier: Apache-2.0
#include "contracts/requests.h"

#include "host/kernels.h"
#include "torch/check.h"
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

template <void (*kLaunch)(const ExpandIdxMapping&)>
void expand_idx_mapping(const Tensor& idx_mapping_ptr,
                        const Tensor& expanded_idx_mapping_ptr,
                        const Tensor& expanded_local_pos_ptr,
                        const Tensor& cu_num_logits_ptr, int64_t grid_x) {
  const OpCheck check("expand_idx_mapping", idx_mapping_ptr);
  const ExpandIdxMapping args{
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<int32_t>("expanded_idx_mapping_ptr", expanded_idx_mapping_ptr, 0),
      check.flat<int32_t>("expanded_local_pos_ptr", expanded_local_pos_ptr,
                          expanded_idx_mapping_ptr.numel()),
      check.flat<const int32_t>("cu_num_logits_ptr", cu_num_logits_ptr, grid_x + 1),
      grid_x};
  if (checks_indices()) check_indices(check, args, expanded_idx_mapping_ptr.numel());
  kLaunch(args);
}

void on_host(const ExpandIdxMapping& a) {
  launch_on_host(host::expand_idx_mapping, a, a.num_reqs, 8);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "expand_idx_mapping(Tensor idx_mapping_ptr, Tensor(a!) expanded_idx_mapping_ptr, "
      "Tensor(b!) expanded_local_pos_ptr, Tensor cu_num_logits_ptr, int grid_x) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("expand_idx_mapping", &expand_idx_mapping<on_host>);
}

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("expand_idx_mapping", nothing_to_infer());
}

}  // namespace vllm_kunlun
