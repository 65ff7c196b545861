// SPDX-License-Identifier: Apache-2.0
#include "contracts/penalties.h"

#include <algorithm>

#include "host/kernels.h"
#include "host/mask_parts.h"
#include "host/simd.h"

namespace vllm_kunlun::host {
namespace {

constexpr int64_t kWord = 32;    // tokens in a word of the prompt's mask
constexpr int64_t kPart = 1024;  // tokens whose counts fit on the stack; whole words

struct Scales {
  float repetition;
  float inverse;
  float frequency;
  float presence;
};

inline float penalise(const Scales& s, float x, uint32_t in_prompt, int32_t count) {
  const bool in_output = count > 0;
  const float scale = x > 0.0f ? s.inverse : s.repetition;
  x *= (in_prompt | in_output) != 0 ? scale : 1.0f;
  x -= s.frequency * static_cast<float>(count);
  x -= s.presence * (in_output ? 1.0f : 0.0f);
  return x;
}

// n tokens from one that begins a word of the mask.
VLLM_KUNLUN_VERSIONS
void penalise_part(const Scales& s, float* logits, const int32_t* counts,
                   const int32_t* mask, int64_t n) {
  const int64_t whole = n - n % kWord;
  for (int64_t v = 0; v < whole; v += kWord) {
    const uint32_t word = mask[v / kWord];
    for (int64_t bit = 0; bit < kWord; ++bit) {
      logits[v + bit] = penalise(s, logits[v + bit], word >> bit & 1, counts[v + bit]);
    }
  }
  for (int64_t v = whole; v < n; ++v) {
    const uint32_t word = mask[v / kWord];
    logits[v] = penalise(s, logits[v], word >> v % kWord & 1, counts[v]);
  }
}

}  // namespace

void penalties_part(const Penalties& a, int64_t req, const Drafts& drafts,
                    int64_t first, int64_t n, float* logits) {
  const float repetition = a.repetition_penalty[req];
  const Scales scales{repetition, 1.0f / repetition, a.frequency_penalty[req],
                      a.presence_penalty[req]};
  if (repetition == 1.0f && scales.frequency == 0.0f && scales.presence == 0.0f) {
    return;
  }
  const int32_t* counts = a.output_bin_counts + req * a.output_bin_counts_stride;
  const int32_t* mask = a.prompt_bin_mask + req * a.prompt_bin_mask_stride;

  const int64_t last = first + n;
  for (int64_t part = first; part < last; part += kPart) {
    const int64_t size = std::min(kPart, last - part);
    const int32_t* part_counts = counts + part;
    int32_t with_drafts[kPart];
    if (drafts.size > 0) {
      std::copy_n(part_counts, size, with_drafts);
      for (int64_t i = 0; i < drafts.size; ++i) {
        const int64_t draft = drafts.data[i];
        if (draft >= part && draft < part + size) ++with_drafts[draft - part];
      }
      part_counts = with_drafts;
    }
    penalise_part(scales, logits + part, part_counts, mask + part / kWord, size);
  }
}

void penalties(const Penalties& a, int64_t begin, int64_t end) {
  for (int64_t program = begin; program < end; ++program) {
    const int64_t row = program / a.num_blocks;
    const int64_t first = program % a.num_blocks * a.block_size;
    penalties_part(a, a.expanded_idx_mapping[row],
                   drafts_before(a.token_ids, row, a.expanded_local_pos[row]), first,
                   std::min(a.block_size, a.vocab_size - first),
                   a.logits + row * a.logits_stride);
  }
}

void bincount(const BinCount& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t req = a.expanded_idx_mapping[i];
    const int32_t* tokens = a.all_token_ids + req * a.all_token_ids_stride;
    int32_t* mask = a.prompt_bin_mask + req * a.prompt_bin_mask_stride;
    int32_t* counts = a.output_bin_counts + req * a.output_bin_counts_stride;
    const int64_t prompt_len = a.prompt_len[req];
    const int64_t prefill_len = a.prefill_len[req];
    for (int64_t t = 0; t < prefill_len; ++t) {
      const int64_t token = tokens[t];
      if (token < 0 || token >= a.vocab_size) continue;
      if (t < prompt_len) {
        mask[token / kWord] |= static_cast<int32_t>(uint32_t{1} << token % kWord);
      } else {
        ++counts[token];
      }
    }
  }
}

}  // namespace vllm_kunlun::host
