// SPDX-License-Identifier: Apache-2.0
// What the kernels have in common. C++11, for the XPU's cores.
#ifndef VLLM_KUNLUN_XPU_DEVICE_H_
#define VLLM_KUNLUN_XPU_DEVICE_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

// A launch's items of work are dealt out core by core over all clusters, so that a
// small batch occupies every cluster:
//   for (int i = first_item(); i < n; i += num_workers())
__device__ inline int first_item() { return core_id() * cluster_num() + cluster_id(); }
__device__ inline int num_workers() { return core_num() * cluster_num(); }

__device__ inline int least(int a, int b) { return a < b ? a : b; }
__device__ inline int most(int a, int b) { return a > b ? a : b; }

// Where row `row` begins. 64 bits, once for a row; within it 32 are enough.
__device__ inline Int64 offset(int row, Int64 stride) {
  return static_cast<Int64>(row) * stride;
}

// Element i of integers that are passed with 32 bits in one place and with 64 in
// another: one of the pointers is null. With `at` it is the one at place at[i]. The
// values fit into 32 bits.
__device__ inline int item(Gm<const Int32> narrow, Gm<const Int64> wide,
                           Gm<const Int64> at, int i) {
  if (at != nullptr) i = static_cast<int>(at[i]);
  return wide != nullptr ? static_cast<int>(wide[i]) : narrow[i];
}

const int kWords = 256;  // in a copy's buffer

// Copies the elements [part * kSize, + kSize) of n, and those every num_parts buffers
// further on. One buffer is stored while the next one is loaded, so that a core that
// has all parts may move elements to a lower address, too.
template <int kSize, class T>
__device__ inline void copy(Gm<const T> src, Gm<T> dst, int n, int part,
                            int num_parts) {
  const int element = static_cast<int>(sizeof(T));
  LmArray<T, kSize> even;
  LmArray<T, kSize> odd;
  Lm<T> now = even;
  Lm<T> next = odd;
  int first = part * kSize;
  if (first >= n) return;
  GM2LM_ASYNC(src + first, now, element * least(kSize, n - first));
  mfence_lm();
  while (first < n) {
    const int ahead = first + num_parts * kSize;
    if (ahead < n) GM2LM_ASYNC(src + ahead, next, element * least(kSize, n - ahead));
    LM2GM_ASYNC(now, dst + first, element * least(kSize, n - first));
    mfence_lm();
    Lm<T> other = now;
    now = next;
    next = other;
    first = ahead;
  }
}

__device__ inline void copy_words(Gm<const Int32> src, Gm<Int32> dst, int n, int part,
                                  int num_parts) {
  copy<kWords, Int32>(src, dst, n, part, num_parts);
}

// Fills the elements [part * kSize, + kSize) of n, and those every num_parts buffers
// further on.
template <int kSize, class T>
__device__ inline void fill(Gm<T> dst, T value, int n, int part, int num_parts) {
  if (part * kSize >= n) return;
  LmArray<T, kSize> values;
  for (int i = 0; i < least(kSize, n - part * kSize); ++i) values[i] = value;
  mfence_lm();
  for (int first = part * kSize; first < n; first += num_parts * kSize) {
    LM2GM(values, dst + first, static_cast<int>(sizeof(T)) * least(kSize, n - first));
  }
}

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_DEVICE_H_
