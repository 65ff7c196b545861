// SPDX-License-Identifier: Apache-2.0
#include "contracts/step.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/checked.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

constexpr int64_t kElementsPerRequest = 64;

void plan_step(const Tensor& inputs, bool has_drafts, const Tensor& prefill_len,
               const Tensor& computed_prefill, const Tensor& num_computed_tokens,
               const Tensor& order, const Tensor& idx_mapping,
               const Tensor& cu_num_logits, const Tensor& query_start_loc,
               const Tensor& batch, const Tensor& is_prefilling, const Tensor& summary,
               int64_t first_num_tokens, int64_t num_new_sampled, int64_t num_reqs,
               int64_t num_reqs_padded) {
  const OpCheck check("plan_step", inputs);
  const int64_t most = prefill_len.numel();
  check.in_range("num_reqs", num_reqs, 0, most + 1);
  check.in_range("num_reqs_padded", num_reqs_padded, num_reqs, most + 1);
  check.in_range("num_new_sampled", num_new_sampled, 0, 2);
  const int32_t* const in = check.flat<const int32_t>("inputs", inputs, 4 * num_reqs);
  int32_t* const out = check.rows<int32_t>("batch", batch, most, 6);
  const PlanStep args{
      in,
      in + num_reqs,
      has_drafts ? in + 2 * num_reqs : nullptr,
      in + 3 * num_reqs,
      check.flat<const int32_t>("prefill_len", prefill_len, most),
      check.flat<int32_t>("computed_prefill", computed_prefill, most),
      check.flat<int32_t>("num_computed_tokens", num_computed_tokens, most),
      check.flat<int32_t>("order", order, most),
      check.flat<int32_t>("idx_mapping", idx_mapping, most),
      check.flat<int32_t>("cu_num_logits", cu_num_logits, most + 1),
      check.flat<int32_t>("query_start_loc", query_start_loc, most + 1),
      out,
      out + most,
      out + 2 * most,
      out + 3 * most,
      out + 4 * most,
      out + 5 * most,
      check.flat<bool>("is_prefilling", is_prefilling, most),
      check.flat<int32_t>("summary", summary, kPlanSummary),
      first_num_tokens,
      num_new_sampled,
      num_reqs,
      num_reqs_padded,
      most};
  if (checks_indices()) {
    for (int64_t i = 0; i < num_reqs; ++i) {
      check.index("inputs", i, args.rows[i], 0, most);
      check.index("inputs", num_reqs + i, args.num_tokens[i], 0, INT32_MAX);
    }
  }
  host::plan_step(args);
}

template <void (*kLaunch)(const PrepareStep&)>
void prepare_step(const Tensor& input_ids, const Tensor& positions,
                  const Tensor& seq_lens, const Tensor& logits_indices,
                  const Tensor& expanded_idx_mapping, const Tensor& expanded_local_pos,
                  const Tensor& next_prefill_tokens, const Tensor& idx_mapping,
                  const Tensor& query_start_loc, const Tensor& cu_num_logits,
                  const Tensor& all_token_ids, const Tensor& prefill_len,
                  const Tensor& num_computed_tokens, const Tensor& last_sampled_tokens,
                  const Tensor& draft_tokens, int64_t num_new_sampled,
                  int64_t num_reqs) {
  const OpCheck check("prepare_step", input_ids);
  check.at_least("num_reqs", num_reqs, 0);
  kLaunch({checked_prepare_prefill_inputs(check, input_ids, next_prefill_tokens,
                                          idx_mapping, query_start_loc, all_token_ids,
                                          all_token_ids.stride(0), prefill_len,
                                          num_computed_tokens, num_reqs),
           checked_prepare_pos_seq_lens(check, positions, seq_lens, idx_mapping,
                                        query_start_loc, num_computed_tokens,
                                        seq_lens.numel(), num_reqs + 1),
           checked_combine_sampled_and_draft_tokens(
               check, input_ids, idx_mapping, last_sampled_tokens, query_start_loc,
               seq_lens, prefill_len, draft_tokens, draft_tokens.stride(0),
               cu_num_logits, logits_indices, num_new_sampled, num_reqs),
           checked_expand_idx_mapping(check, idx_mapping, expanded_idx_mapping,
                                      expanded_local_pos, cu_num_logits, num_reqs)});
}

void on_host(const PrepareStep& a) {
  launch_on_host(host::prepare_step, a, a.positions.num_columns, kElementsPerRequest);
}

template <void (*kLaunch)(const PrepareBlockTables&)>
void prepare_block_tables(const Tensor& block_table_ptrs,
                          const Tensor& input_block_table_ptrs,
                          const Tensor& block_table_strides, const Tensor& block_sizes,
                          const Tensor& num_blocks, const Tensor& kept_req,
                          const Tensor& kept_blocks, const Tensor& slot_mappings,
                          const Tensor& idx_mapping, const Tensor& query_start_loc,
                          const Tensor& positions, const OptionalTensor& staged,
                          int64_t num_writes, int64_t num_reqs, int64_t num_reqs_padded,
                          int64_t cp_size, int64_t cp_rank, int64_t cp_interleave,
                          int64_t pad_id) {
  const OpCheck check("prepare_block_tables", block_table_ptrs);
  const int64_t num_groups = block_table_strides.numel();
  ApplyWrite writes{};
  if (staged) {
    check.check_dtype("staged", *staged, at::kInt);
    check.check_flat("staged", *staged, 4 * num_writes);
    const auto part = [&](int64_t i) {
      return staged->narrow(0, i * num_writes, num_writes);
    };
    writes = checked_apply_write_multi_group(
        check, block_table_ptrs, block_table_strides, part(1), part(2),
        staged->narrow(0, 4 * num_writes, staged->numel() - 4 * num_writes), part(3),
        part(0), num_writes);
  }
  const int64_t kept_stride = kept_req.stride(0);
  check.rows<int32_t>("kept_blocks", kept_blocks, kept_stride, num_groups);
  check.columns("kept_req", kept_req, num_reqs_padded);
  kLaunch({writes,
           checked_gather_block_tables(check, idx_mapping, block_table_ptrs,
                                       input_block_table_ptrs, block_table_strides,
                                       num_blocks, num_blocks.stride(0), num_reqs,
                                       num_groups, num_reqs_padded),
           checked_compute_slot_mappings(
               check, slot_mappings.size(-1), idx_mapping, query_start_loc, positions,
               block_table_ptrs, block_table_strides, block_sizes, slot_mappings,
               slot_mappings.stride(0), cp_rank, cp_size, cp_interleave, pad_id,
               num_groups, num_reqs + 1),
           check.rows<int32_t>("kept_req", kept_req, kept_stride, num_groups),
           check.rows<int32_t>("kept_blocks", kept_blocks, kept_stride, num_groups),
           kept_stride});
}

// The tables' rows wait for the staged writes, of which the host does all at first.
void on_host(const PrepareBlockTables& a) {
  if (simulated(a)) return;
  host::stage_block_tables(a);
  const GatherBlockTables& g = a.gather;
  launch_on_host(host::gather_changed_blocks, a, g.num_groups * g.num_rows,
                 kElementsPerRequest);
  const ComputeSlotMappings& s = a.slots;
  launch_on_host(host::compute_slot_mappings, s, s.num_groups * s.num_columns,
                 s.max_num_tokens / std::max<int64_t>(s.num_columns, 1));
}

template <void (*kLaunch)(const StoreDrafts&)>
void store_drafts(const Tensor& draft_tokens, const Tensor& idx_mapping,
                  const Tensor& drafts) {
  const OpCheck check("store_drafts", draft_tokens);
  const int64_t num_reqs = drafts.size(0);
  const int64_t num_steps = drafts.size(1);
  check.columns("draft_tokens", draft_tokens, num_steps);
  const StoreDrafts args{
      check.rows<int64_t>("draft_tokens", draft_tokens, draft_tokens.stride(0), 0),
      draft_tokens.stride(0),
      check.flat<const int32_t>("idx_mapping", idx_mapping, num_reqs),
      check.rows<const int64_t>("drafts", drafts, drafts.stride(0), num_reqs),
      drafts.stride(0),
      num_steps,
      num_reqs};
  if (checks_indices()) {
    for (int64_t i = 0; i < num_reqs; ++i) {
      check.index("idx_mapping", i, args.idx_mapping[i], 0, draft_tokens.size(0));
    }
  }
  kLaunch(args);
}

void on_host(const StoreDrafts& a) {
  launch_on_host(host::store_drafts, a, a.num_reqs, a.num_steps);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "plan_step(Tensor inputs, bool has_drafts, Tensor prefill_len, "
      "Tensor(a!) computed_prefill, Tensor(b!) num_computed_tokens, "
      "Tensor(c!) order, Tensor(d!) idx_mapping, Tensor(e!) cu_num_logits, "
      "Tensor(f!) query_start_loc, Tensor(g!) batch, Tensor(h!) is_prefilling, "
      "Tensor(i!) summary, int first_num_tokens, int num_new_sampled, int num_reqs, "
      "int num_reqs_padded) -> ()");
  m.def(
      "prepare_step(Tensor(a!) input_ids, Tensor(b!) positions, Tensor(c!) seq_lens, "
      "Tensor(d!) logits_indices, Tensor(e!) expanded_idx_mapping, "
      "Tensor(f!) expanded_local_pos, Tensor(g!) next_prefill_tokens, "
      "Tensor idx_mapping, Tensor query_start_loc, Tensor cu_num_logits, "
      "Tensor all_token_ids, Tensor prefill_len, Tensor num_computed_tokens, "
      "Tensor last_sampled_tokens, Tensor draft_tokens, int num_new_sampled, "
      "int num_reqs) -> ()");
  // The tables of addresses are marked as written for the tensors behind them.
  m.def(
      "prepare_block_tables(Tensor(a!) block_table_ptrs, "
      "Tensor(b!) input_block_table_ptrs, Tensor block_table_strides, "
      "Tensor block_sizes, Tensor num_blocks, Tensor(c!) kept_req, "
      "Tensor(d!) kept_blocks, Tensor(e!) slot_mappings, Tensor idx_mapping, "
      "Tensor query_start_loc, Tensor positions, Tensor? staged, int num_writes, "
      "int num_reqs, int num_reqs_padded, int cp_size, int cp_rank, "
      "int cp_interleave, int pad_id) -> ()");
  m.def(
      "store_drafts(Tensor(a!) draft_tokens, Tensor idx_mapping, Tensor drafts) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("plan_step", &plan_step);
  m.impl("prepare_step", &prepare_step<on_host>);
  m.impl("prepare_block_tables", &prepare_block_tables<on_host>);
  m.impl("store_drafts", &store_drafts<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("prepare_step", &prepare_step<on_xpu>);
  m.impl("prepare_block_tables", &prepare_block_tables<on_xpu>);
  m.impl("store_drafts", &store_drafts<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("plan_step", nothing_to_infer());
  m.impl("prepare_step", nothing_to_infer());
  m.impl("prepare_block_tables", nothing_to_infer());
  m.impl("store_drafts", nothing_to_infer());
}

}  // namespace vllm_kunlun
