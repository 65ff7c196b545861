// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/sampling.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const Temperature& a, const Stream& stream) {
  if (!fit(a.vocab_size, a.num_rows * a.vocab_size)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, temperature, a.logits, Int64{a.logits_stride},
                            a.expanded_idx_mapping, a.temperature, i32(a.vocab_size),
                            i32(a.num_rows));
}

int launch(const MinP& a, const Stream& stream) {
  if (!fit(a.vocab_size, a.num_rows)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, min_p, a.logits, Int64{a.logits_stride},
                            a.expanded_idx_mapping, a.min_p, i32(a.vocab_size),
                            i32(a.num_rows));
}

}  // namespace xpu
}  // namespace vllm_kunlun
