// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/rope.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const PrepareRopePositions& a, const Stream& stream) {
  if (!fit(a.num_reqs * a.num_dims)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(
      stream, prepare_rope_positions, device(a.positions), Int64{a.positions_stride},
      a.prefill_positions, Int64{a.prefill_req_stride}, Int64{a.prefill_dim_stride},
      a.prefill_delta, a.idx_mapping, a.query_start_loc, a.prefill_lens,
      a.num_computed_tokens, i32(a.num_dims), i32(a.num_reqs));
}

}  // namespace xpu
}  // namespace vllm_kunlun
