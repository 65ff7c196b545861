// SPDX-License-Identifier: Apache-2.0
#include "contracts/staged_write.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/checked.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

// The arguments that both forms of the launch share.
ApplyWrite staged(const OpCheck& check, const Tensor& indices, const Tensor& starts,
                  const Tensor& contents, const Tensor& cu_lens, int64_t num_writes) {
  ApplyWrite a{};
  a.indices = check.flat<const int32_t>("write_indices_ptr", indices, num_writes);
  a.starts = check.flat<const int32_t>("write_starts_ptr", starts, num_writes);
  a.cu_lens = check.flat<const int32_t>("write_cu_lens_ptr", cu_lens, num_writes);
  check.check_flat("write_contents_ptr", contents, 0);
  a.contents = contents.const_data_ptr();
  a.element_size = contents.element_size();
  a.num_writes = num_writes;
  if (checks_indices()) {
    int64_t begin = 0;
    for (int64_t w = 0; w < num_writes; ++w) {
      check.index("write_cu_lens_ptr", w, a.cu_lens[w], begin, contents.numel() + 1);
      begin = a.cu_lens[w];
    }
  }
  return a;
}

int64_t length(const ApplyWrite& a, int64_t w) {
  return a.cu_lens[w] - (w > 0 ? a.cu_lens[w - 1] : 0);
}

void on_host(const ApplyWrite& a) {
  if (!simulated(a)) host::apply_write(a);
}

template <void (*kLaunch)(const ApplyWrite&)>
void apply_write(const Tensor& output_ptr, int64_t output_stride,
                 const Tensor& write_indices_ptr, const Tensor& write_starts_ptr,
                 const Tensor& write_contents_ptr, const Tensor& write_cu_lens_ptr,
                 int64_t grid_x) {
  const OpCheck check("apply_write", output_ptr);
  ApplyWrite args = staged(check, write_indices_ptr, write_starts_ptr,
                           write_contents_ptr, write_cu_lens_ptr, grid_x);
  const at::ScalarType dtype = output_ptr.scalar_type();
  if (dtype != at::kInt && dtype != at::kFloat && dtype != at::kLong) {
    check.fail("output_ptr", "Int, Float or Long", toString(dtype));
  }
  check.check_dtype("write_contents_ptr", write_contents_ptr, dtype);
  check.check_rows("output_ptr", output_ptr, output_stride, 0);
  args.output = output_ptr.mutable_data_ptr();
  args.output_stride = output_stride;
  if (checks_indices()) {
    const int64_t elements = output_ptr.numel();
    const int64_t rows = output_ptr.size(0);
    for (int64_t w = 0; w < grid_x; ++w) {
      check.index("write_indices_ptr", w, args.indices[w], 0, rows);
      const int64_t room = elements - args.indices[w] * output_stride;
      check.index("write_starts_ptr", w, args.starts[w], 0, room - length(args, w) + 1);
    }
  }
  kLaunch(args);
}

}  // namespace

ApplyWrite checked_apply_write_multi_group(
    const OpCheck& check, const Tensor& output_ptr, const Tensor& output_stride,
    const Tensor& write_indices_ptr, const Tensor& write_starts_ptr,
    const Tensor& write_contents_ptr, const Tensor& write_cu_lens_ptr,
    const Tensor& write_group_ids_ptr, int64_t grid_x) {
  ApplyWrite args = staged(check, write_indices_ptr, write_starts_ptr,
                           write_contents_ptr, write_cu_lens_ptr, grid_x);
  check.check_dtype("write_contents_ptr", write_contents_ptr, at::kInt);
  const int64_t num_groups = output_ptr.numel();
  args.group_outputs = {check.flat<const uint64_t>("output_ptr", output_ptr, 0)};
  args.group_strides =
      check.flat<const int64_t>("output_stride", output_stride, num_groups);
  args.group_ids =
      check.flat<const int32_t>("write_group_ids_ptr", write_group_ids_ptr, grid_x);
  if (checks_indices()) {
    for (int64_t w = 0; w < grid_x; ++w) {
      check.index("write_group_ids_ptr", w, args.group_ids[w], 0, num_groups);
      check.index("write_indices_ptr", w, args.indices[w], 0, INT64_MAX);
      const int64_t width = args.group_strides[args.group_ids[w]];
      check.index("write_starts_ptr", w, args.starts[w], 0,
                  width - length(args, w) + 1);
    }
  }
  return args;
}

namespace {

template <void (*kLaunch)(const ApplyWrite&)>
void apply_write_multi_group(const Tensor& output_ptr, const Tensor& output_stride,
                             const Tensor& write_indices_ptr,
                             const Tensor& write_starts_ptr,
                             const Tensor& write_contents_ptr,
                             const Tensor& write_cu_lens_ptr,
                             const Tensor& write_group_ids_ptr, int64_t grid_x) {
  const OpCheck check("apply_write", output_ptr);
  kLaunch(checked_apply_write_multi_group(
      check, output_ptr, output_stride, write_indices_ptr, write_starts_ptr,
      write_contents_ptr, write_cu_lens_ptr, write_group_ids_ptr, grid_x));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "apply_write(Tensor(a!) output_ptr, int output_stride, Tensor write_indices_ptr, "
      "Tensor write_starts_ptr, Tensor write_contents_ptr, Tensor write_cu_lens_ptr, "
      "int grid_x) -> ()");
  // The table of addresses is marked as written for the tensors behind it.
  m.def(
      "apply_write.MULTI_GROUP(Tensor(a!) output_ptr, Tensor output_stride, "
      "Tensor write_indices_ptr, Tensor write_starts_ptr, Tensor write_contents_ptr, "
      "Tensor write_cu_lens_ptr, Tensor write_group_ids_ptr, int grid_x) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("apply_write", &apply_write<on_host>);
  m.impl("apply_write.MULTI_GROUP", &apply_write_multi_group<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("apply_write", &apply_write<on_xpu>);
  m.impl("apply_write.MULTI_GROUP", &apply_write_multi_group<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("apply_write", nothing_to_infer());
  m.impl("apply_write.MULTI_GROUP", nothing_to_infer());
}

}  // namespace vllm_kunlun
