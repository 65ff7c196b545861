// SPDX-License-Identifier: Apache-2.0
// The language of the XPU's kernels, for both of their compilers: the XPU's own
// (XTDK), and with VLLM_KUNLUN_SIMULATED any compiler of C++11, which then gets the
// simulator's (docs/simulator.md).
//
// Kernels name the memory that they mean by these types, and nothing else:
//   Gm<T>          a pointer to global memory
//   GmParam<T>     the same, as a kernel's parameter; global_at<T>(address) makes one
//   Lm<T>          a pointer to the core's local memory
//   LmArray<T, n>  an array in local memory:              LmArray<float, 256> x;
//   SmArray<T, n>  an array in the cluster's shared one:  __shared__ SmArray<float, 64>
//   y;
// Elements are reached by p[i] alone, with i of 32 bits; p + n may have 64.
#ifndef VLLM_KUNLUN_XPU_LANGUAGE_H_
#define VLLM_KUNLUN_XPU_LANGUAGE_H_

#ifdef VLLM_KUNLUN_SIMULATED
#include "xpu/sim/language.h"
#elif defined(VLLM_KUNLUN_XPU_HOST_SIDE)
// A wrapper sees kernels' declarations alone, and a compiler that is not for the
// device.
#ifndef __global__
#define __global__ __attribute__((global))
#endif

namespace vllm_kunlun {
namespace xpu {

template <class T>
using GmParam = T*;

}  // namespace xpu
}  // namespace vllm_kunlun
#else
#include "xpu/kernel/xtdk.h"
#include "xpu/kernel/xtdk_math.h"

namespace vllm_kunlun {
namespace xpu {

template <class T>
using Gm = __global_ptr__ T*;
// A kernel's pointer parameters mean global memory without being told, and the
// wrapper's compiler has to find the kernel by the same name.
template <class T>
using GmParam = T*;
// What a table of device addresses says.
template <class T>
__device__ inline Gm<T> global_at(unsigned long long address) {
  return reinterpret_cast<__global_ptr__ T*>(address);
}
template <class T>
using Lm = T*;
template <class T, int kSize>
using LmArray = T[kSize];
template <class T, int kSize>
using SmArray = T[kSize];

}  // namespace xpu
}  // namespace vllm_kunlun
#endif

namespace vllm_kunlun {
namespace xpu {

// 64 bits for both compilers: `long` has 32 on the XPU.
typedef long long Int64;
typedef int Int32;
typedef unsigned int UInt32;
typedef unsigned long long UInt64;
static_assert(sizeof(Int32) == 4 && sizeof(Int64) == 8, "widths of integers");

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_LANGUAGE_H_
