// SPDX-License-Identifier: Apache-2.0
#include "contracts/mamba_state.h"

#include <algorithm>
#include <cstring>

#include "host/kernels.h"
#include "host/mamba_state.h"

namespace vllm_kunlun::host {
namespace {

// The move of one state of one request, whose row in the block tables is `row`.
void move_state(const MambaStates& s, int64_t state, int64_t row, const Move& move) {
  char* base = reinterpret_cast<char*>(s.base_addresses[state]);
  const int32_t* blocks = s.block_tables[s.groups[state]] + row * s.block_table_stride;
  const int64_t width = s.conv_widths[state];
  const int64_t element = s.element_sizes[state];
  const int64_t inner = s.inner_sizes[state] * element;
  const auto block_at = [&](int64_t column) {
    return base + blocks[column] * s.block_strides[state];
  };
  char* target = block_at(move.target);
  if (width == 0) {
    std::memmove(target, block_at(move.source + move.bias), inner);
    return;
  }
  if (move.bias >= width) return;
  const char* source = block_at(move.source);
  if (!s.dim_first) {
    std::memmove(target, source + move.bias * inner, (width - move.bias) * inner);
    return;
  }
  for (int64_t r = 0; r < s.row_counts[state]; ++r) {
    const int64_t begin = r * s.row_strides[state];
    std::memmove(target + begin, source + begin + move.bias * element,
                 (width - move.bias) * element);
  }
}

// The programs of a grid (requests, states), whatever decides on the moves.
template <class Args>
void move_states(const Args& a, int64_t begin, int64_t end) {
  for (int64_t program = begin; program < end; ++program) {
    const int64_t i = program / a.states.num_states;
    const std::optional<Move> move = move_of(a, i);
    if (!move || move->is_nothing()) continue;
    move_state(a.states, program % a.states.num_states, i, *move);
  }
}

}  // namespace

std::optional<Move> move_of(const PrecopyMambaAlign& a, int64_t i) {
  const int64_t req = a.idx_mapping[i];
  if (req < 0 || a.src_col[req] < 0 || a.src_col[req] == a.state_idx[req]) return {};
  return Move{a.src_col[req], a.state_idx[req], a.token_bias[req]};
}

std::optional<Move> move_of(const PostprocessMamba& a, int64_t i) {
  const int64_t req = a.idx_mapping != nullptr ? a.idx_mapping[i] : i;
  if (req < 0) return {};
  int64_t computed = a.num_computed_tokens[req];
  if (a.num_scheduled_tokens != nullptr) {
    computed += a.num_scheduled_tokens[req] - a.num_draft_tokens[req] +
                a.num_accepted[req] - int64_t{1};
  }
  const int64_t running = computed - a.num_accepted[req] + 1;
  const int64_t blocks = computed / a.block_size;
  const int64_t aligned = blocks * a.block_size;
  if (aligned < running) return {};
  return Move{a.state_idx[req], blocks - 1, aligned - running};
}

void preprocess_mamba_align(const PreprocessMambaAlign& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t req = a.idx_mapping[i];
    const int32_t before = a.state_idx[req];
    a.src_col[req] = before;
    a.src_off[req] = std::max(a.num_accepted[req] - 1, 0);
    const int64_t computed = int64_t{a.num_computed_tokens[req]} +
                             a.query_start_loc[i + 1] - a.query_start_loc[i];
    const int64_t blocks = (computed + a.mamba_block_size - 1) / a.mamba_block_size;
    const int32_t now = static_cast<int32_t>(blocks - 1);
    a.state_idx[req] = now;
    if (before >= 0 && before != now) a.num_accepted[req] = 1;
  }
}

void precopy_mamba_align(const PrecopyMambaAlign& a, int64_t begin, int64_t end) {
  move_states(a, begin, end);
}

void postprocess_mamba_states(const PostprocessMamba& a, int64_t begin, int64_t end) {
  move_states(a, begin, end);
}

void postprocess_mamba_accepted(const PostprocessMamba& a) {
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    const std::optional<Move> move = move_of(a, i);
    if (!move || move->source != move->target) continue;
    a.accepted_out[a.idx_mapping != nullptr ? a.idx_mapping[i] : i] = 1;
  }
}

}  // namespace vllm_kunlun::host
