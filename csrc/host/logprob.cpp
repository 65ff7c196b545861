// SPDX-License-Identifier: Apache-2.0
#include "contracts/logprob.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "host/kernels.h"
#include "host/logsumexp.h"
#include "host/simd.h"

namespace vllm_kunlun::host {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A row of logits, handed out as f32.
struct Row {
  const void* logits;
  FloatType type;
  int64_t begin;
  int64_t size;

  template <class Args>
  Row(const Args& a, int64_t row)
      : logits(a.logits),
        type(a.logits_type),
        begin(row * a.logits_stride),
        size(a.vocab_size) {}

  // Calls visit(x, n) for each part of the row.
  template <class Visit>
  void for_parts(Visit visit) const {
    if (type == FloatType::kF32) {
      visit(static_cast<const float*>(logits) + begin, size);
      return;
    }
    for (int64_t first = 0; first < size; first += kChunk) {
      const int64_t n = std::min(kChunk, size - first);
      float x[kChunk];
      to_float(logits, type, begin + first, n, x);
      visit(x, n);
    }
  }

  // A token outside the vocabulary has no probability.
  float operator[](int64_t token) const {
    if (token < 0 || token >= size) return -kInfinity;
    float x;
    to_float(logits, type, begin + token, 1, &x);
    return x;
  }
};

VLLM_KUNLUN_VERSIONS
int32_t count_at_least(const float* x, int64_t n, float least) {
  int32_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += x[i] >= least;
  return count;
}

VLLM_KUNLUN_VERSIONS
int32_t count_nans(const float* x, int64_t n) {
  int32_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += x[i] != x[i];
  return count;
}

}  // namespace

void topk_log_softmax(const TopkLogSoftmax& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const Row row(a, i);
    float max = -kInfinity;
    row.for_parts(
        [&](const float* x, int64_t n) { max = std::max(max, largest_of(x, n)); });
    double sum = 0.0;
    row.for_parts([&](const float* x, int64_t n) { sum += sum_exp(x, max, n); });
    const float log_sum = static_cast<float>(std::log(sum));
    for (int64_t k = i * a.topk; k < (i + 1) * a.topk; ++k) {
      a.output[k] = row[a.topk_ids[k]] - max - log_sum;
    }
  }
}

void ranks(const Ranks& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const Row row(a, i);
    const float least = row[a.token_ids[i]];
    int64_t rank = 0;
    row.for_parts(
        [&](const float* x, int64_t n) { rank += count_at_least(x, n, least); });
    a.output[i] = rank;
  }
}

void num_nans(const NumNans& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    int32_t nans = 0;
    Row(a, i).for_parts([&](const float* x, int64_t n) { nans += count_nans(x, n); });
    a.num_nans[i] = nans;
  }
}

void fill_logprob_token_ids(const FillLogprobTokenIds& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t* ids = a.out_token_ids + row * a.out_token_ids_stride;
    bool* valid = a.out_valid_mask + row * a.out_valid_mask_stride;
    const int64_t req = a.expanded_idx_mapping[row];
    const int64_t num_own = a.num_per_req_token_ids[req];
    const int32_t* own = a.per_req_token_ids + req * a.per_req_token_ids_stride;
    const int32_t* topk = a.topk_indices + row * a.topk_indices_stride;
    const int64_t n = num_own > 0 ? num_own : a.topk;
    ids[0] = a.sampled_token_ids[row];
    std::copy_n(num_own > 0 ? own : topk, n, ids + 1);
    std::fill_n(valid, n + 1, true);
  }
}

void prompt_logprobs_token_ids(const PromptLogprobsTokenIds& a, int64_t begin,
                               int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t req = a.idx_mapping[i];
    const int32_t* tokens = a.all_token_ids + req * a.all_token_ids_stride;
    const int64_t next = a.num_computed_tokens[req] + int64_t{1};
    const int64_t first = a.query_start_loc[i];
    const int64_t length = a.query_start_loc[i + 1] - first;
    for (int64_t t = 0; t < length; ++t) {
      a.token_ids[first + t] = next + t < a.max_len ? tokens[next + t] : 0;
    }
  }
}

}  // namespace vllm_kunlun::host
