// SPDX-License-Identifier: Apache-2.0
#include "torch/check.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace vllm_kunlun {
namespace {

template <class T>
std::string text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

bool checks_indices() {
  static const bool on = [] {
    const char* value = std::getenv("VLLM_KUNLUN_CHECK");
    return value != nullptr && std::strcmp(value, "1") == 0;
  }();
  return on && is_host_memory();
}

void OpCheck::fail(const std::string& name, const std::string& want,
                   const std::string& found) const {
  TORCH_CHECK_VALUE(false, "vllm_kunlun::", op_, ": ", name, " must be ", want,
                    ", but is ", found, ".");
}

void OpCheck::fail_value(const std::string& name, int64_t value, int64_t low,
                         int64_t limit) const {
  const std::string want = limit == INT64_MAX
                               ? "at least " + text(low)
                               : "in [" + text(low) + ", " + text(limit) + ")";
  fail(name, want, text(value));
}

void OpCheck::check_dtype(const char* name, const at::Tensor& t,
                          at::ScalarType want) const {
  if (t.scalar_type() != want) fail(name, text(want), text(t.scalar_type()));
}

IntList OpCheck::integers(const char* name, const at::Tensor& t, int64_t least) const {
  const at::ScalarType dtype = t.scalar_type();
  if (dtype != at::kInt && dtype != at::kLong) {
    fail(name, "Int or Long", text(dtype));
  }
  check_flat(name, t, least);
  return {t.const_data_ptr(), dtype == at::kLong};
}

FloatType OpCheck::float_type(const char* name, const at::Tensor& t) const {
  switch (t.scalar_type()) {
    case at::kFloat:
      return FloatType::kF32;
    case at::kHalf:
      return FloatType::kF16;
    case at::kBFloat16:
      return FloatType::kBF16;
    default:
      fail(name, "Float, Half or BFloat16", text(t.scalar_type()));
  }
}

void OpCheck::columns(const char* name, const at::Tensor& t, int64_t least) const {
  if (t.dim() == 0 || t.size(-1) < least) {
    fail(name, "of at least " + text(least) + " columns",
         "of shape " + text(t.sizes()));
  }
}

void OpCheck::check_flat(const char* name, const at::Tensor& t, int64_t least) const {
  if (t.device() != device_)
    fail(name, "on " + text(device_), "on " + text(t.device()));
  if (!t.is_contiguous()) {
    fail(name, "contiguous",
         "of shape " + text(t.sizes()) + " with strides " + text(t.strides()));
  }
  if (t.numel() < least) {
    fail(name, "of at least " + text(least) + " elements", "of " + text(t.numel()));
  }
  record_argument(name, t);
}

void OpCheck::check_rows(const char* name, const at::Tensor& t, int64_t stride,
                         int64_t least) const {
  if (t.device() != device_)
    fail(name, "on " + text(device_), "on " + text(t.device()));
  if (t.dim() == 0) fail(name, "of at least 1 dimension", "a scalar");
  if (t.stride(0) != stride) {
    fail(name, "of row stride " + text(stride) + " as its stride argument says",
         "of row stride " + text(t.stride(0)));
  }
  int64_t expected = 1;
  for (int64_t d = t.dim() - 1; d > 0; --d) {
    if (t.size(d) > 1 && t.stride(d) != expected) {
      fail(name, "contiguous within a row",
           "of shape " + text(t.sizes()) + " with strides " + text(t.strides()));
    }
    expected *= t.size(d);
  }
  if (t.size(0) < least) {
    fail(name, "of at least " + text(least) + " rows", "of " + text(t.size(0)));
  }
  record_argument(name, t);
}

}  // namespace vllm_kunlun
