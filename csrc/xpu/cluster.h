// SPDX-License-Identifier: Apache-2.0
// What the cores of a cluster find out together. Every core of the cluster has to call
// these, as often as any other. C++11, for the XPU's cores.
#ifndef VLLM_KUNLUN_XPU_CLUSTER_H_
#define VLLM_KUNLUN_XPU_CLUSTER_H_

#include "xpu/device.h"
#include "xpu/math.h"

namespace vllm_kunlun {
namespace xpu {

const int kMaxCores = 64;

// The largest of the cores' values. Nobody goes on before all have it.
__device__ inline float largest_of_cluster(float mine) {
  __shared__ SmArray<float, kMaxCores> values;
  values[core_id()] = mine;
  mfence_sm();
  sync_cluster();
  float best = values[0];
  for (int i = 1; i < core_num(); ++i) {
    const float other = values[i];
    best = other > best ? other : best;
  }
  sync_cluster();
  return best;
}

// The sum of the cores' values, the same for all: added in the order of the cores.
__device__ inline float sum_of_cluster(float mine) {
  __shared__ SmArray<float, kMaxCores> values;
  values[core_id()] = mine;
  mfence_sm();
  sync_cluster();
  Sum sum;
  sum.clear();
  for (int i = 0; i < core_num(); ++i) sum.add(values[i]);
  sync_cluster();
  return sum.total;
}

__device__ inline int count_of_cluster(int mine) {
  __shared__ SmArray<Int32, kMaxCores> values;
  values[core_id()] = mine;
  mfence_sm();
  sync_cluster();
  int sum = 0;
  for (int i = 0; i < core_num(); ++i) sum += values[i];
  sync_cluster();
  return sum;
}

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_CLUSTER_H_
