// SPDX-License-Identifier: Apache-2.0
#include "contracts/ngram.h"

#include <algorithm>

#include "host/kernels.h"

namespace vllm_kunlun::host {
namespace {

// Whether request i's row holds nothing of its own yet.
bool begins(const SampledStep& s, int64_t i) {
  const int64_t query_len = s.query_start_loc[i + 1] - s.query_start_loc[i];
  return s.seq_lens[i] - query_len < s.prefill_len[s.idx_mapping[i]];
}

// The longest suffix that occurred before: where its occurrences end.
struct Match {
  int64_t len = 0;
  int64_t first = -1;
  int64_t last = -1;
};

// An n-gram's entry of the index.
struct Occurrences {
  int32_t first;
  int32_t last;
};

uint32_t mix(uint32_t hash) {
  hash = (hash ^ (hash >> 16)) * 0x7feb352dU;
  hash = (hash ^ (hash >> 15)) * 0x846ca68bU;
  return hash ^ (hash >> 16);
}

// A request's tokens, and the tables of its n-grams.
class MatchIndex {
 public:
  MatchIndex(const NgramDraft& a, int64_t req, const int32_t* tokens)
      : a_(a),
        tokens_(tokens),
        tables_(reinterpret_cast<Occurrences*>(a.index) +
                req * (a.max_len - a.min_len + 1) * a.index_size) {}

  void clear() {
    std::fill_n(tables_, (a_.max_len - a_.min_len + 1) * a_.index_size,
                Occurrences{-1, -1});
  }

  void enter(int64_t end) {
    for_each_length(end, [&](int64_t len, uint32_t hash) {
      Occurrences* entry = find(end, len, hash);
      entry->last = static_cast<int32_t>(end);
      if (entry->first < 0) entry->first = entry->last;
    });
  }

  Match longest(int64_t end) const {
    Match match;
    for_each_length(end, [&](int64_t len, uint32_t hash) {
      const Occurrences* entry = find(end, len, hash);
      if (entry->last >= 0) match = {len, entry->first, entry->last};
    });
    return match;
  }

 private:
  // From the shortest n-gram that ends at `end` to the longest.
  template <class Visit>
  void for_each_length(int64_t end, const Visit& visit) const {
    uint32_t hash = 0;
    for (int64_t len = 1; len <= std::min(a_.max_len, end + 1); ++len) {
      hash = mix(hash + static_cast<uint32_t>(tokens_[end - len + 1]) + 0x9e3779b9U);
      if (len >= a_.min_len) visit(len, hash);
    }
  }

  // The entry of the n-gram, or the free one where it belongs.
  Occurrences* find(int64_t end, int64_t len, uint32_t hash) const {
    Occurrences* table = tables_ + (len - a_.min_len) * a_.index_size;
    const auto size = static_cast<uint64_t>(a_.index_size);
    auto at = static_cast<int64_t>((hash * size) >> 32);
    const int32_t* last = tokens_ + end + 1;
    while (table[at].last >= 0 &&
           !std::equal(last - len, last, tokens_ + table[at].last + 1 - len)) {
      if (++at == a_.index_size) at = 0;
    }
    return table + at;
  }

  const NgramDraft& a_;
  const int32_t* tokens_;
  Occurrences* tables_;
};

Match search(const NgramDraft& a, const int32_t* tokens, int64_t end) {
  Match match;
  for (int64_t at = end - 1; at >= a.min_len - 1; --at) {
    const int64_t limit = std::min(a.max_len, at + 1);
    int64_t len = 0;
    while (len < limit && tokens[at - len] == tokens[end - len]) ++len;
    if (len < a.min_len || len < match.len) continue;
    if (len > match.len) match = {len, at, at};
    match.first = at;
  }
  return match;
}

// On how many tokens the end of a request and an occurrence of its suffix agree.
int64_t follow_back(int64_t len, int64_t at, const int32_t* tokens, int64_t end) {
  while (len < kLongestMatch && len <= at && tokens[at - len] == tokens[end - len]) {
    ++len;
  }
  return len;
}

// The draft at place k of an occurrence that ends at source: what followed there, and
// past the last token that again.
int32_t continuation(const int32_t* tokens, int64_t total, int64_t source, int64_t k) {
  return tokens[source + 1 + k % (total - 1 - source)];
}

// Fading counts of comparisons of one kind.
struct Evidence {
  float* tried;
  float* accepted;

  void count(float decay, bool equal) const {
    *tried = decay * *tried + 1.0f;
    *accepted = decay * *accepted + (equal ? 1.0f : 0.0f);
  }
};

// Those of a draft at a place: the request's own, and all requests'.
Evidence own_evidence(const AdaptDraftLength& a, int64_t req, Found f, int64_t place) {
  float* cell = a.own + 2 * (req * kAgreements + agreement(f.agreed, place));
  return {cell, cell + 1};
}

Evidence pool_evidence(const AdaptDraftLength& a, Found f, int64_t place) {
  float* cell = a.pool + 2 * (length_class(f.len + place) * kAgreements +
                              agreement(f.agreed, place));
  return {cell, cell + 1};
}

// The chance that a draft is right if those before it are.
float acceptance(const AdaptDraftLength& a, int64_t req, Found f, int64_t place) {
  const Evidence own = own_evidence(a, req, f, place);
  const Evidence pool = pool_evidence(a, f, place);
  const float expected = *pool.tried > 0 ? *pool.accepted / *pool.tried : 0.0f;
  const float weight = *own.tried + a.pool_weight;
  return weight > 0 ? (*own.accepted + a.pool_weight * expected) / weight : 0.0f;
}

void learn(const AdaptDraftLength& a, int64_t i, int64_t req) {
  int32_t* row = a.trials + req * (kTrialNumbers + a.num_steps);
  Trial& trial = *reinterpret_cast<Trial*>(row);
  int32_t* draft = row + kTrialNumbers;
  if (begins(a.step, i)) {
    trial.len = 0;
    std::fill_n(a.own + req * kAgreements * 2, kAgreements * 2, 0.0f);
  }
  const int32_t* tokens = a.step.all_token_ids + req * a.step.all_token_ids_stride;
  const int32_t total = a.step.total_len[req];
  int32_t& place = trial.compared;
  while (place < trial.len && trial.start + place < total) {
    const bool equal = tokens[trial.start + place] == draft[place];
    own_evidence(a, req, trial.found, place).count(a.decay, equal);
    pool_evidence(a, trial.found, place).count(a.pool_decay, equal);
    place = equal ? place + 1 : trial.len;
  }
  if (place < trial.len || a.num_drafts[req] == 0) return;
  trial = {total, a.num_drafts[req], a.found[req], 0};
  std::copy_n(a.draft_tokens + req * a.draft_tokens_stride, trial.len, draft);
}

// The time of a step, in units of one whose rows are all free.
double step_time(const AdaptDraftLength& a, int64_t rows) {
  const int64_t paid = std::max<int64_t>(rows - a.free_rows, 0);
  return 1 + static_cast<double>(a.verify_cost) * static_cast<double>(paid);
}

// The chance above which a draft is worth its verification.
double least_chance(const AdaptDraftLength& a, int64_t decoding) {
  const double v = a.verify_cost;
  double limit = v * static_cast<double>(decoding) / step_time(a, decoding);
  // Each round raises the limit; a handful reaches the fixed point.
  for (int round = 0; round < 16; ++round) {
    auto tokens = static_cast<double>(decoding);
    int64_t rows = decoding;
    for (int64_t at = 0; at < a.step.num_reqs * a.num_steps; ++at) {
      if (a.chance[at] > limit) {
        tokens += a.chance[at];
        ++rows;
      }
    }
    const double next = v * tokens / step_time(a, rows);
    if (next <= limit) break;
    limit = next;
  }
  return limit;
}

// Gives each of `rows` to the draft with the largest chance among the requests' next
// ones. Chances are 0 where there is no draft.
void fill(const AdaptDraftLength& a, int64_t rows) {
  for (; rows > 0; --rows) {
    float best = 0;
    int32_t* num_drafts = nullptr;
    for (int64_t i = 0; i < a.step.num_reqs; ++i) {
      int32_t& n = a.num_drafts[a.step.idx_mapping[i]];
      if (n == a.num_steps || a.chance[i * a.num_steps + n] <= best) continue;
      best = a.chance[i * a.num_steps + n];
      num_drafts = &n;
    }
    if (num_drafts == nullptr) return;
    ++*num_drafts;
  }
}

}  // namespace

void ngram_draft(const NgramDraft& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t req = a.step.idx_mapping[i];
    a.num_drafts[req] = 0;
    a.found[req] = {0, -1};
    if (a.step.num_sampled[i] <= 0) continue;
    const int32_t* tokens = a.step.all_token_ids + req * a.step.all_token_ids_stride;
    const int64_t total = a.step.total_len[req];
    Match match;
    if (a.index == nullptr) {
      match = search(a, tokens, total - 1);
    } else {
      MatchIndex index(a, req, tokens);
      if (begins(a.step, i)) {
        index.clear();
        a.indexed_len[req] = 0;
      }
      for (int64_t at = a.indexed_len[req]; at < total - 1; ++at) index.enter(at);
      a.indexed_len[req] =
          std::max(a.indexed_len[req], static_cast<int32_t>(total - 1));
      match = index.longest(total - 1);
    }
    const int64_t num_drafts = std::min(a.num_steps, a.max_model_len - total - 1);
    if (match.len == 0 || num_drafts <= 0) continue;
    // The first occurrence is mostly the text itself, the last one a copy that went
    // elsewhere already: it has to have more in its favour.
    const int64_t len_first = follow_back(match.len, match.first, tokens, total - 1);
    const int64_t len_last = follow_back(match.len, match.last, tokens, total - 1);
    const bool takes_last = len_last > len_first;
    const int64_t source = takes_last ? match.last : match.first;
    const int64_t other = takes_last ? match.first : match.last;
    int64_t* drafts = a.draft_tokens + req * a.draft_tokens_stride;
    int32_t agreed = 0;
    for (int64_t k = 0; k < num_drafts; ++k) {
      drafts[k] = continuation(tokens, total, source, k);
      if (agreed == k && drafts[k] == continuation(tokens, total, other, k)) ++agreed;
    }
    std::fill(drafts + num_drafts, drafts + a.num_steps, 0);
    a.found[req] = {static_cast<int32_t>(std::max(len_first, len_last)),
                    source == other ? -1 : agreed};
    a.num_drafts[req] = static_cast<int32_t>(num_drafts);
  }
}

void adapt_draft_length(const AdaptDraftLength& a) {
  int64_t decoding = 0;
  for (int64_t i = 0; i < a.step.num_reqs; ++i) {
    float* chance = a.chance + i * a.num_steps;
    std::fill_n(chance, a.num_steps, 0.0f);
    if (a.step.num_sampled[i] <= 0) continue;
    ++decoding;
    const int64_t req = a.step.idx_mapping[i];
    learn(a, i, req);
    float all_right = 1;
    for (int64_t k = 0; k < a.num_drafts[req]; ++k) {
      all_right *= acceptance(a, req, a.found[req], k);
      chance[k] = all_right;
    }
  }
  const double limit = least_chance(a, decoding);
  int64_t rows = decoding;
  for (int64_t i = 0; i < a.step.num_reqs; ++i) {
    const float* chance = a.chance + i * a.num_steps;
    int32_t& num_drafts = a.num_drafts[a.step.idx_mapping[i]];
    const auto above = [&](float c) { return c > limit; };
    num_drafts = static_cast<int32_t>(
        std::find_if_not(chance, chance + num_drafts, above) - chance);
    rows += num_drafts;
  }
  fill(a, a.free_rows - rows);
}

}  // namespace vllm_kunlun::host
