// SPDX-License-Identifier: Apache-2.0
#include "contracts/logprob.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "host/kernels.h"
#include "host/simd.h"

namespace vllm_kunlun::host {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kPart = 2048;  // tokens that are turned into f32 at a time
constexpr int64_t kLanes = 32;   // sums side by side, the same on every machine

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
    for (int64_t first = 0; first < size; first += kPart) {
      const int64_t n = std::min(kPart, size - first);
      float x[kPart];
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

// e^x for x <= 0 within 2 ulp, as a term of a sum in which e^0 is another: below -87,
// where f32 ends, it is e^-87, which adds nothing. NaN stays NaN.
inline float exp_term(float x) {
  x = x < -87.0f ? -87.0f : x;
  // x = n log(2) + r. Adding 1.5 * 2^23 rounds to the integer n and leaves it in the
  // low bits.
  const float shifted = x * 0x1.715476p+0f + 0x1.8p+23f;
  const float n = shifted - 0x1.8p+23f;
  const float r = x - n * 0x1.63p-1f - n * -0x1.bd0106p-13f;
  float p = 0x1.a0d2cep-13f;
  p = p * r + 0x1.6e879cp-10f;
  p = p * r + 0x1.111210p-7f;
  p = p * r + 0x1.55553cp-5f;
  p = p * r + 0x1.555554p-3f;
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return p * power;
}

// In f64, so that the size of the vocabulary costs no precision.
VLLM_KUNLUN_VERSIONS
double sum_of_exp(const float* x, int64_t n, float max) {
  double lanes[kLanes] = {};
  const int64_t whole = n - n % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      lanes[j] += static_cast<double>(exp_term(x[i + j] - max));
    }
  }
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  for (int64_t i = whole; i < n; ++i) {
    sum += static_cast<double>(exp_term(x[i] - max));
  }
  return sum;
}

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
    row.for_parts([&](const float* x, int64_t n) {
      max = std::max(max, find_largest(x, n).value);
    });
    double sum = 0.0;
    row.for_parts([&](const float* x, int64_t n) { sum += sum_of_exp(x, n, max); });
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
