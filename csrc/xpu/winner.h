// SPDX-License-Identifier: Apache-2.0
// The token of a block that has the largest logit with its noise. C++11, for the XPU's
// cores.
#ifndef VLLM_KUNLUN_XPU_WINNER_H_
#define VLLM_KUNLUN_XPU_WINNER_H_

#include "xpu/logits.h"
#include "xpu/noise.h"

namespace vllm_kunlun {
namespace xpu {

struct Winner {
  bool noisy;
  bool in_f64;
  UInt32 seed;
  Largest<float> best;
  Largest<double> best_f64;

  __device__ Winner(bool has_noise, bool is_f64, UInt32 word, int first)
      : noisy(has_noise),
        in_f64(is_f64),
        seed(word),
        best(-infinity(), first),
        best_f64(-infinity(), first) {}

  __device__ void look(float logit, int token) {
    if (noisy && in_f64) {
      best_f64.look(logit + gumbel_noise_f64(seed, token), token);
    } else {
      best.look(noisy ? logit + gumbel_noise(seed, token) : logit, token);
    }
  }

  // The logits of n tokens from `first` on.
  __device__ void look(Lm<float> x, int first, int n) {
    for (int j = 0; j < n; ++j) look(x[j], first + j);
  }

  __device__ int token() const { return noisy && in_f64 ? best_f64.index : best.index; }
  __device__ double value_f64() const {
    return noisy && in_f64 ? best_f64.value : static_cast<double>(best.value);
  }
};

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_WINNER_H_
