// SPDX-License-Identifier: Apache-2.0
// contracts/requests.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_REQUESTS_H_
#define VLLM_KUNLUN_XPU_KERNELS_REQUESTS_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void expand_idx_mapping(GmParam<const Int32> idx_mapping,
                                   GmParam<Int32> expanded_idx_mapping,
                                   GmParam<Int32> expanded_local_pos,
                                   GmParam<const Int32> cu_num_logits, int num_reqs);

__global__ void post_update_num_computed_tokens(GmParam<const Int32> idx_mapping,
                                                GmParam<Int32> num_computed_tokens,
                                                GmParam<const Int32> query_start_loc,
                                                int num_reqs);

__global__ void dcp_local_seq_lens(GmParam<Int32> out, GmParam<const Int32> seq_lens,
                                   int dcp_size, int dcp_rank, int cp_interleave,
                                   int num_reqs, int max_num_reqs);

__global__ void scatter_num_accepted(GmParam<const Int32> idx_mapping,
                                     GmParam<const Int32> num_sampled,
                                     GmParam<Int32> num_accepted, int num_reqs);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_REQUESTS_H_
