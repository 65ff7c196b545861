// SPDX-License-Identifier: Apache-2.0
// contracts/staged_write.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_STAGED_WRITE_H_
#define VLLM_KUNLUN_XPU_KERNELS_STAGED_WRITE_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

// Outputs and contents are words; an element has `words` of them. With group_ids the
// outputs are those of the tables.
__global__ void apply_write(GmParam<Int32> output, Int64 output_stride,
                            GmParam<const UInt64> tables, GmParam<const Int64> strides,
                            GmParam<const Int32> indices, GmParam<const Int32> starts,
                            GmParam<const Int32> contents, GmParam<const Int32> cu_lens,
                            GmParam<const Int32> group_ids, int words, int num_writes);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_STAGED_WRITE_H_
