// SPDX-License-Identifier: Apache-2.0
// What the single kernels that change logits share with fused_logits, which does all of
// them to a part of a row while it is in the cache. Each changes the tokens [first,
// first + n) of the row that begins at `logits`.
#ifndef VLLM_KUNLUN_HOST_MASK_PARTS_H_
#define VLLM_KUNLUN_HOST_MASK_PARTS_H_

#include <cstdint>

#include "contracts/penalties.h"
#include "contracts/token_mask.h"

namespace vllm_kunlun::host {

// Tokens of a part: whole words of a bitmask, and 16 KB of logits.
inline constexpr int64_t kMaskPart = 4096;

// The drafts of a request that stand before a row of its logits.
struct Drafts {
  const int32_t* data;
  int64_t size;
};

// Those of the row that is `place` rows after its request's first.
inline Drafts drafts_before(const int32_t* input_ids, int64_t row, int64_t place) {
  return {input_ids + row - place + 1, place};
}

// `bitmask` is that of the whole row; `first` begins a word of it.
void forbid_unset_part(const int32_t* bitmask, int64_t width, int64_t first, int64_t n,
                       float* logits);

// With allowed ids n is kMaskPart at most.// With allowed ids, n <= 8192: their logits
// are kept on the stack meanwhile.
void bias_part(const Bias& a, int64_t req, int64_t pos, int64_t first, int64_t n,
               float* logits);

// `first` begins a word of the prompt's mask.
void penalties_part(const Penalties& a, int64_t req, const Drafts& drafts,
                    int64_t first, int64_t n, float* logits);

void bad_words_part(const BadWords& a, int64_t req, const Drafts& drafts, int64_t first,
                    int64_t n, float* logits);

// What is below the threshold becomes -inf; a NaN is not.
void forbid_below(float* x, float threshold, int64_t n);

}  // namespace vllm_kunlun::host

#endif  // VLLM_KUNLUN_HOST_MASK_PARTS_H_
