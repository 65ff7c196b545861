// SPDX-License-Identifier: Apache-2.0
// Which states of Mamba layers move, and where to.
#ifndef VLLM_KUNLUN_HOST_MAMBA_STATE_H_
#define VLLM_KUNLUN_HOST_MAMBA_STATE_H_

#include <cstdint>
#include <optional>

#include "contracts/mamba_state.h"

namespace vllm_kunlun::host {

// From column `source` of a block table to column `target`, `bias` tokens later.
struct Move {
  int64_t source;
  int64_t target;
  int64_t bias;

  bool is_nothing() const { return source == target && bias == 0; }
};

// What is to be done for request i of the batch, if anything.
std::optional<Move> move_of(const PrecopyMambaAlign& a, int64_t i);
std::optional<Move> move_of(const PostprocessMamba& a, int64_t i);

}  // namespace vllm_kunlun::host

#endif  // VLLM_KUNLUN_HOST_MAMBA_STATE_H_
