// SPDX-License-Identifier: Apache-2.0
#include "contracts/sampling.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"
#include "torch/rows.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

template <void (*kLaunch)(const Temperature&)>
void temperature(const Tensor& logits_ptr, int64_t logits_stride,
                 const Tensor& expanded_idx_mapping_ptr, const Tensor& temperature_ptr,
                 int64_t vocab_size, int64_t block_size, int64_t grid_x,
                 int64_t grid_y) {
  const OpCheck check("temperature", logits_ptr);
  check.at_least("BLOCK_SIZE", block_size, 1);
  check.columns("logits_ptr", logits_ptr, vocab_size);
  const Temperature args{
      check.rows<float>("logits_ptr", logits_ptr, logits_stride, grid_x),
      logits_stride,
      requests_of_rows(check, expanded_idx_mapping_ptr, grid_x,
                       temperature_ptr.numel()),
      check.flat<const float>("temperature_ptr", temperature_ptr, 0),
      vocab_size,
      block_size,
      grid_x,
      grid_y};
  kLaunch(args);
}

void on_host(const Temperature& a) {
  launch_on_host(host::temperature, a, a.num_rows * a.num_blocks,
                 std::min(a.block_size, a.vocab_size));
}

template <void (*kLaunch)(const MinP&)>
void min_p(const Tensor& logits_ptr, int64_t logits_stride,
           const Tensor& expanded_idx_mapping_ptr, const Tensor& min_p_ptr,
           int64_t vocab_size, int64_t grid_x) {
  const OpCheck check("min_p", logits_ptr);
  check.columns("logits_ptr", logits_ptr, vocab_size);
  const MinP args{
      check.rows<float>("logits_ptr", logits_ptr, logits_stride, grid_x),
      logits_stride,
      requests_of_rows(check, expanded_idx_mapping_ptr, grid_x, min_p_ptr.numel()),
      check.flat<const float>("min_p_ptr", min_p_ptr, 0),
      vocab_size,
      grid_x};
  kLaunch(args);
}

void on_host(const MinP& a) {
  launch_on_host(host::min_p, a, a.num_rows, a.vocab_size);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "temperature(Tensor(a!) logits_ptr, int logits_stride, "
      "Tensor expanded_idx_mapping_ptr, Tensor temperature_ptr, int vocab_size, "
      "int BLOCK_SIZE, int grid_x, int grid_y) -> ()");
  m.def(
      "min_p(Tensor(a!) logits_ptr, int logits_stride, "
      "Tensor expanded_idx_mapping_ptr, Tensor min_p_ptr, int vocab_size, int grid_x) "
      "-> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("temperature", &temperature<on_host>);
  m.impl("min_p", &min_p<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("temperature", &temperature<on_xpu>);
  m.impl("min_p", &min_p<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("temperature", nothing_to_infer());
  m.impl("min_p", nothing_to_infer());
}

}  // namespace vllm_kunlun
