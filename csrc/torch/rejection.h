// SPDX-License-Identifier: Apache-2.0
// Checks that the ops for rejection sampling share.
#ifndef VLLM_KUNLUN_TORCH_REJECTION_H_
#define VLLM_KUNLUN_TORCH_REJECTION_H_

#include <algorithm>
#include <optional>

#include "contracts/rejection.h"
#include "torch/check.h"

namespace vllm_kunlun {

template <class T>
Rows<T> row_list(const OpCheck& check, const char* name, const at::Tensor& t,
                 int64_t stride, int64_t rows, int64_t columns) {
  check.columns(name, t, columns);
  return {check.rows<T>(name, t, stride, rows), stride};
}

// An argument that may be None, but not where `needed`.
inline void require(const OpCheck& check, const char* name,
                    const std::optional<at::Tensor>& t, bool needed) {
  if (needed && !t) check.fail(name, "a tensor", "None");
}

inline TargetLogits target_logits(const OpCheck& check, const at::Tensor& t,
                                  int64_t stride, int64_t rows, int64_t vocab_size) {
  check.columns("target_logits_ptr", t, vocab_size);
  return {check.float_rows("target_logits_ptr", t, stride, rows),
          check.float_type("target_logits_ptr", t), stride};
}

inline DraftLogits draft_logits(const OpCheck& check,
                                const std::optional<at::Tensor>& t, int64_t stride_0,
                                int64_t stride_1, int64_t vocab_size, bool needed,
                                const char* name = "draft_logits_ptr") {
  require(check, name, t, needed);
  if (!needed) return {};
  if (t->dim() != 3) {
    check.fail(name, "of 3 dimensions", "of " + std::to_string(t->dim()));
  }
  check.columns(name, *t, vocab_size);
  if (t->stride(0) != stride_0) {
    check.fail(name, "of stride " + std::to_string(stride_0),
               "of stride " + std::to_string(t->stride(0)));
  }
  if (t->size(0) > 0) {
    check.float_rows(name, t->select(0, 0), stride_1, 0);
  }
  record_argument(name, *t);
  return {t->const_data_ptr(), check.float_type(name, *t), stride_0, stride_1};
}

inline LogitsStats logits_stats(const OpCheck& check, const at::Tensor& target_max,
                                int64_t target_max_stride,
                                const at::Tensor& target_sumexp,
                                int64_t target_sumexp_stride,
                                const at::Tensor& draft_max, int64_t draft_max_stride,
                                const at::Tensor& draft_sumexp,
                                int64_t draft_sumexp_stride, int64_t num_logits,
                                int64_t blocks) {
  const auto rows = [&](const char* name, const at::Tensor& t, int64_t stride) {
    return row_list<const float>(check, name, t, stride, num_logits, blocks);
  };
  return {rows("target_local_max_ptr", target_max, target_max_stride),
          rows("target_local_sumexp_ptr", target_sumexp, target_sumexp_stride),
          rows("draft_local_max_ptr", draft_max, draft_max_stride),
          rows("draft_local_sumexp_ptr", draft_sumexp, draft_sumexp_stride), blocks};
}

// The number of state rows that every tensor of states has.
inline int64_t num_states(const at::Tensor& temp, const DraftLogits& draft,
                          const std::optional<at::Tensor>& draft_logits) {
  return draft.data != nullptr ? std::min(temp.numel(), draft_logits->size(0))
                               : temp.numel();
}

inline void check_logit_rows(const OpCheck& check, const int32_t* cu_num_logits,
                             int64_t num_reqs, int64_t num_logits) {
  for (int64_t i = 0; i <= num_reqs; ++i) {
    check.index("cu_num_logits_ptr", i, cu_num_logits[i],
                i > 0 ? cu_num_logits[i - 1] : 0, num_logits + 1);
  }
}

// Every request has a row of its own and at most num_steps drafts, of the vocabulary or
// negative.
inline void check_drafts(const OpCheck& check, const int32_t* cu_num_logits,
                         const IntList& draft_sampled, int64_t num_reqs,
                         int64_t num_steps, int64_t vocab_size) {
  for (int64_t i = 0; i < num_reqs; ++i) {
    const int64_t first = cu_num_logits[i];
    const int64_t last = cu_num_logits[i + 1];
    check.index("cu_num_logits_ptr", i + 1, last, first + 1, first + num_steps + 2);
    for (int64_t row = first + 1; row < last; ++row) {
      check.index("draft_sampled_ptr", row, draft_sampled[row], INT32_MIN, vocab_size);
    }
  }
}

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_TORCH_REJECTION_H_
