// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/requests.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const ExpandIdxMapping& a, const Stream& stream) {
  if (!fit(a.num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, expand_idx_mapping, a.idx_mapping,
                            a.expanded_idx_mapping, a.expanded_local_pos,
                            a.cu_num_logits, i32(a.num_reqs));
}

int launch(const PostUpdateNumComputedTokens& a, const Stream& stream) {
  if (!fit(a.num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, post_update_num_computed_tokens, a.idx_mapping,
                            a.num_computed_tokens, a.query_start_loc, i32(a.num_reqs));
}

int launch(const DcpLocalSeqLens& a, const Stream& stream) {
  if (!fit(a.max_num_reqs, a.dcp_size * a.cp_interleave)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, dcp_local_seq_lens, a.out, a.seq_lens,
                            i32(a.dcp_size), i32(a.dcp_rank), i32(a.cp_interleave),
                            i32(a.num_reqs), i32(a.max_num_reqs));
}

int launch(const ScatterNumAccepted& a, const Stream& stream) {
  if (!fit(a.num_reqs)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, scatter_num_accepted, a.idx_mapping, a.num_sampled,
                            a.num_accepted, i32(a.num_reqs));
}

}  // namespace xpu
}  // namespace vllm_kunlun
