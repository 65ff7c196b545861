// SPDX-License-Identifier: Apache-2.0
// Checks of what an op is given. Each failure is a ValueError of one sentence: the op,
// the argument, what was expected, what was found.
#ifndef VLLM_KUNLUN_TORCH_CHECK_H_
#define VLLM_KUNLUN_TORCH_CHECK_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "contracts/types.h"
#include "torch/backend.h"

namespace vllm_kunlun {

// VLLM_KUNLUN_CHECK=1: look at every index that is read from a tensor before a kernel
// follows it. Costs a pass over the indices, so that it is off otherwise.
bool checks_indices();

class OpCheck {
 public:
  // `first` decides the device that all the other tensors must be on.
  OpCheck(const char* op, const at::Tensor& first) : op_(op), device_(first.device()) {
    begin_arguments(op, device_);
  }

  // Contiguous, with at least `least` elements, whatever its shape.
  template <class T>
  T* flat(const char* name, const at::Tensor& t, int64_t least) const {
    check_dtype(name, t, dtype_of<T>());
    check_flat(name, t, least);
    return data<T>(t);
  }

  // None gives a null pointer.
  template <class T>
  T* flat(const char* name, const std::optional<at::Tensor>& t, int64_t least) const {
    return t ? flat<T>(name, *t, least) : nullptr;
  }

  // At least `least` rows that are `stride` elements apart and each contiguous.
  template <class T>
  T* rows(const char* name, const at::Tensor& t, int64_t stride, int64_t least) const {
    check_dtype(name, t, dtype_of<T>());
    check_rows(name, t, stride, least);
    return data<T>(t);
  }

  template <class T>
  T* rows(const char* name, const std::optional<at::Tensor>& t, int64_t stride,
          int64_t least) const {
    return t ? rows<T>(name, *t, stride, least) : nullptr;
  }

  // Integers of 32 or 64 bits; None gives an empty list.
  IntList integers(const char* name, const at::Tensor& t, int64_t least) const;
  IntList integers(const char* name, const std::optional<at::Tensor>& t,
                   int64_t least) const {
    return t ? integers(name, *t, least) : IntList{};
  }

  // Rows of any type that a model computes in, and which type that is.
  const void* float_rows(const char* name, const at::Tensor& t, int64_t stride,
                         int64_t least) const {
    check_rows(name, t, stride, least);
    return t.const_data_ptr();
  }
  FloatType float_type(const char* name, const at::Tensor& t) const;

  // The width of a tensor's rows.
  void columns(const char* name, const at::Tensor& t, int64_t least) const;

  void check_dtype(const char* name, const at::Tensor& t, at::ScalarType want) const;
  void check_flat(const char* name, const at::Tensor& t, int64_t least) const;
  void check_rows(const char* name, const at::Tensor& t, int64_t stride,
                  int64_t least) const;

  // The value of an integer argument, in [low, limit).
  void in_range(const char* name, int64_t value, int64_t low, int64_t limit) const {
    if (value < low || value >= limit) fail_value(name, value, low, limit);
  }
  void at_least(const char* name, int64_t value, int64_t low) const {
    in_range(name, value, low, INT64_MAX);
  }

  // The value at `position` of an index tensor, in [low, limit).
  void index(const char* name, int64_t position, int64_t value, int64_t low,
             int64_t limit) const {
    if (value < low || value >= limit) {
      fail_value(std::string(name) + '[' + std::to_string(position) + ']', value, low,
                 limit);
    }
  }

  [[noreturn]] void fail(const std::string& name, const std::string& want,
                         const std::string& found) const;

 private:
  template <class T>
  static constexpr at::ScalarType dtype_of() {
    return c10::CppTypeToScalarType<std::remove_const_t<T>>::value;
  }
  template <class T>
  static T* data(const at::Tensor& t) {
    if constexpr (std::is_const_v<T>) {
      return static_cast<T*>(t.const_data_ptr());
    } else {
      return static_cast<T*>(t.mutable_data_ptr());
    }
  }
  [[noreturn]] void fail_value(const std::string& name, int64_t value, int64_t low,
                               int64_t limit) const;

  const char* op_;
  at::Device device_;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_TORCH_CHECK_H_
