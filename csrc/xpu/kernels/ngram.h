// SPDX-License-Identifier: Apache-2.0
// contracts/ngram.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_NGRAM_H_
#define VLLM_KUNLUN_XPU_KERNELS_NGRAM_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

const int kMatchClasses = 7;   // what a match's length is classed into
const int kKinds = 3;          // of drafts, by what the other occurrence says
const int kTrialHead = 5;      // numbers of a trial before its tokens
const int kFollowedBack = 16;  // tokens of a match that are counted
const int kNgramTokens = 64;   // of the longest n-gram

// found has two numbers for each request: the match's length, and agreed.
//
// All tokens are searched, by the cores of a cluster together: to enter a long prompt
// into tables would be the work of one core, token after token.
__global__ void ngram_draft(GmParam<const Int32> idx_mapping,
                            GmParam<const Int32> num_sampled,
                            GmParam<const Int32> all_token_ids,
                            Int64 all_token_ids_stride, GmParam<const Int32> total_len,
                            int num_reqs, GmParam<Int64> draft_tokens,
                            Int64 draft_tokens_stride, GmParam<Int32> num_drafts,
                            GmParam<Int32> found, int min_len, int max_len,
                            int num_steps, int max_model_len);

__global__ void adapt_draft_length(
    GmParam<const Int32> idx_mapping, GmParam<const Int32> query_start_loc,
    GmParam<const Int32> seq_lens, GmParam<const Int32> prefill_len,
    GmParam<const Int32> num_sampled, GmParam<const Int32> all_token_ids,
    Int64 all_token_ids_stride, GmParam<const Int32> total_len, int num_reqs,
    GmParam<Int32> num_drafts, GmParam<Int32> trials, GmParam<float> own_counts,
    GmParam<float> pool_counts, GmParam<float> chance,
    GmParam<const Int64> draft_tokens, Int64 draft_tokens_stride,
    GmParam<const Int32> found, int num_steps, float decay, float pool_decay,
    float pool_weight, float verify_cost, int free_rows);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_NGRAM_H_
