// SPDX-License-Identifier: Apache-2.0
#include "contracts/gumbel.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

void check_indices(const OpCheck& check, const GumbelSample& a, int64_t rows,
                   int64_t row_elements) {
  for (int64_t i = 0; i < a.num_tokens; ++i) {
    const int64_t req = a.expanded_idx_mapping[i];
    if (req < 0) continue;
    check.index("expanded_idx_mapping_ptr", i, req, 0, rows);
    if (a.processed_logits == nullptr || a.processed_logits_col.data == nullptr) {
      continue;
    }
    const int64_t at = a.per_token_col ? i : 0;
    check.index("processed_logits_col_ptr", at, a.processed_logits_col[at], 0,
                row_elements / std::max<int64_t>(a.vocab_size, 1));
  }
}

template <void (*kLaunch)(const GumbelSample&)>
void gumbel_sample(const Tensor& local_argmax_ptr, int64_t local_argmax_stride,
                   const Tensor& local_max_ptr, int64_t local_max_stride,
                   const OptionalTensor& processed_logits_ptr,
                   int64_t processed_logits_stride,
                   const OptionalTensor& processed_logits_col_ptr,
                   const Tensor& logits_ptr, int64_t logits_stride,
                   const Tensor& expanded_idx_mapping_ptr, const Tensor& seeds_ptr,
                   const Tensor& pos_ptr, const Tensor& temp_ptr, int64_t vocab_size,
                   int64_t block_size, bool apply_temperature, bool use_fp64,
                   bool per_token_col, int64_t grid_x, int64_t grid_y) {
  const OpCheck check("gumbel_sample", logits_ptr);
  check.at_least("BLOCK_SIZE", block_size, 1);
  check.columns("logits_ptr", logits_ptr, vocab_size);
  check.columns("local_argmax_ptr", local_argmax_ptr, grid_y);
  check.columns("local_max_ptr", local_max_ptr, grid_y);
  const GumbelSample args{
      check.rows<int64_t>("local_argmax_ptr", local_argmax_ptr, local_argmax_stride,
                          grid_x),
      local_argmax_stride,
      use_fp64
          ? static_cast<void*>(check.rows<double>("local_max_ptr", local_max_ptr,
                                                  local_max_stride, grid_x))
          : check.rows<float>("local_max_ptr", local_max_ptr, local_max_stride, grid_x),
      local_max_stride,
      check.rows<float>("processed_logits_ptr", processed_logits_ptr,
                        processed_logits_stride, 0),
      processed_logits_stride,
      check.integers("processed_logits_col_ptr", processed_logits_col_ptr,
                     per_token_col ? grid_x : 1),
      check.float_rows("logits_ptr", logits_ptr, logits_stride, grid_x),
      check.float_type("logits_ptr", logits_ptr),
      logits_stride,
      check.flat<const int32_t>("expanded_idx_mapping_ptr", expanded_idx_mapping_ptr,
                                grid_x),
      check.flat<const int64_t>("seeds_ptr", seeds_ptr, 0),
      check.integers("pos_ptr", pos_ptr, grid_x),
      check.flat<const float>("temp_ptr", temp_ptr, 0),
      vocab_size,
      block_size,
      apply_temperature,
      use_fp64,
      per_token_col,
      grid_x,
      grid_y};
  int64_t rows = std::min(seeds_ptr.numel(), temp_ptr.numel());
  int64_t row_elements = 0;
  if (processed_logits_ptr) {
    row_elements = processed_logits_ptr->numel() /
                   std::max<int64_t>(processed_logits_ptr->size(0), 1);
    check.in_range("vocab_size", vocab_size, 0, row_elements + 1);
    rows = std::min(rows, processed_logits_ptr->size(0));
  }
  if (checks_indices()) check_indices(check, args, rows, row_elements);
  kLaunch(args);
}

// Noise costs as much as looking at this many logits.
constexpr int64_t kElementsPerDraw = 16;

void on_host(const GumbelSample& a) {
  bool draws = false;
  for (int64_t i = 0; i < a.num_tokens; ++i) {
    const int64_t req = a.expanded_idx_mapping[i];
    draws |= req >= 0 && a.temp[req] != 0;
  }
  launch_on_host(host::gumbel_sample, a, a.num_tokens * a.num_blocks,
                 a.block_size * (draws ? kElementsPerDraw : 1));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "gumbel_sample(Tensor(a!) local_argmax_ptr, int local_argmax_stride, "
      "Tensor(b!) local_max_ptr, int local_max_stride, "
      "Tensor(c!)? processed_logits_ptr, int processed_logits_stride, "
      "Tensor? processed_logits_col_ptr, Tensor logits_ptr, int logits_stride, "
      "Tensor expanded_idx_mapping_ptr, Tensor seeds_ptr, Tensor pos_ptr, "
      "Tensor temp_ptr, int vocab_size, int BLOCK_SIZE, bool APPLY_TEMPERATURE, "
      "bool USE_FP64, bool PER_TOKEN_COL, int grid_x, int grid_y) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("gumbel_sample", &gumbel_sample<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("gumbel_sample", &gumbel_sample<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("gumbel_sample", nothing_to_infer());
}

}  // namespace vllm_kunlun
