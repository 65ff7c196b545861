// SPDX-License-Identifier: Apache-2.0
// contracts/sampling.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_SAMPLING_H_
#define VLLM_KUNLUN_XPU_KERNELS_SAMPLING_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void temperature(GmParam<float> logits, Int64 logits_stride,
                            GmParam<const Int32> expanded_idx_mapping,
                            GmParam<const float> temperatures, int vocab_size,
                            int num_rows);

__global__ void min_p(GmParam<float> logits, Int64 logits_stride,
                      GmParam<const Int32> expanded_idx_mapping,
                      GmParam<const float> min_ps, int vocab_size, int num_rows);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_SAMPLING_H_
