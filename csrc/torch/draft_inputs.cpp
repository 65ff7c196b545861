// SPDX-License-Identifier: Apache-2.0
// Ops that stand for several launches and torch ops of upstream's at once.
#include <vector>

#include "contracts/dflash.h"
#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"
#include "torch/rows.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

// The rows of the target's batch that belong to each request: in order, and at least
// one that was not rejected.
void check_context_rows(const OpCheck& check, const int32_t* query_start_loc,
                        const int32_t* num_rejected, int64_t num_reqs,
                        int64_t num_tokens) {
  for (int64_t i = 0; i < num_reqs; ++i) {
    const int64_t first = query_start_loc[i];
    const int64_t last = query_start_loc[i + 1];
    check.index("query_start_loc", i, first, 0, num_tokens);
    check.index("query_start_loc", i + 1, last, first + 1, num_tokens + 1);
    check.index("num_rejected", i, num_rejected[i], 0, last - first);
  }
}

template <void (*kLaunch)(const PrepareDraftInputs&)>
void prepare_draft_inputs(const Tensor& input_ids, const Tensor& query_positions,
                          const Tensor& query_start_loc, const Tensor& seq_lens,
                          const Tensor& query_slots, const Tensor& context_positions,
                          const Tensor& context_slots, const Tensor& sample_indices,
                          const Tensor& sample_pos, const Tensor& sample_idx_mapping,
                          const Tensor& out_temperature, const Tensor& out_seeds,
                          const Tensor& out_idx_mapping, const Tensor& target_positions,
                          const Tensor& target_query_start_loc,
                          const Tensor& idx_mapping, const Tensor& last_sampled,
                          const Tensor& next_prefill_tokens, const Tensor& num_sampled,
                          const Tensor& num_rejected, const Tensor& temperature,
                          const Tensor& seeds, at::TensorList block_tables,
                          at::IntArrayRef group_ids, at::IntArrayRef block_sizes,
                          int64_t parallel_drafting_token_id, int64_t num_query_per_req,
                          int64_t num_speculative_steps, int64_t max_model_len,
                          bool sample_from_anchor, bool skip_rejected,
                          int64_t pad_slot_id, int64_t num_reqs) {
  const OpCheck check("prepare_draft_inputs", input_ids);
  const int64_t num_groups = static_cast<int64_t>(group_ids.size());
  const int64_t max_num_reqs = out_temperature.numel();
  const int64_t max_num_tokens = input_ids.numel();
  const int64_t max_samples = max_num_reqs * num_speculative_steps;
  const int64_t num_tokens = target_positions.numel();
  check.at_least("num_reqs", num_reqs, 1);
  check.at_least("len(group_ids)", num_groups, 1);
  check.in_range("len(block_tables)", static_cast<int64_t>(block_tables.size()),
                 num_groups, num_groups + 1);
  check.in_range("len(block_sizes)", static_cast<int64_t>(block_sizes.size()),
                 num_groups, num_groups + 1);
  check.at_least("max_model_len", max_model_len, 1);
  check.at_least("num_query_per_req", num_query_per_req, 1);
  check.in_range("num_reqs", num_reqs, 1, max_num_reqs + 1);
  check.in_range("num_reqs * num_query_per_req", num_reqs * num_query_per_req, 1,
                 max_num_tokens + 1);
  // What follows a request's samples is the next request's.
  check.at_least("num_speculative_steps", num_speculative_steps,
                 num_query_per_req - (sample_from_anchor ? 0 : 1));
  check.columns("query_slots", query_slots, max_num_tokens);
  check.columns("context_slots", context_slots, num_tokens);

  PrepareDraftInputs args;
  args.rows = PrepareDflashInputs{
      check.flat<int32_t>("input_ids", input_ids, 0),
      check.flat<int64_t>("query_positions", query_positions, max_num_tokens),
      check.flat<int32_t>("query_start_loc", query_start_loc, max_num_reqs + 1),
      check.flat<int32_t>("seq_lens", seq_lens, max_num_reqs),
      nullptr,
      check.flat<int64_t>("context_positions", context_positions, num_tokens),
      nullptr,
      check.flat<int64_t>("sample_indices", sample_indices, max_samples),
      check.flat<int64_t>("sample_pos", sample_pos, max_samples),
      check.flat<int32_t>("sample_idx_mapping", sample_idx_mapping, max_samples),
      check.flat<const int64_t>("target_positions", target_positions, 0),
      check.flat<const int32_t>("target_query_start_loc", target_query_start_loc,
                                num_reqs + 1),
      check.flat<const int32_t>("idx_mapping", idx_mapping, num_reqs),
      check.flat<const int64_t>("last_sampled", last_sampled, 0),
      check.flat<const int32_t>("next_prefill_tokens", next_prefill_tokens, 0),
      check.flat<const int32_t>("num_sampled", num_sampled, num_reqs),
      check.flat<const int32_t>("num_rejected", num_rejected, num_reqs),
      nullptr,
      0,
      parallel_drafting_token_id,
      1,
      num_query_per_req,
      num_speculative_steps,
      max_num_reqs,
      max_num_tokens,
      max_model_len,
      sample_from_anchor,
      pad_slot_id,
      num_reqs};
  int64_t* all_query_slots =
      check.rows<int64_t>("query_slots", query_slots, query_slots.stride(0), 1);
  int64_t* all_context_slots = check.rows<int64_t>("context_slots", context_slots,
                                                   context_slots.stride(0), num_groups);
  std::vector<DraftGroup> groups;
  for (int64_t g = 0; g < num_groups; ++g) {
    const Tensor& table = block_tables[g];
    check.index("group_ids", g, group_ids[g], 0, query_slots.size(0));
    check.index("block_sizes", g, block_sizes[g], 1, INT64_MAX);
    groups.push_back(
        {all_query_slots + group_ids[g] * query_slots.stride(0),
         all_context_slots + g * context_slots.stride(0),
         check.rows<const int32_t>("block_tables", table, table.stride(0), num_reqs),
         table.stride(0), block_sizes[g]});
  }
  args.groups = groups.data();
  args.num_groups = num_groups;
  args.out_temperature =
      check.flat<float>("out_temperature", out_temperature, max_num_reqs);
  args.out_seeds = check.flat<int64_t>("out_seeds", out_seeds, max_num_reqs);
  args.out_idx_mapping =
      check.flat<int32_t>("out_idx_mapping", out_idx_mapping, max_num_reqs);
  args.temperature = check.flat<const float>("temperature", temperature, max_num_reqs);
  args.seeds = check.flat<const int64_t>("seeds", seeds, max_num_reqs);
  args.skip_rejected = skip_rejected;
  if (checks_indices()) {
    check_context_rows(check, args.rows.target_query_start, args.rows.num_rejected,
                       num_reqs, num_tokens);
    row_list(check, "idx_mapping", idx_mapping, num_reqs,
             std::min(last_sampled.numel(), next_prefill_tokens.numel()));
    const int64_t last = args.rows.target_query_start[num_reqs];
    for (int64_t t = args.rows.target_query_start[0]; t < last; ++t) {
      check.index("target_positions", t, args.rows.target_positions[t], 0, INT64_MAX);
    }
  }
  kLaunch(args);
}

void prepare_on_host(const PrepareDraftInputs& a) {
  // Rows of one request: its queries and, on average, its context.
  launch_on_host(host::prepare_draft_inputs, a, a.rows.num_reqs,
                 a.num_groups * (a.rows.num_query_per_req +
                                 a.rows.max_num_tokens / a.rows.max_num_reqs));
}

template <void (*kLaunch)(const GatherContext&)>
void gather_context(const Tensor& features, const Tensor& out_positions,
                    const Tensor& out_slots, at::TensorList hidden_states,
                    const Tensor& positions, const Tensor& slots,
                    const Tensor& query_start_loc, const Tensor& num_rejected,
                    int64_t num_reqs) {
  const OpCheck check("gather_context", features);
  check.at_least("num_reqs", num_reqs, 1);
  check.at_least("len(hidden_states)", static_cast<int64_t>(hidden_states.size()), 1);
  check.check_flat("features", features, 0);
  const int64_t num_groups = slots.size(0);
  const int64_t num_kept = features.size(0);
  check.columns("out_slots", out_slots, num_kept);
  const int64_t element = static_cast<int64_t>(features.element_size());
  int64_t num_tokens = std::min(positions.numel(), slots.size(1));
  int64_t feature_bytes = 0;
  std::vector<ContextSource> sources;
  for (const Tensor& source : hidden_states) {
    check.check_dtype("hidden_states", source, features.scalar_type());
    check.check_rows("hidden_states", source, source.stride(0), 0);
    const int64_t row_bytes = source.size(1) * element;
    sources.push_back({static_cast<const char*>(source.const_data_ptr()),
                       source.stride(0) * element, row_bytes});
    feature_bytes += row_bytes;
    num_tokens = std::min(num_tokens, source.size(0));
  }
  check.in_range("the width of hidden_states", feature_bytes / element,
                 features.size(1), features.size(1) + 1);
  const GatherContext args{
      static_cast<char*>(features.mutable_data_ptr()),
      check.flat<int64_t>("out_positions", out_positions, num_kept),
      check.rows<int64_t>("out_slots", out_slots, out_slots.stride(0), num_groups),
      out_slots.stride(0),
      sources.data(),
      static_cast<int64_t>(sources.size()),
      feature_bytes,
      check.flat<const int64_t>("positions", positions, 0),
      check.rows<const int64_t>("slots", slots, slots.stride(0), num_groups),
      slots.stride(0),
      num_groups,
      check.flat<const int32_t>("query_start_loc", query_start_loc, num_reqs + 1),
      check.flat<const int32_t>("num_rejected", num_rejected, num_reqs),
      num_reqs,
      num_kept};
  if (checks_indices()) {
    check_context_rows(check, args.query_start_loc, args.num_rejected, num_reqs,
                       num_tokens);
    int64_t kept = args.query_start_loc[num_reqs] - args.query_start_loc[0];
    for (int64_t i = 0; i < num_reqs; ++i) kept -= args.num_rejected[i];
    check.in_range("the rows of features", num_kept, kept, kept + 1);
  }
  kLaunch(args);
}

void gather_on_host(const GatherContext& a) {
  const int64_t rows = a.query_start_loc[a.num_reqs] / a.num_reqs;
  // What is copied is counted in floats.
  launch_on_host(host::gather_context, a, a.num_reqs, rows * a.feature_bytes / 4);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "prepare_draft_inputs(Tensor(a!) input_ids, Tensor(b!) query_positions, "
      "Tensor(c!) query_start_loc, Tensor(d!) seq_lens, Tensor(e!) query_slots, "
      "Tensor(f!) context_positions, Tensor(g!) context_slots, "
      "Tensor(h!) sample_indices, Tensor(i!) sample_pos, "
      "Tensor(j!) sample_idx_mapping, Tensor(k!) out_temperature, "
      "Tensor(l!) out_seeds, Tensor(m!) out_idx_mapping, Tensor target_positions, "
      "Tensor target_query_start_loc, Tensor idx_mapping, Tensor last_sampled, "
      "Tensor next_prefill_tokens, Tensor num_sampled, Tensor num_rejected, "
      "Tensor temperature, Tensor seeds, Tensor[] block_tables, int[] group_ids, "
      "int[] block_sizes, int parallel_drafting_token_id, int num_query_per_req, "
      "int num_speculative_steps, int max_model_len, bool sample_from_anchor, "
      "bool skip_rejected, int pad_slot_id, int num_reqs) -> ()");
  m.def(
      "gather_context(Tensor(a!) features, Tensor(b!) out_positions, "
      "Tensor(c!) out_slots, Tensor[] hidden_states, Tensor positions, Tensor slots, "
      "Tensor query_start_loc, Tensor num_rejected, int num_reqs) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("prepare_draft_inputs", &prepare_draft_inputs<prepare_on_host>);
  m.impl("gather_context", &gather_context<gather_on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("prepare_draft_inputs", &prepare_draft_inputs<on_xpu>);
  m.impl("gather_context", &gather_context<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("prepare_draft_inputs", nothing_to_infer());
  m.impl("gather_context", nothing_to_infer());
}

}  // namespace vllm_kunlun
