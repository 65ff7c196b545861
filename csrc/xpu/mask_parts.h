// SPDX-License-Identifier: Apache-2.0
// What a request's parameters do to a chunk of a row's logits, in local memory. The
// single kernels that change logits share it with fused_logits, which does all of them
// to a chunk at once. C++11, for the XPU's cores.
#ifndef VLLM_KUNLUN_XPU_MASK_PARTS_H_
#define VLLM_KUNLUN_XPU_MASK_PARTS_H_

#include "xpu/device.h"
#include "xpu/math.h"

namespace vllm_kunlun {
namespace xpu {

const int kWord = 32;  // tokens in a word of a bitmask

// The tokens [first, first + n) of a row.
struct Chunk {
  int first;
  int n;

  // Where a token is in the chunk, or -1.
  __device__ int place_of(int token) const {
    return token >= first && token < first + n ? token - first : -1;
  }
  // The chunk begins with a word of a bitmask.
  __device__ int first_word() const { return first / kWord; }
  __device__ int num_words() const { return (n + kWord - 1) / kWord; }
};

// The drafts of a request that stand before a row of its logits.
struct Drafts {
  Gm<const Int32> tokens;
  int count;
};

__device__ inline bool is_set(Lm<Int32> words, int i) {
  return (static_cast<UInt32>(words[i / kWord]) >> (i % kWord) & 1u) != 0;
}

// A token whose bit is 0 becomes `forbidden`, as does one beyond the words.
template <class T>
__device__ inline void forbid_unset(Lm<T> x, int n, Lm<Int32> words, int num_words,
                                    T forbidden) {
  for (int j = 0; j < n; ++j) {
    if (j / kWord >= num_words || !is_set(words, j)) x[j] = forbidden;
  }
}

// contracts/token_mask.h, Bias.
struct BiasLists {
  Gm<const Int32> num_allowed;
  Gm<const Int32> allowed;
  Int64 allowed_stride;
  Gm<const Int32> num_biased;
  Gm<const Int32> biased;
  Int64 biased_stride;
  Gm<const float> bias;
  Int64 bias_stride;
  Gm<const Int32> min_lens;
  Gm<const Int32> num_stops;
  Gm<const Int32> stops;
  Int64 stops_stride;
};

// How much of the lists a row asks for.
struct BiasOfRow {
  int num_allowed;
  int num_biased;
  int num_stops;

  __device__ BiasOfRow(const BiasLists& lists, int req, int pos)
      : num_allowed(lists.num_allowed[req]),
        num_biased(lists.num_biased[req]),
        num_stops(0) {
    if (pos + 1 < lists.min_lens[req]) num_stops = lists.num_stops[req];
  }
  __device__ bool is_nothing() const {
    return num_allowed <= 0 && num_biased <= 0 && num_stops <= 0;
  }
};

// Does all three steps for a chunk; `old` is room for as many logits. Returns whether
// any changed.
__device__ inline bool add_bias(const BiasLists& lists, const BiasOfRow& wants, int req,
                                const Chunk& chunk, Lm<float> x, Lm<float> old) {
  bool changed = wants.num_allowed > 0;
  if (changed) {
    for (int j = 0; j < chunk.n; ++j) {
      old[j] = x[j];
      x[j] = -infinity();
    }
    const Gm<const Int32> allowed = lists.allowed + offset(req, lists.allowed_stride);
    for (int k = 0; k < wants.num_allowed; ++k) {
      const int j = chunk.place_of(allowed[k]);
      if (j >= 0) x[j] = old[j];
    }
  }
  const Gm<const Int32> biased = lists.biased + offset(req, lists.biased_stride);
  for (int k = 0; k < wants.num_biased; ++k) {
    const int j = chunk.place_of(biased[k]);
    if (j < 0) continue;
    x[j] += (lists.bias + offset(req, lists.bias_stride))[k];
    changed = true;
  }
  const Gm<const Int32> stops = lists.stops + offset(req, lists.stops_stride);
  for (int k = 0; k < wants.num_stops; ++k) {
    const int j = chunk.place_of(stops[k]);
    if (j < 0) continue;
    x[j] = -infinity();
    changed = true;
  }
  return changed;
}

// contracts/penalties.h, Penalties.
struct PenaltyTables {
  Gm<const float> repetition;
  Gm<const float> frequency;
  Gm<const float> presence;
  Gm<const Int32> prompt_mask;
  Int64 prompt_mask_stride;
  Gm<const Int32> output_counts;
  Int64 output_counts_stride;
};

struct PenaltiesOfRow {
  float repetition;
  float frequency;
  float presence;

  __device__ PenaltiesOfRow(const PenaltyTables& tables, int req)
      : repetition(tables.repetition[req]),
        frequency(tables.frequency[req]),
        presence(tables.presence[req]) {}
  __device__ bool is_nothing() const {
    return repetition == 1.0f && frequency == 0.0f && presence == 0.0f;
  }
};

// Begins to load what penalise() needs; a fence has to follow.
__device__ inline void load_counts(const PenaltyTables& tables, int req,
                                   const Chunk& chunk, Lm<Int32> counts,
                                   Lm<Int32> mask) {
  GM2LM_ASYNC(
      tables.output_counts + (offset(req, tables.output_counts_stride) + chunk.first),
      counts, 4 * chunk.n);
  GM2LM_ASYNC(tables.prompt_mask +
                  (offset(req, tables.prompt_mask_stride) + chunk.first_word()),
              mask, 4 * chunk.num_words());
}

__device__ inline void penalise(const PenaltiesOfRow& penalties, const Drafts& drafts,
                                const Chunk& chunk, Lm<float> x, Lm<Int32> counts,
                                Lm<Int32> mask) {
  const float inverse = 1.0f / penalties.repetition;
  for (int k = 0; k < drafts.count; ++k) {
    const int j = chunk.place_of(drafts.tokens[k]);
    if (j >= 0) counts[j] += 1;
  }
  for (int j = 0; j < chunk.n; ++j) {
    const int count = counts[j];
    float logit = x[j];
    if (is_set(mask, j) || count > 0) {
      logit *= logit > 0.0f ? inverse : penalties.repetition;
    }
    logit -= penalties.frequency * static_cast<float>(count);
    logit -= penalties.presence * (count > 0 ? 1.0f : 0.0f);
    x[j] = logit;
  }
}

// contracts/token_mask.h, BadWords.
struct BadWordTables {
  Gm<const Int32> tokens;
  Int64 tokens_stride;
  Gm<const Int32> offsets;
  Int64 offsets_stride;
  Gm<const Int32> num_words;
  Gm<const Int32> all_token_ids;
  Int64 all_token_ids_stride;
  Gm<const Int32> prompt_len;
  Gm<const Int32> total_len;
};

// A row's bad words and the output that may end in one.
class BadWordsOfRow {
 public:
  __device__ BadWordsOfRow(const BadWordTables& tables, int req, const Drafts& drafts)
      : num_words(tables.num_words[req]),
        drafts_(drafts),
        tokens_(tables.tokens + offset(req, tables.tokens_stride)),
        offsets_(tables.offsets + offset(req, tables.offsets_stride)),
        output_(),
        output_len_(0) {
    if (num_words <= 0) return;
    const int prompt = tables.prompt_len[req];
    output_ =
        tables.all_token_ids + (offset(req, tables.all_token_ids_stride) + prompt);
    output_len_ = tables.total_len[req] - prompt;
  }

  // The last token of a word; -1 where it has none.
  __device__ int last_token(int word) const {
    const int end = offsets_[word + 1];
    if (end <= offsets_[word]) return -1;
    return tokens_[end - 1];
  }

  // Whether the output ends in all of a word but its last token.
  __device__ bool is_next(int word) const {
    const int begin = offsets_[word];
    const int length = offsets_[word + 1] - begin - 1;
    const int first = output_len_ + drafts_.count - length;
    if (first < 0) return false;
    for (int i = 0; i < length; ++i) {
      const int at = first + i;
      const bool is_draft = at >= output_len_;
      const Gm<const Int32> list = is_draft ? drafts_.tokens : output_;
      if (list[is_draft ? at - output_len_ : at] != tokens_[begin + i]) return false;
    }
    return true;
  }

  int num_words;

 private:
  Drafts drafts_;
  Gm<const Int32> tokens_;
  Gm<const Int32> offsets_;
  Gm<const Int32> output_;
  int output_len_;
};

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_MASK_PARTS_H_
