// SPDX-License-Identifier: Apache-2.0
// contracts/step.h on the XPU: StoreDrafts. PrepareStep is the launches of its fields,
// one after the other.
#ifndef VLLM_KUNLUN_XPU_KERNELS_STEP_H_
#define VLLM_KUNLUN_XPU_KERNELS_STEP_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void store_drafts(GmParam<Int64> draft_tokens, Int64 draft_tokens_stride,
                             GmParam<const Int32> idx_mapping,
                             GmParam<const Int64> drafts, Int64 drafts_stride,
                             int num_steps, int num_reqs);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_STEP_H_
