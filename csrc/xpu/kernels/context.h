// SPDX-License-Identifier: Apache-2.0
// contracts/dflash.h, GatherContext, on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_CONTEXT_H_
#define VLLM_KUNLUN_XPU_KERNELS_CONTEXT_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

// Sources of a launch, of which the first num_sources count. More of them take another
// launch, whose features begin further right in each row. Positions and slots are
// written where out_positions is not null.
const int kContextSources = 8;

const int kContextBytes = 2048;  // of a row that a core copies at a time

__global__ void gather_context(
    GmParam<char> features, Int64 feature_bytes, GmParam<Int64> out_positions,
    GmParam<Int64> out_slots, Int64 out_slots_stride, GmParam<const char> source_0,
    Int64 stride_0, int bytes_0, GmParam<const char> source_1, Int64 stride_1,
    int bytes_1, GmParam<const char> source_2, Int64 stride_2, int bytes_2,
    GmParam<const char> source_3, Int64 stride_3, int bytes_3,
    GmParam<const char> source_4, Int64 stride_4, int bytes_4,
    GmParam<const char> source_5, Int64 stride_5, int bytes_5,
    GmParam<const char> source_6, Int64 stride_6, int bytes_6,
    GmParam<const char> source_7, Int64 stride_7, int bytes_7, int num_sources,
    GmParam<const Int64> positions, GmParam<const Int64> slots, Int64 slots_stride,
    int num_groups, GmParam<const Int32> query_start_loc,
    GmParam<const Int32> num_rejected, int num_reqs);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_CONTEXT_H_
