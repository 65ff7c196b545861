// SPDX-License-Identifier: Apache-2.0
#include "contracts/step.h"

#include <algorithm>
#include <numeric>

#include "host/kernels.h"

namespace vllm_kunlun::host {
namespace {

// Returns whether that changes anything.
bool order_by_length(const PlanStep& a) {
  const int64_t n = a.num_reqs;
  std::iota(a.order, a.order + n, 0);
  const int64_t first = a.first_num_tokens;
  const auto precedes = [first](int32_t x, int32_t y) {
    return x == first || y == first ? x == first && y != first : x < y;
  };
  const bool in_order = std::is_sorted(a.num_tokens, a.num_tokens + n, precedes);
  if (!in_order) {
    std::stable_sort(a.order, a.order + n, [&](int32_t x, int32_t y) {
      return precedes(a.num_tokens[x], a.num_tokens[y]);
    });
  }
  return !in_order;
}

}  // namespace

void plan_step(const PlanStep& a) {
  const bool reordered = order_by_length(a);
  int32_t most_tokens = 0;
  int32_t longest = 0;
  int32_t num_prefilling = 0;
  a.cu_num_logits[0] = 0;
  a.query_start_loc[0] = 0;
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    const int64_t from = a.order[i];
    const int64_t row = a.rows[from];
    const int32_t num_tokens = a.num_tokens[from];
    const int32_t num_drafts = a.num_drafts == nullptr ? 0 : a.num_drafts[from];
    a.idx_mapping[i] = static_cast<int32_t>(row);
    a.batch_num_tokens[i] = num_tokens;
    a.batch_num_drafts[i] = num_drafts;
    a.cu_num_logits[i + 1] =
        a.cu_num_logits[i] + num_drafts + static_cast<int32_t>(a.num_new_sampled);
    a.query_start_loc[i + 1] = a.query_start_loc[i] + num_tokens;
    a.batch_prefill_len[i] = a.prefill_len[row];
    if (a.computed[from] >= 0) a.num_computed_tokens[row] = a.computed[from];
    a.computed_prefill[row] = std::min(a.num_computed_tokens[row], a.prefill_len[row]);
    a.batch_computed_prefill[i] = a.computed_prefill[row];
    a.batch_computed[i] = a.num_computed_tokens[row];
    a.seq_len_bound[i] = a.num_computed_tokens[row] + num_tokens;
    a.is_prefilling[i] = a.computed_prefill[row] < a.prefill_len[row];
    most_tokens = std::max(most_tokens, num_tokens);
    longest = std::max(longest, a.seq_len_bound[i]);
    num_prefilling += a.is_prefilling[i];
  }
  std::fill(a.query_start_loc + a.num_reqs + 1, a.query_start_loc + a.max_num_reqs + 1,
            a.query_start_loc[a.num_reqs]);
  std::fill(a.seq_len_bound + a.num_reqs, a.seq_len_bound + a.num_reqs_padded, 0);
  const int32_t summary[kPlanSummary] = {reordered, most_tokens, longest,
                                         num_prefilling};
  std::copy_n(summary, kPlanSummary, a.summary);
}

void prepare_step(const PrepareStep& a, int64_t begin, int64_t end) {
  const int64_t last = std::min(end, a.tokens.num_reqs);
  prepare_prefill_inputs(a.prefill, begin, last);
  prepare_pos_seq_lens(a.positions, begin, end);
  combine_sampled_and_draft_tokens(a.tokens, begin, last);
  expand_idx_mapping(a.logits, begin, last);
}

void stage_block_tables(const PrepareBlockTables& a) {
  apply_write(a.writes);
  for (int64_t w = 0; w < a.writes.num_writes; ++w) {
    if (a.writes.starts[w] > 0) continue;
    int32_t* kept = a.kept_req + a.writes.group_ids[w] * a.kept_stride;
    std::replace(kept, kept + a.kept_stride, a.writes.indices[w], -1);
  }
}

void gather_changed_blocks(const PrepareBlockTables& a, int64_t begin, int64_t end) {
  const GatherBlockTables& g = a.gather;
  for (int64_t program = begin; program < end; ++program) {
    const int64_t group = program / g.num_rows;
    const int64_t row = program % g.num_rows;
    int32_t& kept_req = a.kept_req[group * a.kept_stride + row];
    int32_t& kept_blocks = a.kept_blocks[group * a.kept_stride + row];
    if (row >= g.num_reqs) {
      gather_block_tables(g, program, program + 1);
      kept_req = -1;
      continue;
    }
    const int32_t req = g.batch_idx_to_req_idx[row];
    const int32_t num_blocks = g.num_blocks[group * g.num_blocks_stride + req];
    const int32_t have = kept_req == req ? std::min(kept_blocks, num_blocks) : 0;
    const int64_t stride = g.block_table_strides[group];
    std::copy(g.src_block_tables[group] + req * stride + have,
              g.src_block_tables[group] + req * stride + num_blocks,
              g.dst_block_tables[group] + row * stride + have);
    kept_req = req;
    kept_blocks = num_blocks;
  }
}

void store_drafts(const StoreDrafts& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    std::copy_n(a.drafts + i * a.drafts_stride, a.num_steps,
                a.draft_tokens + a.idx_mapping[i] * a.draft_tokens_stride);
  }
}

}  // namespace vllm_kunlun::host
