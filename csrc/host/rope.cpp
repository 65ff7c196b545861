// SPDX-License-Identifier: Apache-2.0
#include "contracts/rope.h"

#include <algorithm>

#include "host/kernels.h"

namespace vllm_kunlun::host {

void prepare_rope_positions(const PrepareRopePositions& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t req = a.idx_mapping[i];
    const int64_t start = a.query_start_loc[i];
    const int64_t length = a.query_start_loc[i + 1] - start;
    const int64_t computed = a.num_computed_tokens[req];
    const int64_t prefill = std::clamp<int64_t>(a.prefill_lens[req] - computed, 0,
                                                std::max<int64_t>(length, 0));
    for (int64_t dim = 0; dim < a.num_dims; ++dim) {
      const int32_t* source = a.prefill_positions + req * a.prefill_req_stride +
                              dim * a.prefill_dim_stride + computed;
      int64_t* out = a.positions + dim * a.positions_stride + start;
      std::copy_n(source, prefill, out);
      for (int64_t t = prefill; t < length; ++t) {
        out[t] = computed + t + a.prefill_delta[req];
      }
    }
  }
}

}  // namespace vllm_kunlun::host
