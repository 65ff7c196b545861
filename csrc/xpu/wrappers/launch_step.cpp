// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/step.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const PrepareStep& a, const Stream& stream) {
  int status = launch(a.prefill, stream);
  if (status == kOk) status = launch(a.positions, stream);
  if (status == kOk) status = launch(a.tokens, stream);
  if (status == kOk) status = launch(a.logits, stream);
  return status;
}

int launch(const StoreDrafts& a, const Stream& stream) {
  if (!fit(a.num_reqs, a.num_steps)) return kTooLarge;
  return VLLM_KUNLUN_LAUNCH(stream, store_drafts, device(a.draft_tokens),
                            Int64{a.draft_tokens_stride}, a.idx_mapping,
                            device(a.drafts), Int64{a.drafts_stride}, i32(a.num_steps),
                            i32(a.num_reqs));
}

}  // namespace xpu
}  // namespace vllm_kunlun
