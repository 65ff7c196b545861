// SPDX-License-Identifier: Apache-2.0
// What forbids tokens or favours them: allowed ids, bias, min tokens, bad words,
// grammar. Upstream: vllm/v1/worker/gpu/sample/logit_bias.py, sample/bad_words.py,
// structured_outputs.py
#ifndef VLLM_KUNLUN_CONTRACTS_TOKEN_MASK_H_
#define VLLM_KUNLUN_CONTRACTS_TOKEN_MASK_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _bias_kernel, grid (num_rows).
//
// In this order, where the row's request asks for it:
//   allowed ids: all logits but theirs become -inf;
//   bias:        added to the logits of the biased ids, which are all different;
//   min tokens:  the stop ids become -inf while pos + 1 < min_len.
// An id outside [0, vocab_size) is passed over (docs/deviations.md).
// Written: logits[row, 0..vocab_size) with allowed ids, else those of the ids alone.
struct Bias {
  float* logits;  // [num_rows, >= vocab_size]
  int64_t logits_stride;
  int64_t vocab_size;
  const int32_t* expanded_idx_mapping;   // [num_rows], >= 0
  const int32_t* num_allowed_token_ids;  // [max_num_reqs], in [0, width]
  const int32_t* allowed_token_ids;      // [max_num_reqs, width]
  int64_t allowed_token_ids_stride;
  const int32_t* num_logit_bias;  // [max_num_reqs], in [0, width]
  const int32_t* bias_token_ids;  // [max_num_reqs, width]
  int64_t bias_token_ids_stride;
  const float* bias;  // [max_num_reqs, width]
  int64_t bias_stride;
  const int64_t* pos;                 // [num_rows]
  const int32_t* min_lens;            // [max_num_reqs]
  const int32_t* num_stop_token_ids;  // [max_num_reqs], in [0, width]
  const int32_t* stop_token_ids;      // [max_num_reqs, width]
  int64_t stop_token_ids_stride;
  int64_t num_rows;
};

// _bad_words_kernel, grid (num_rows, max_num_words).
//
// Forbids the last token of a bad word where the request's output ends in the word's
// other tokens. The output of row r, which stands local_pos[r] rows after its request's
// first, is all_token_ids[prompt_len .. total_len) followed by the drafts before the
// row, input_ids[first + 1 .. r] (docs/deviations.md: upstream is one row late).
// A last token outside [0, vocab_size) is passed over.
// Written: -inf to the logits of those last tokens.
struct BadWords {
  float* logits;  // [num_rows, vocab_size]
  int64_t logits_stride;
  int64_t vocab_size;
  const int32_t* expanded_idx_mapping;  // [num_rows], >= 0
  const int32_t* bad_word_token_ids;    // [max_num_reqs, width], word after word
  int64_t bad_word_token_ids_stride;
  const int32_t* bad_word_offsets;  // [max_num_reqs, > num_bad_words], where they begin
  int64_t bad_word_offsets_stride;
  const int32_t* num_bad_words;  // [max_num_reqs]
  const int32_t* all_token_ids;  // [max_num_reqs, >= total_len]
  int64_t all_token_ids_stride;
  const int32_t* prompt_len;          // [max_num_reqs]
  const int32_t* total_len;           // [max_num_reqs], >= prompt_len
  const int32_t* input_ids;           // [num_rows], at the logits' rows
  const int32_t* expanded_local_pos;  // [num_rows], in [0, row]
  int64_t num_rows;
  int64_t max_num_words;
};

// _apply_grammar_bitmask_kernel, grid (num_masks, blocks of the vocabulary).
//
// Forbids what a grammar does not allow: a token whose bit is 0 becomes -inf, in the
// logits' own dtype. A token beyond the width of the bitmask is not allowed.
// Written: logits[logits_indices[m], 0..vocab_size) of each mask m.
struct ApplyGrammarBitmask {
  void* logits;  // [rows, >= vocab_size]
  FloatType logits_type;
  int64_t logits_stride;
  const int32_t* logits_indices;  // [num_masks], >= 0, all different
  const int32_t* bitmask;         // [num_masks, bitmask_width], lowest bit first
  int64_t bitmask_stride;
  int64_t bitmask_width;
  int64_t vocab_size;
  int64_t num_masks;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_TOKEN_MASK_H_
