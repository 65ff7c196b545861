// SPDX-License-Identifier: Apache-2.0
#include "contracts/fused_logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "host/kernels.h"
#include "host/mask_parts.h"
#include "host/simd.h"

namespace vllm_kunlun::host {
namespace {

// min_p over a row that arrives part by part. The threshold only rises: what is below
// it goes at once, and a part is looked at again only if something of it was left and
// the threshold has risen since.
class MinPFilter {
 public:
  explicit MinPFilter(float min_p) : log_min_p_(std::log(min_p)) {}

  void part(float* logits, int64_t n) {
    const float largest = largest_of(logits, n);
    if (largest > largest_) {
      largest_ = largest;
      settled_ = parts_;
    }
    const float threshold = largest_ + log_min_p_;
    forbid_below(logits, threshold, n);
    if (parts_ < kRemembered) is_empty_[parts_] = largest < threshold;
    ++parts_;
  }

  void finish(float* row, int64_t vocab_size) const {
    const float threshold = largest_ + log_min_p_;
    for (int64_t p = 0; p < settled_; ++p) {
      if (p < kRemembered && is_empty_[p]) continue;
      const int64_t first = p * kMaskPart;
      forbid_below(row + first, threshold, std::min(kMaskPart, vocab_size - first));
    }
  }

 private:
  static constexpr int64_t kRemembered = 256;  // parts: a million tokens

  float log_min_p_;
  float largest_ = -std::numeric_limits<float>::infinity();
  int64_t parts_ = 0;
  int64_t settled_ = 0;  // from this part on, what was found is final
  bool is_empty_[kRemembered];
};

}  // namespace

void fused_logits(const FusedLogits& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t req = a.expanded_idx_mapping[row];
    float* out = a.out + row * a.out_stride;
    const int64_t mask = a.bitmask != nullptr ? a.bitmask_rows[row] : -1;
    const int64_t place = a.expanded_local_pos[row];
    const Drafts drafts{a.input_ids + a.logits_indices[row - place] + 1, place};
    const int64_t pos = a.positions[a.logits_indices[row]];
    const float temperature = a.temperature != nullptr ? a.temperature[req] : 1.0f;
    const float min_p = a.min_p != nullptr ? a.min_p[req] : 0.0f;
    MinPFilter min_p_filter(min_p);

    for (int64_t first = 0; first < a.vocab_size; first += kMaskPart) {
      const int64_t n = std::min(kMaskPart, a.vocab_size - first);
      if (a.logits != nullptr) {
        to_float(a.logits, a.logits_type, row * a.logits_stride + first, n,
                 out + first);
      }
      if (mask >= 0) {
        forbid_unset_part(a.bitmask + mask * a.bitmask_stride, a.bitmask_width, first,
                          n, out);
      }
      if (a.bias != nullptr) bias_part(*a.bias, req, pos, first, n, out);
      if (a.penalties != nullptr) {
        penalties_part(*a.penalties, req, drafts, first, n, out);
      }
      if (a.bad_words != nullptr) {
        bad_words_part(*a.bad_words, req, drafts, first, n, out);
      }
      if (temperature != 0.0f && temperature != 1.0f) {
        divide(out + first, temperature, n, out + first);
      }
      if (min_p != 0.0f) min_p_filter.part(out + first, n);
    }
    if (min_p != 0.0f) min_p_filter.finish(out, a.vocab_size);
  }
}

}  // namespace vllm_kunlun::host
