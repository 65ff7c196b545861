// SPDX-License-Identifier: Apache-2.0
// Repetition, frequency and presence penalties.
// Upstream: vllm/v1/worker/gpu/sample/penalties.py
#ifndef VLLM_KUNLUN_CONTRACTS_PENALTIES_H_
#define VLLM_KUNLUN_CONTRACTS_PENALTIES_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _penalties_kernel, grid (num_rows, num_blocks), which cover vocab_size.
//
// For each token of a row, with `count` its number in the request's output so far:
//   logit *= logit > 0 ? 1 / r : r   r the repetition penalty if the token is in the
//                                    prompt or the output, else 1
//   logit -= frequency_penalty * count
//   logit -= presence_penalty * (count > 0)
// each a rounded f32 operation of its own. Row r of a request that has drafts stands
// local_pos[r] rows after the request's first. The output then includes the drafts
// before the row: token_ids[first + 1 .. r] (the token at `first` is the last sampled
// one, which is in the counts already). A draft outside the vocabulary, as padding is,
// counts for nothing.
// Written: logits[row, 0..vocab_size) of rows with any penalty.
struct Penalties {
  float* logits;  // [num_rows, >= vocab_size]
  int64_t logits_stride;
  const int32_t* expanded_idx_mapping;  // [num_rows], >= 0
  const int32_t* token_ids;             // [num_rows], the input ids at the logits' rows
  const int32_t* expanded_local_pos;    // [num_rows], in [0, row]
  const float* repetition_penalty;      // [max_num_reqs], not 0
  const float* frequency_penalty;       // [max_num_reqs]
  const float* presence_penalty;        // [max_num_reqs]
  const int32_t* prompt_bin_mask;       // [max_num_reqs, >= ceil(vocab_size / 32)],
                                        // a bit for each token, lowest bit first
  int64_t prompt_bin_mask_stride;
  const int32_t* output_bin_counts;  // [max_num_reqs, >= vocab_size]
  int64_t output_bin_counts_stride;
  int64_t vocab_size;
  int64_t block_size;  // a multiple of 32
  int64_t num_rows;
  int64_t num_blocks;
};

// _bincount_kernel, grid (num_reqs, blocks of the longest prefill).
//
// Enters the tokens of new requests into their rows, which the caller has zeroed: those
// of the prompt, [0, prompt_len), into the mask, and those of an earlier output that is
// prefilled again, [prompt_len, prefill_len), into the counts.
// A token outside [0, vocab_size) is passed over (docs/deviations.md).
// Written: the bits and counts of these tokens.
struct BinCount {
  const int32_t* expanded_idx_mapping;  // [num_reqs], >= 0, all different
  const int32_t* all_token_ids;         // [max_num_reqs, >= prefill_len]
  int64_t all_token_ids_stride;
  const int32_t* prompt_len;   // [max_num_reqs], <= prefill_len
  const int32_t* prefill_len;  // [max_num_reqs]
  int32_t* prompt_bin_mask;    // [max_num_reqs, >= ceil(vocab_size / 32)]
  int64_t prompt_bin_mask_stride;
  int32_t* output_bin_counts;  // [max_num_reqs, vocab_size]
  int64_t output_bin_counts_stride;
  int64_t vocab_size;
  int64_t num_reqs;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_PENALTIES_H_
