// SPDX-License-Identifier: Apache-2.0
#include "xpu/host_side.h"
#include "xpu/kernels/markov.h"

namespace vllm_kunlun {
namespace xpu {

static_assert(kTokensOfBlock == kMarkovBlock, "a block is what the contract says");

int launch(const MarkovArgmax& a, const Stream& stream) {
  const int64_t num_blocks = (a.vocab_size + kMarkovBlock - 1) / kMarkovBlock;
  if (!fit(a.vocab_size + kMarkovBlock, num_blocks * a.num_reqs,
           a.num_reqs * a.num_steps, a.rank)) {
    return kTooLarge;
  }
  const LogitsPointers base(a.base_logits, a.type);
  const LogitsPointers w1(a.w1, a.type);
  const LogitsPointers w2(a.w2, a.type);
  int status = kOk;
  if (a.step == 0) {
    status = VLLM_KUNLUN_LAUNCH(stream, guess_markov_drafts, device(a.draft_tokens),
                                Int64{a.draft_tokens_stride}, base.f32, base.f16,
                                base.bf16, Int64{a.req_stride}, Int64{a.step_stride},
                                i32(a.vocab_size), i32(a.num_reqs), i32(a.num_steps));
  }
  if (status == kOk) {
    status = VLLM_KUNLUN_LAUNCH(
        stream, find_markov_best, a.block_max, a.block_argmax, a.block_products,
        device(a.draft_tokens), Int64{a.draft_tokens_stride}, base.f32, base.f16,
        base.bf16, Int64{a.req_stride}, Int64{a.step_stride}, w1.f32, w1.f16, w1.bf16,
        w2.f32, w2.f16, w2.bf16, i32(a.rank), a.w2_norms, a.anchors,
        Int64{a.anchor_stride}, i32(a.vocab_size), i32(a.num_reqs), i32(num_blocks),
        i32(a.step));
  }
  if (status == kOk) {
    status =
        VLLM_KUNLUN_LAUNCH(stream, choose_markov_draft, device(a.draft_tokens),
                           Int64{a.draft_tokens_stride}, a.block_max, a.block_argmax,
                           device(a.d2t), i32(a.num_reqs), i32(num_blocks), i32(a.step),
                           device(a.table), Int64{a.table_stride}, a.rows);
  }
  return status;
}

}  // namespace xpu
}  // namespace vllm_kunlun
