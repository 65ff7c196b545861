// SPDX-License-Identifier: Apache-2.0
// A row of logits that a cluster takes: each of its cores has every core_num()-th
// chunk. C++11, for the XPU's cores.
#ifndef VLLM_KUNLUN_XPU_ROW_H_
#define VLLM_KUNLUN_XPU_ROW_H_

#include "xpu/cluster.h"
#include "xpu/logits.h"

namespace vllm_kunlun {
namespace xpu {

// Calls visit.look(logit, token) for each logit of the core's, in order.
template <class Visit>
__device__ inline void visit_row(const Logits& logits, Int64 at, int vocab_size,
                                 Visit& visit) {
  const int step = core_num() * kLogits;
  const int begin = core_id() * kLogits;
  if (begin >= vocab_size) return;
  LogitsReader reader(logits, at + begin, least(kLogits, vocab_size - begin));
  for (int t = begin; t < vocab_size; t += step) {
    const int n = least(kLogits, vocab_size - t);
    const int ahead = most(least(kLogits, vocab_size - t - step), 0);
    const Lm<float> x = reader.next(at + t + step, ahead);
    for (int j = 0; j < n; ++j) visit.look(x[j], t + j);
  }
}

// The token of the largest of the cores' logits, for all of them: the lowest one where
// several are as large, 0 where nothing is above -inf. In f64, which has every f32.
__device__ inline int argmax_of_cluster(double mine, int my_token) {
  __shared__ SmArray<double, kMaxCores> values;
  __shared__ SmArray<Int32, kMaxCores> tokens;
  values[core_id()] = mine;
  tokens[core_id()] = my_token;
  mfence_sm();
  sync_cluster();
  double best = -infinity();
  int token = 0;
  for (int i = 0; i < core_num(); ++i) {
    const double value = values[i];
    const int its = tokens[i];
    if (value > best || (value == best && value > -infinity() && its < token)) {
      best = value;
      token = its;
    }
  }
  sync_cluster();
  return token;
}

// The lowest token of the row's largest logit, for all cores of the cluster; 0 where
// nothing is above -inf. NaN is never the largest.
__device__ inline int argmax_of_row(const Logits& logits, Int64 at, int vocab_size) {
  Largest<float> mine(-infinity(), 0);
  visit_row(logits, at, vocab_size, mine);
  return argmax_of_cluster(mine.value, mine.index);
}

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_ROW_H_
