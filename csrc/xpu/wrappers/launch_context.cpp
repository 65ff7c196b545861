// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "xpu/host_side.h"
#include "xpu/kernels/context.h"

namespace vllm_kunlun {
namespace xpu {
namespace {

// Launches for the sources from `first` on, whose features begin at `features`. The
// positions and slots go with the first of them.
int launch_sources(const GatherContext& a, int64_t first, char* features,
                   const Stream& stream) {
  const int64_t count = std::min<int64_t>(a.num_sources - first, kContextSources);
  const auto source = [&](int64_t k) {
    return k < count ? a.sources[first + k] : ContextSource{};
  };
  static_assert(kContextSources == 8, "as many as there are below");
  const ContextSource s0 = source(0), s1 = source(1), s2 = source(2), s3 = source(3),
                      s4 = source(4), s5 = source(5), s6 = source(6), s7 = source(7);
  return VLLM_KUNLUN_LAUNCH(
      stream, gather_context, features, Int64{a.feature_bytes},
      first == 0 ? device(a.out_positions) : nullptr, device(a.out_slots),
      Int64{a.out_slots_stride}, s0.data, Int64{s0.stride_bytes}, i32(s0.row_bytes),
      s1.data, Int64{s1.stride_bytes}, i32(s1.row_bytes), s2.data,
      Int64{s2.stride_bytes}, i32(s2.row_bytes), s3.data, Int64{s3.stride_bytes},
      i32(s3.row_bytes), s4.data, Int64{s4.stride_bytes}, i32(s4.row_bytes), s5.data,
      Int64{s5.stride_bytes}, i32(s5.row_bytes), s6.data, Int64{s6.stride_bytes},
      i32(s6.row_bytes), s7.data, Int64{s7.stride_bytes}, i32(s7.row_bytes), i32(count),
      device(a.positions), device(a.slots), Int64{a.slots_stride}, i32(a.num_groups),
      a.query_start_loc, a.num_rejected, i32(a.num_reqs));
}

}  // namespace

int launch(const GatherContext& a, const Stream& stream) {
  // At most this many pieces in a row, whose last one of a source may be short.
  const int64_t pieces = a.feature_bytes / kContextBytes + a.num_sources + 1;
  if (!fit(a.feature_bytes, a.num_kept * pieces, a.num_groups, a.num_reqs)) {
    return kTooLarge;
  }
  char* features = a.features;
  int status = kOk;
  for (int64_t s = 0; s < a.num_sources && status == kOk; s += kContextSources) {
    status = launch_sources(a, s, features, stream);
    for (int64_t k = s; k < std::min(s + kContextSources, a.num_sources); ++k) {
      features += a.sources[k].row_bytes;
    }
  }
  return status;
}

}  // namespace xpu
}  // namespace vllm_kunlun
