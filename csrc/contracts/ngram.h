// SPDX-License-Identifier: Apache-2.0
// Drafts from a request's own tokens, and how many of them to verify. No kernel of
// upstream's: its V1 runner drafts on the host, with numba
// (vllm/v1/spec_decode/ngram_proposer.py), and always as many as it finds.
//
// Here and below: request i of the batch has the state row idx_mapping[i] and the
// tokens [query_start_loc[i], query_start_loc[i + 1]); T is total_len of its row. A
// request that has sampled nothing in this step (num_sampled[i] <= 0: its prompt goes
// on) gets no drafts. A request begins where a step computes a part of its prefill and
// samples: whatever its row held before belongs to another request, or to its own
// tokens before a preemption, and is dropped.
#ifndef VLLM_KUNLUN_CONTRACTS_NGRAM_H_
#define VLLM_KUNLUN_CONTRACTS_NGRAM_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// The step that has just been sampled, after post_update.
struct SampledStep {
  const int32_t* idx_mapping;      // [num_reqs]; rows are distinct
  const int32_t* query_start_loc;  // [num_reqs + 1]
  const int32_t* seq_lens;         // [num_reqs], computed tokens and the query
  const int32_t* prefill_len;      // [max_num_reqs]
  const int32_t* num_sampled;      // [num_reqs]
  const int32_t* all_token_ids;    // [max_num_reqs, max_model_len]
  int64_t all_token_ids_stride;
  const int32_t* total_len;  // [max_num_reqs]; at most max_model_len
  int64_t num_reqs;
};

// How far a match is followed back, and how its length is classed for what it is worth:
// 1, 2, 3, 4, 5 to 7, 8 to 15, 16 tokens and more.
inline constexpr int64_t kLongestMatch = 16;
inline constexpr int64_t kLengthClasses = 7;

inline int64_t length_class(int64_t match_len) {
  if (match_len < 5) return match_len - 1;
  return match_len < 8 ? 4 : match_len < 16 ? 5 : 6;
}

// A match: of its occurrences two are known, the first and the last, of which one is
// followed. agreed: on how many of the drafts the other one goes on alike; -1 where
// both are the same.
struct Found {
  int32_t len;
  int32_t agreed;
};

// What the other occurrence says of the draft at a place: there is none, it goes on
// alike up to there, it does not.
inline constexpr int64_t kAgreements = 3;

inline int64_t agreement(int64_t agreed, int64_t place) {
  return agreed < 0 ? 0 : place < agreed ? 1 : 2;
}

// A draft of a request's that is compared with what comes. So many numbers, then the
// num_steps tokens, of which the first len are drafts.
struct Trial {
  int32_t start;  // total_len when it was drafted
  int32_t len;
  Found found;
  int32_t compared;  // up to here; len after the first that was wrong
};

inline constexpr int64_t kTrialNumbers = sizeof(Trial) / sizeof(int32_t);

// The largest max_len: entering a token costs so many look-ups.
inline constexpr int64_t kLongestNgram = 64;

// Grid (num_reqs).
//
// Looks for the longest suffix of the request's tokens, of min_len to max_len tokens,
// that occurs earlier (ending before T - 1). Of its first and its last occurrence it
// takes the one before which more tokens agree with the request's end, counted with the
// suffix up to kLongestMatch or max_len; the first one on a tie. The drafts are the
// tokens that followed there. Where they reach T they go on with the drafts
// themselves, so that a loop of any period gives num_steps drafts.
//
// Written, of the request's row: found, with that count as its length, or 0 and -1
// without a match; num_drafts, how many drafts there are: 0 without a match, else
// num_steps, but never a draft at or after max_model_len - 1, which could not be
// followed by a token; draft_tokens, those, then 0 up to num_steps; without drafts the
// old ones stay.
//
// index and indexed_len keep the request's n-grams from step to step. For each length
// there is an open-addressing hash table with linear probing: an entry is the positions
// of the last token of an n-gram's first and of its last occurrence, or -1 twice; the
// tokens there are its key. indexed_len counts the positions that have been entered: 0
// .. T - 2 after a launch, each once, so that a new token costs a constant, however
// long the request is. index_size > max_model_len, so that there always is a -1. Null:
// all tokens are searched each time; the drafts are the same. The XPU searches with an
// index, too, and leaves it as it is: a request stays on one backend.
struct NgramDraft {
  SampledStep step;
  int64_t* draft_tokens;  // [max_num_reqs, num_steps]
  int64_t draft_tokens_stride;
  int32_t* num_drafts;   // [max_num_reqs]
  Found* found;          // [max_num_reqs]
  int32_t* index;        // [max_num_reqs, max_len - min_len + 1, index_size, 2] or null
  int32_t* indexed_len;  // [max_num_reqs], null where index is
  int64_t index_size;
  int64_t min_len;
  int64_t max_len;
  int64_t num_steps;
  int64_t max_model_len;
};

// Grid (1): the decision is the batch's.
//
// Learns how often drafts were right, then cuts each request's num_drafts to those that
// are worth their verification.
//
// Learning. One draft of a request's is on trial, whether it was verified or not. It is
// compared with what was sampled at [start, T): per place, in order, up to the first
// that differs. A comparison at a place is one of a match that
// is so many tokens longer. It counts by agreement() in the request's own evidence, and
// by length_class(len + place) and agreement() in the pool's:
//   tried = decay * tried + 1,  accepted = decay * accepted + (equal ? 1 : 0),
// with pool_decay in the pool. After the last comparison the next draft is the trial.
//
// Deciding. A draft is right after those before it with the chance
//   (accepted + pool_weight * a) / (tried + pool_weight),  a = pool accepted / tried,
// of the same cells: the pool knows how far drafts of a kind can be trusted, the
// request's few numbers learn within some steps whether it is copying just now. chance,
// the product up to a place, is that it is accepted. A step of R rows takes
//   t(R) = 1 + v * max(0, R - free_rows),  v = verify_cost:
// up to free_rows it waits for the weights, then each row adds its share. With B
// requests and the set S of drafts verified, R = B + |S|, the next step gives
// E = B + sum of chances in S tokens. E / t(R) is largest for S = {chance > x} at the
// fixed point x = v * E / t(R), found by iteration from S = {} (Dinkelbach). Where that
// leaves rows free they are filled, one by one, with the draft that has the largest
// chance of those that are a request's next, if it has any; the first request on a tie.
// Written: num_drafts, trials, own, pool, chance.
struct AdaptDraftLength {
  SampledStep step;
  int32_t* num_drafts;  // [max_num_reqs], read and written
  int32_t* trials;      // [max_num_reqs, kTrialNumbers + num_steps]
  float* own;           // [max_num_reqs, kAgreements, 2], tried and accepted
  float* pool;          // [kLengthClasses, kAgreements, 2]
  float* chance;        // [>= num_reqs, num_steps]
  const int64_t* draft_tokens;
  int64_t draft_tokens_stride;
  const Found* found;  // [max_num_reqs]
  int64_t num_steps;
  float decay;
  float pool_decay;
  float pool_weight;
  float verify_cost;
  int64_t free_rows;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_NGRAM_H_
