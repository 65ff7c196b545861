// SPDX-License-Identifier: Apache-2.0
#include "contracts/rope.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

void check_indices(const OpCheck& check, const PrepareRopePositions& a,
                   int64_t num_states, int64_t num_tokens, int64_t prefill_elements) {
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    const int64_t req = a.idx_mapping[i];
    check.index("idx_mapping_ptr", i, req, 0, num_states);
    const int64_t start = a.query_start_loc[i];
    check.index("query_start_loc_ptr", i, start, 0, num_tokens + 1);
    const int64_t end = a.query_start_loc[i + 1];
    check.index("query_start_loc_ptr", i + 1, end, start, num_tokens + 1);
    check.index("num_computed_tokens_ptr", req, a.num_computed_tokens[req], 0,
                INT64_MAX);
    const int64_t last = std::min<int64_t>(a.prefill_lens[req],
                                           a.num_computed_tokens[req] + end - start);
    if (last <= a.num_computed_tokens[req]) continue;
    check.index("prefill_lens_ptr", req, last, 0, a.prefill_dim_stride + 1);
    check.index("idx_mapping_ptr", i, req, 0,
                prefill_elements / std::max<int64_t>(a.prefill_req_stride, 1));
  }
}

template <void (*kLaunch)(const PrepareRopePositions&)>
void prepare_rope_positions(
    const Tensor& positions_ptr, int64_t positions_stride,
    const Tensor& prefill_positions_ptr, int64_t prefill_positions_stride0,
    int64_t prefill_positions_stride1, const Tensor& prefill_delta_ptr,
    const Tensor& idx_mapping_ptr, const Tensor& query_start_loc_ptr,
    const Tensor& prefill_lens_ptr, const Tensor& num_computed_tokens_ptr,
    int64_t num_dims, int64_t grid_x) {
  const OpCheck check("prepare_rope_positions", positions_ptr);
  check.at_least("prefill_positions_stride0", prefill_positions_stride0, 0);
  check.at_least("prefill_positions_stride1", prefill_positions_stride1, 0);
  const PrepareRopePositions args{
      check.rows<int64_t>("positions_ptr", positions_ptr, positions_stride, num_dims),
      positions_stride,
      check.flat<const int32_t>("prefill_positions_ptr", prefill_positions_ptr, 0),
      prefill_positions_stride0,
      prefill_positions_stride1,
      check.flat<const int32_t>("prefill_delta_ptr", prefill_delta_ptr, 0),
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<const int32_t>("query_start_loc_ptr", query_start_loc_ptr, grid_x + 1),
      check.flat<const int32_t>("prefill_lens_ptr", prefill_lens_ptr, 0),
      check.flat<const int32_t>("num_computed_tokens_ptr", num_computed_tokens_ptr, 0),
      num_dims,
      grid_x};
  if (checks_indices()) {
    const int64_t states =
        std::min({prefill_delta_ptr.numel(), prefill_lens_ptr.numel(),
                  num_computed_tokens_ptr.numel()});
    check_indices(check, args, states, positions_ptr.size(-1),
                  prefill_positions_ptr.numel());
  }
  kLaunch(args);
}

void on_host(const PrepareRopePositions& a) {
  const int64_t tokens = a.num_reqs > 0 ? a.query_start_loc[a.num_reqs] : 0;
  launch_on_host(host::prepare_rope_positions, a, a.num_reqs,
                 a.num_dims * tokens / std::max<int64_t>(a.num_reqs, 1));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "prepare_rope_positions(Tensor(a!) positions_ptr, int positions_stride, "
      "Tensor prefill_positions_ptr, int prefill_positions_stride0, "
      "int prefill_positions_stride1, Tensor prefill_delta_ptr, "
      "Tensor idx_mapping_ptr, Tensor query_start_loc_ptr, Tensor prefill_lens_ptr, "
      "Tensor num_computed_tokens_ptr, int NUM_DIMS, int grid_x) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("prepare_rope_positions", &prepare_rope_positions<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("prepare_rope_positions", &prepare_rope_positions<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("prepare_rope_positions", nothing_to_infer());
}

}  // namespace vllm_kunlun
