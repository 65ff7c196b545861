// SPDX-License-Identifier: Apache-2.0
#include "contracts/linear.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;
using at::BFloat16;

// How many rows' products with a weight take as long as reading it does.
constexpr int64_t kRowsPerRead = 8;

uint16_t* words(BFloat16* x) { return reinterpret_cast<uint16_t*>(x); }
const uint16_t* words(const BFloat16* x) {
  return reinterpret_cast<const uint16_t*>(x);
}

void linear(const Tensor& out, const Tensor& x, const Tensor& weight,
            const OptionalTensor& bias) {
  const OpCheck check("linear", out);
  if (weight.dim() != 2) {
    check.fail("weight", "of 2 dimensions", "of " + std::to_string(weight.dim()));
  }
  const int64_t columns = weight.size(0), depth = weight.size(1);
  if (depth == 0 || depth % kLinearSums != 0) {
    check.fail("weight", "of a multiple of 64 columns", "of " + std::to_string(depth));
  }
  if (x.dim() < 1 || x.size(-1) != depth) {
    check.fail("x", "of rows of " + std::to_string(depth) + " elements",
               x.dim() < 1 ? "a scalar" : "of " + std::to_string(x.size(-1)));
  }
  const int64_t rows = x.numel() / depth;
  const Linear args{
      words(check.flat<BFloat16>("out", out, rows * columns)),
      words(check.flat<const BFloat16>("x", x, rows * depth)),
      words(check.flat<const BFloat16>("weight", weight, columns * depth)),
      words(check.flat<const BFloat16>("bias", bias, columns)),
      rows,
      columns,
      depth};
  check.in_range("out", out.numel(), rows * columns, rows * columns + 1);
  if (rows == 0) return;
  launch_on_host(host::linear, args, columns, depth + depth * rows / kRowsPerRead);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def("linear(Tensor(a!) out, Tensor x, Tensor weight, Tensor? bias) -> ()");
}

// A Kunlun device has products in bf16 of its own.
TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) { m.impl("linear", &linear); }

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) { m.impl("linear", nothing_to_infer()); }

}  // namespace vllm_kunlun
