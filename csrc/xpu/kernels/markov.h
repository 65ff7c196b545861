// SPDX-License-Identifier: Apache-2.0
// contracts/markov.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_MARKOV_H_
#define VLLM_KUNLUN_XPU_KERNELS_MARKOV_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

const int kTokensOfBlock = 1024;

// Of each step, the token with the largest base logit, as the draft so far: in the
// draft's vocabulary.
__global__ void guess_markov_drafts(GmParam<Int64> draft_tokens,
                                    Int64 draft_tokens_stride,
                                    GmParam<const float> base_f32,
                                    GmParam<const unsigned short> base_f16,
                                    GmParam<const unsigned short> base_bf16,
                                    Int64 req_stride, Int64 step_stride, int vocab_size,
                                    int num_reqs, int num_steps);

// The best of the guess and of a block's tokens, for each block and request.
__global__ void find_markov_best(
    GmParam<float> block_max, GmParam<Int32> block_argmax,
    GmParam<Int32> block_products, GmParam<const Int64> draft_tokens,
    Int64 draft_tokens_stride, GmParam<const float> base_f32,
    GmParam<const unsigned short> base_f16, GmParam<const unsigned short> base_bf16,
    Int64 req_stride, Int64 step_stride, GmParam<const float> w1_f32,
    GmParam<const unsigned short> w1_f16, GmParam<const unsigned short> w1_bf16,
    GmParam<const float> w2_f32, GmParam<const unsigned short> w2_f16,
    GmParam<const unsigned short> w2_bf16, int rank, GmParam<const float> w2_norms,
    GmParam<const Int32> anchors, Int64 anchor_stride, int vocab_size, int num_reqs,
    int num_blocks, int step);

// The best of the blocks, in the target's vocabulary; into the table too, if there is
// one.
__global__ void choose_markov_draft(GmParam<Int64> draft_tokens,
                                    Int64 draft_tokens_stride,
                                    GmParam<const float> block_max,
                                    GmParam<const Int32> block_argmax,
                                    GmParam<const Int64> d2t, int num_reqs,
                                    int num_blocks, int step, GmParam<Int64> table,
                                    Int64 table_stride, GmParam<const Int32> rows);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_MARKOV_H_
