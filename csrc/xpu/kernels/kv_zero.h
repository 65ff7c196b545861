// SPDX-License-Identifier: Apache-2.0
// contracts/kv_zero.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_KV_ZERO_H_
#define VLLM_KUNLUN_XPU_KERNELS_KV_ZERO_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void zero_kv_blocks(GmParam<const UInt64> segments,
                               GmParam<const Int64> block_ids, int num_blocks,
                               int num_segments, int page_size);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_KV_ZERO_H_
