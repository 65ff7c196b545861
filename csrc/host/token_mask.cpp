// SPDX-License-Identifier: Apache-2.0
#include "contracts/token_mask.h"

#include <algorithm>
#include <limits>

#include "host/kernels.h"
#include "host/mask_parts.h"
#include "host/simd.h"

namespace vllm_kunlun::host {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kWord = 32;    // tokens in a word of a bitmask
constexpr int64_t kPart = 8192;  // tokens whose logits fit on the stack
static_assert(kMaskPart <= kPart);

// A list of a request's, from its row of a table.
struct Ids {
  const int32_t* data;
  int64_t size;

  const int32_t* begin() const { return data; }
  const int32_t* end() const { return data + size; }
};

// All but the allowed ids become -inf among n <= kPart tokens, so that what is put back
// fits on the stack.
void allow(const Ids& allowed, int64_t first, int64_t n, float* logits) {
  float saved[kPart];
  for (const int32_t id : allowed) {
    if (id >= first && id < first + n) saved[id - first] = logits[id];
  }
  std::fill_n(logits + first, n, -kInfinity);
  for (const int32_t id : allowed) {
    if (id >= first && id < first + n) logits[id] = saved[id - first];
  }
}

// Whether a request's output, followed by its drafts, ends in the prefix of a bad word.
bool ends_in(const BadWords& a, int64_t req, const Drafts& drafts,
             const int32_t* prefix, int64_t length) {
  const int64_t output_len = a.total_len[req] - a.prompt_len[req];
  const int64_t first = output_len + drafts.size - length;
  if (first < 0) return false;
  const int32_t* output =
      a.all_token_ids + req * a.all_token_ids_stride + a.prompt_len[req];
  for (int64_t i = 0; i < length; ++i) {
    const int64_t at = first + i;
    const int32_t token = at < output_len ? output[at] : drafts.data[at - output_len];
    if (token != prefix[i]) return false;
  }
  return true;
}

// Logits as their bits: of a type only its size and its -inf matter.
template <class Bits>
inline void forbid_unset(Bits* logits, Bits forbidden, const int32_t* bitmask,
                         int64_t width, int64_t vocab_size) {
  const int64_t words = std::min(width, vocab_size / kWord);
  for (int64_t w = 0; w < words; ++w) {
    const uint32_t word = bitmask[w];
    if (word == ~uint32_t{0}) continue;
    Bits* part = logits + w * kWord;
    for (int64_t bit = 0; bit < kWord; ++bit) {
      part[bit] = (word >> bit & 1) != 0 ? part[bit] : forbidden;
    }
  }
  for (int64_t v = words * kWord; v < vocab_size; ++v) {
    const uint32_t word = v / kWord < width ? bitmask[v / kWord] : 0;
    if ((word >> v % kWord & 1) == 0) logits[v] = forbidden;
  }
}

VLLM_KUNLUN_VERSIONS
void forbid_unset_32(void* logits, int64_t row_start, uint32_t forbidden,
                     const int32_t* bitmask, int64_t width, int64_t vocab_size) {
  forbid_unset(static_cast<uint32_t*>(logits) + row_start, forbidden, bitmask, width,
               vocab_size);
}

VLLM_KUNLUN_VERSIONS
void forbid_unset_16(void* logits, int64_t row_start, uint16_t forbidden,
                     const int32_t* bitmask, int64_t width, int64_t vocab_size) {
  forbid_unset(static_cast<uint16_t*>(logits) + row_start, forbidden, bitmask, width,
               vocab_size);
}

}  // namespace

void bias_part(const Bias& a, int64_t req, int64_t pos, int64_t first, int64_t n,
               float* logits) {
  const auto is_here = [&](int64_t id) { return id >= first && id < first + n; };

  const Ids allowed{a.allowed_token_ids + req * a.allowed_token_ids_stride,
                    a.num_allowed_token_ids[req]};
  if (allowed.size > 0) allow(allowed, first, n, logits);

  const int32_t* biased = a.bias_token_ids + req * a.bias_token_ids_stride;
  for (int64_t i = 0; i < a.num_logit_bias[req]; ++i) {
    if (is_here(biased[i])) logits[biased[i]] += a.bias[req * a.bias_stride + i];
  }

  if (pos + 1 >= a.min_lens[req]) return;
  const Ids stops{a.stop_token_ids + req * a.stop_token_ids_stride,
                  a.num_stop_token_ids[req]};
  for (const int32_t id : stops) {
    if (is_here(id)) logits[id] = -kInfinity;
  }
}

void bad_words_part(const BadWords& a, int64_t req, const Drafts& drafts, int64_t first,
                    int64_t n, float* logits) {
  const int32_t* tokens = a.bad_word_token_ids + req * a.bad_word_token_ids_stride;
  const int32_t* offsets = a.bad_word_offsets + req * a.bad_word_offsets_stride;
  const int64_t num_words = std::min<int64_t>(a.num_bad_words[req], a.max_num_words);
  for (int64_t w = 0; w < num_words; ++w) {
    const int64_t prefix_len = offsets[w + 1] - offsets[w] - 1;
    if (prefix_len < 0) continue;
    const int64_t last = tokens[offsets[w + 1] - 1];
    if (last < first || last >= first + n) continue;
    if (ends_in(a, req, drafts, tokens + offsets[w], prefix_len)) {
      logits[last] = -kInfinity;
    }
  }
}

void forbid_unset_part(const int32_t* bitmask, int64_t width, int64_t first, int64_t n,
                       float* logits) {
  const int64_t word = first / kWord;
  forbid_unset_32(logits, first, 0xff800000, bitmask + word,
                  std::max<int64_t>(width - word, 0), n);
}

void bias(const Bias& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t req = a.expanded_idx_mapping[row];
    // Lists are short: without allowed ids, one look at them is enough.
    const int64_t part = a.num_allowed_token_ids[req] > 0 ? kPart : a.vocab_size;
    for (int64_t first = 0; first < a.vocab_size; first += part) {
      bias_part(a, req, a.pos[row], first, std::min(part, a.vocab_size - first),
                a.logits + row * a.logits_stride);
    }
  }
}

void bad_words(const BadWords& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    bad_words_part(a, a.expanded_idx_mapping[row],
                   drafts_before(a.input_ids, row, a.expanded_local_pos[row]), 0,
                   a.vocab_size, a.logits + row * a.logits_stride);
  }
}

void apply_grammar_bitmask(const ApplyGrammarBitmask& a, int64_t begin, int64_t end) {
  for (int64_t m = begin; m < end; ++m) {
    const int64_t row_start = a.logits_indices[m] * a.logits_stride;
    const int32_t* bitmask = a.bitmask + m * a.bitmask_stride;
    switch (a.logits_type) {
      case FloatType::kF32:
        forbid_unset_32(a.logits, row_start, 0xff800000, bitmask, a.bitmask_width,
                        a.vocab_size);
        break;
      case FloatType::kF16:
        forbid_unset_16(a.logits, row_start, 0xfc00, bitmask, a.bitmask_width,
                        a.vocab_size);
        break;
      case FloatType::kBF16:
        forbid_unset_16(a.logits, row_start, 0xff80, bitmask, a.bitmask_width,
                        a.vocab_size);
        break;
    }
  }
}

}  // namespace vllm_kunlun::host
