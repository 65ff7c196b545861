// SPDX-License-Identifier: Apache-2.0
// contracts/rope.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_ROPE_H_
#define VLLM_KUNLUN_XPU_KERNELS_ROPE_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void prepare_rope_positions(
    GmParam<Int64> positions, Int64 positions_stride,
    GmParam<const Int32> prefill_positions, Int64 prefill_req_stride,
    Int64 prefill_dim_stride, GmParam<const Int32> prefill_delta,
    GmParam<const Int32> idx_mapping, GmParam<const Int32> query_start_loc,
    GmParam<const Int32> prefill_lens, GmParam<const Int32> num_computed_tokens,
    int num_dims, int num_reqs);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_ROPE_H_
