// SPDX-License-Identifier: Apache-2.0
// Checks of what says which rows of state a launch looks at.
#ifndef VLLM_KUNLUN_TORCH_ROWS_H_
#define VLLM_KUNLUN_TORCH_ROWS_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "torch/check.h"

namespace vllm_kunlun {

// A list of `count` rows, each in [0, limit).
inline const int32_t* row_list(const OpCheck& check, const char* name,
                               const at::Tensor& t, int64_t count, int64_t limit) {
  const int32_t* rows = check.flat<const int32_t>(name, t, count);
  if (checks_indices()) {
    for (int64_t i = 0; i < count; ++i) check.index(name, i, rows[i], 0, limit);
  }
  return rows;
}

// The request that each of `count` rows of logits belongs to.
inline const int32_t* requests_of_rows(const OpCheck& check, const at::Tensor& t,
                                       int64_t count, int64_t max_num_reqs) {
  return row_list(check, "expanded_idx_mapping_ptr", t, count, max_num_reqs);
}

// How far each of `count` rows of logits is from its request's first.
inline const int32_t* places_of_rows(const OpCheck& check, const at::Tensor& t,
                                     int64_t count) {
  const char* name = "expanded_local_pos_ptr";
  const int32_t* places = check.flat<const int32_t>(name, t, count);
  if (checks_indices()) {
    for (int64_t i = 0; i < count; ++i) check.index(name, i, places[i], 0, i + 1);
  }
  return places;
}

// Where among a batch's num_tokens tokens the inputs of `count` rows of logits stand.
inline const int64_t* tokens_of_rows(const OpCheck& check, const at::Tensor& t,
                                     int64_t count, int64_t num_tokens) {
  const char* name = "logits_indices";
  const int64_t* tokens = check.flat<const int64_t>(name, t, count);
  if (checks_indices()) {
    for (int64_t i = 0; i < count; ++i) {
      check.index(name, i, tokens[i], 0, num_tokens);
    }
  }
  return tokens;
}

// For each request of `rows`, the length of a list in its row of a table.
inline const int32_t* list_lengths(const OpCheck& check, const char* name,
                                   const at::Tensor& t, const int32_t* rows,
                                   int64_t count, int64_t width) {
  const int32_t* lengths = check.flat<const int32_t>(name, t, 0);
  if (checks_indices()) {
    for (int64_t i = 0; i < count; ++i) {
      check.in_range("a row's request", rows[i], 0, t.numel());
      check.index(name, rows[i], lengths[rows[i]], 0, width + 1);
    }
  }
  return lengths;
}

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_TORCH_ROWS_H_
