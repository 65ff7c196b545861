// SPDX-License-Identifier: Apache-2.0
// DSpark's sequential stage for greedy drafts.
#ifndef VLLM_KUNLUN_CONTRACTS_MARKOV_H_
#define VLLM_KUNLUN_CONTRACTS_MARKOV_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// Not upstream's: bias, sum, argmax and the map to the target's vocabulary of one step,
// without a row of biased logits in memory. Upstream: DSparkSpeculator's
// _sample_sequential, vllm/v1/worker/gpu/spec_decode/dspark/speculator.py.
//
// Of request i, `previous` is the anchor token at step 0, else the draft of the step
// before. Its draft is the first token v with the largest
//   round(base[i, step, v] + round(sum_k w1[previous, k] * w2[v, k]))
// where round is to the type of the logits and the sum is accumulated in f32, as the
// model's own layers do. NaN is never the largest; without anything above -inf the
// token is 0. Only the order of accumulation may differ from upstream's, which can
// matter where two logits are that close.
//
// A row of w2 whose norm rules it out is not read: |w1 . w2| <= |w1| |w2|. How often
// that fails decides what the kernel costs, so that it is counted.
//
// Two launches for a step, the steps in order. find_markov_best, over blocks of
// kMarkovBlock tokens, writes block_max[b, i] and block_argmax[b, i]: the best logit
// and its token among those of block b and some others, which of them a device knows
// best; and block_products[b, i], how many products of two rows that took.
// choose_markov_draft, over requests, writes draft_tokens[i, step] from them, in the
// target's vocabulary: d2t is what to add to a token of the draft's. Where there is a
// table of drafts by request, it writes its row rows[i] of that, too, but for a
// negative one, which pads. Until a step's launch the drafts from it on may be
// anything.
struct MarkovArgmax {
  int64_t* draft_tokens;  // [num_reqs, >= num_steps]
  int64_t draft_tokens_stride;
  float* block_max;         // [num_blocks, num_reqs]
  int32_t* block_argmax;    // [num_blocks, num_reqs]
  int32_t* block_products;  // [num_blocks, num_reqs]
  const void* base_logits;  // [num_reqs, num_steps, vocab_size]
  int64_t req_stride;
  int64_t step_stride;
  const void* w1;  // [target vocabulary, rank]
  const void* w2;  // [vocab_size, rank]
  FloatType type;  // of base_logits, w1 and w2
  int64_t rank;
  const float* w2_norms;  // [vocab_size], not less than the norms of the rows of w2
  const int64_t* d2t;     // [vocab_size], or null
  const int32_t* anchors;
  int64_t anchor_stride;
  int64_t vocab_size;
  int64_t num_reqs;
  int64_t num_steps;
  int64_t step;              // which one is to be done, in [0, num_steps)
  int64_t* table = nullptr;  // [rows of state, >= num_steps], or null
  int64_t table_stride = 0;
  const int32_t* rows = nullptr;  // [num_reqs], all different where not negative
};

inline constexpr int64_t kMarkovBlock = 1024;

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_MARKOV_H_
