// SPDX-License-Identifier: Apache-2.0
// How a wrapper launches a kernel: geometry, stream, and the types of arguments.
#ifndef VLLM_KUNLUN_XPU_HOST_SIDE_H_
#define VLLM_KUNLUN_XPU_HOST_SIDE_H_

// Before the declarations of kernels: what launches them needs to know no more.
#define VLLM_KUNLUN_XPU_HOST_SIDE

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "contracts/types.h"
#include "xpu/kernels.h"
#include "xpu/language.h"

#ifdef VLLM_KUNLUN_SIMULATED
#include "xpu/sim/simulator.h"

// The simulated machine has its own geometry, and no streams.
#define VLLM_KUNLUN_LAUNCH(stream, kernel, ...) \
  (static_cast<void>(stream), ::vllm_kunlun::sim::launch(#kernel, kernel, __VA_ARGS__))
#else
#include "xpu/runtime.h"

#ifndef VLLM_KUNLUN_LAUNCH  // a compiler without the XPU's syntax is given another one
#define VLLM_KUNLUN_LAUNCH(stream, kernel, ...)                        \
  (kernel<<<::vllm_kunlun::xpu::kClusters, ::vllm_kunlun::xpu::kCores, \
            static_cast<XPUStream>((stream).handle)>>>(__VA_ARGS__))
#endif
#endif

namespace vllm_kunlun {
namespace xpu {

// The P800's. Of more than 64 cores the launch drops what they were to do.
constexpr int kClusters = 12;
constexpr int kCores = 64;

// Whether sizes fit into what a kernel counts with.
template <class... Sizes>
bool fit(Sizes... sizes) {
  const int64_t limit = std::numeric_limits<int32_t>::max();
  return ((sizes >= -limit && sizes <= limit) && ...);
}

inline int i32(int64_t size) { return static_cast<int>(size); }

// Pointers by the types that both compilers know them by.
template <class T>
T* device(T* p) {
  return p;
}
inline Int64* device(int64_t* p) { return reinterpret_cast<Int64*>(p); }
inline const Int64* device(const int64_t* p) {
  return reinterpret_cast<const Int64*>(p);
}
inline const UInt64* device(const TableOfTables& tables) {
  return reinterpret_cast<const UInt64*>(tables.addresses);
}

// Integers of either width, of which one pointer is null.
inline const Int32* narrow(const IntList& list) {
  return list.is_i64 ? nullptr : static_cast<const Int32*>(list.data);
}
inline const Int64* wide(const IntList& list) {
  return list.is_i64 ? static_cast<const Int64*>(list.data) : nullptr;
}

// Results that are f64 where asked for, by pointers of which one is null.
template <class Void>
auto in_f32(Void* p, bool is_f64) {
  using T = std::conditional_t<std::is_const_v<Void>, const float, float>;
  return is_f64 ? nullptr : static_cast<T*>(p);
}
template <class Void>
auto in_f64(Void* p, bool is_f64) {
  using T = std::conditional_t<std::is_const_v<Void>, const double, double>;
  return is_f64 ? static_cast<T*>(p) : nullptr;
}

// Logits by pointers of which one is not null, unless there are none.
struct LogitsPointers {
  const float* f32 = nullptr;
  const unsigned short* f16 = nullptr;
  const unsigned short* bf16 = nullptr;

  LogitsPointers(const void* data, FloatType type) {
    switch (type) {
      case FloatType::kF32:
        f32 = static_cast<const float*>(data);
        break;
      case FloatType::kF16:
        f16 = static_cast<const unsigned short*>(data);
        break;
      case FloatType::kBF16:
        bf16 = static_cast<const unsigned short*>(data);
        break;
    }
  }
};

// Says what the addresses of a table lead to: elements(g) words for group g. Only the
// simulator has to know, whose memory the host can read.
template <class Elements>
void declare_tables([[maybe_unused]] const char* name,
                    [[maybe_unused]] const TableOfTables& tables,
                    [[maybe_unused]] int64_t count,
                    [[maybe_unused]] const Elements& elements) {
#ifdef VLLM_KUNLUN_SIMULATED
  for (int64_t g = 0; g < count; ++g) {
    sim::add_argument({std::string(name) + "[" + std::to_string(g) + "]", tables[g],
                       elements(g) * int64_t{4}, 4});
  }
#endif
}

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_HOST_SIDE_H_
