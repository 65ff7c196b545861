// SPDX-License-Identifier: Apache-2.0
#include "contracts/layers.h"

#include <ATen/Version.h>

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

FloatType type_of(const OpCheck& check, const Tensor& x) {
  const FloatType type = check.float_type("x", x);
  if (type == FloatType::kF16) {
    check.fail("x", "Float or BFloat16", c10::toString(x.scalar_type()));
  }
  return type;
}

// A contiguous tensor of a given type and size.
void check_like(const OpCheck& check, const char* name, const Tensor& t,
                const Tensor& x, int64_t elements) {
  check.check_dtype(name, t, x.scalar_type());
  check.check_flat(name, t, elements);
  check.in_range(name, t.numel(), elements, elements + 1);
}

void* pointer(const OptionalTensor& t) { return t ? t->mutable_data_ptr() : nullptr; }

// Of f32 in a vector of torch's.
int64_t lanes() {
#ifdef __aarch64__
  return 4;
#else
  static const int64_t count = at::get_cpu_capability() == "AVX512" ? 16 : 8;
  return count;
#endif
}

void rms_norm(const Tensor& out, const Tensor& x, const OptionalTensor& residual,
              const OptionalTensor& weight, double epsilon) {
  const OpCheck check("rms_norm", out);
  if (x.dim() < 1) check.fail("x", "of 1 dimension or more", "a scalar");
  const int64_t hidden = x.size(-1);
  if (x.numel() == 0) return;
  const FloatType type = type_of(check, x);
  check.check_flat("x", x, x.numel());
  check_like(check, "out", out, x, x.numel());
  if (residual) check_like(check, "residual", *residual, x, x.numel());
  if (weight) check_like(check, "weight", *weight, x, hidden);
  const RmsNorm args{out.mutable_data_ptr(),
                     x.const_data_ptr(),
                     pointer(residual),
                     weight ? weight->const_data_ptr() : nullptr,
                     type,
                     x.numel() / hidden,
                     hidden,
                     static_cast<float>(epsilon),
                     lanes()};
  launch_on_host(host::rms_norm, args, args.num_rows, hidden);
}

// What an exponential costs, in elements that are only read.
constexpr int64_t kElementsPerExp = 8;

void silu_and_mul(const Tensor& out, const Tensor& x) {
  const OpCheck check("silu_and_mul", out);
  if (x.dim() < 1) check.fail("x", "of 1 dimension or more", "a scalar");
  const int64_t width = x.size(-1) / 2;
  if (x.size(-1) % 2 != 0) {
    check.fail("x", "rows of an even length", std::to_string(x.size(-1)));
  }
  if (x.numel() == 0) return;
  const FloatType type = type_of(check, x);
  check.check_flat("x", x, x.numel());
  check_like(check, "out", out, x, x.numel() / 2);
  const SiluAndMul args{out.mutable_data_ptr(), x.const_data_ptr(), type,
                        x.numel() / (2 * width), width};
  launch_on_host(host::silu_and_mul, args, args.num_rows, kElementsPerExp * width);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "rms_norm(Tensor(a!) out, Tensor x, Tensor(b!)? residual, Tensor? weight, "
      "float epsilon) -> ()");
  m.def("silu_and_mul(Tensor(a!) out, Tensor x) -> ()");
}

// Of a Kunlun device the vendor has both (vllm_kunlun/platform).
TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("rms_norm", &rms_norm);
  m.impl("silu_and_mul", &silu_and_mul);
}

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("rms_norm", nothing_to_infer());
  m.impl("silu_and_mul", nothing_to_infer());
}

}  // namespace vllm_kunlun
