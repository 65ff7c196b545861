// SPDX-License-Identifier: Apache-2.0
#ifndef VLLM_KUNLUN_TESTS_XPU_FAULTS_KERNELS_H_
#define VLLM_KUNLUN_TESTS_XPU_FAULTS_KERNELS_H_

#include "xpu/language.h"

// Kernels of (out, in, n).
#define VLLM_KUNLUN_PLAIN_KERNELS(X) \
  X(right)                           \
  X(async_right)                     \
  X(shared_right)                    \
  X(global_right)                    \
  X(no_fence_before_copy)            \
  X(async_read_before_fence)         \
  X(async_source_overwritten)        \
  X(async_never_fenced)              \
  X(local_memory_too_large)          \
  X(shared_memory_too_large)         \
  X(local_out_of_range)              \
  X(local_never_written)             \
  X(array_gone)                      \
  X(global_load_out_of_range)        \
  X(copy_out_of_range)               \
  X(copy_of_nothing)                 \
  X(shared_without_barrier)          \
  X(shared_without_fence)            \
  X(shared_never_written)            \
  X(barrier_of_one_core)             \
  X(barrier_of_half_the_cores)       \
  X(return_before_barrier)           \
  X(two_write_one)                   \
  X(two_add_to_one)                  \
  X(clusters_share_global)           \
  X(global_without_fence)            \
  X(order_of_cores)

namespace vllm_kunlun {
namespace xpu {

#define X(name) __global__ void name(GmParam<float>, GmParam<const float>, int);
VLLM_KUNLUN_PLAIN_KERNELS(X)
#undef X

// Kernels of (out, in, pos, n) with the elements' places in pos.
__global__ void int64_right(GmParam<float>, GmParam<const float>, GmParam<const Int64>,
                            int);
__global__ void low_half_of_int64(GmParam<float>, GmParam<const float>,
                                  GmParam<const int>, int);
__global__ void null_pointer(GmParam<float>, GmParam<const float>, GmParam<const int>,
                             int);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_TESTS_XPU_FAULTS_KERNELS_H_
