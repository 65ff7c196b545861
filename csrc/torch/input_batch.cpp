// SPDX-License-Identifier: Apache-2.0
#include "contracts/input_batch.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/checked.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

// What one request of a decode batch touches, for the choice of threads.
constexpr int64_t kElementsPerRequest = 64;

// Each value of idx_mapping names a row that every one of the state's tensors has.
void check_rows_of_state(const OpCheck& check, const int32_t* idx_mapping,
                         int64_t num_reqs, std::initializer_list<int64_t> sizes) {
  const int64_t rows = std::min(sizes);
  for (int64_t i = 0; i < num_reqs; ++i) {
    check.index("idx_mapping_ptr", i, idx_mapping[i], 0, rows);
  }
}

// Sums of lengths: they grow, and end within what they index.
void check_sums(const OpCheck& check, const char* name, const int32_t* sums,
                int64_t count, int64_t elements) {
  for (int64_t i = 0; i < count; ++i) {
    check.index(name, i, sums[i], i > 0 ? sums[i - 1] : 0, elements + 1);
  }
}

}  // namespace

PreparePrefillInputs checked_prepare_prefill_inputs(
    const OpCheck& check, const Tensor& input_ids_ptr,
    const Tensor& next_prefill_tokens_ptr, const Tensor& idx_mapping_ptr,
    const Tensor& query_start_loc_ptr, const Tensor& all_token_ids_ptr,
    int64_t all_token_ids_stride, const Tensor& prefill_lens_ptr,
    const Tensor& num_computed_tokens_ptr, int64_t grid_x) {
  const PreparePrefillInputs args{
      check.flat<int32_t>("input_ids_ptr", input_ids_ptr, 0),
      check.flat<int32_t>("next_prefill_tokens_ptr", next_prefill_tokens_ptr, 0),
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<const int32_t>("query_start_loc_ptr", query_start_loc_ptr, grid_x + 1),
      check.rows<const int32_t>("all_token_ids_ptr", all_token_ids_ptr,
                                all_token_ids_stride, 0),
      all_token_ids_stride,
      check.flat<const int32_t>("prefill_lens_ptr", prefill_lens_ptr, 0),
      check.flat<const int32_t>("num_computed_tokens_ptr", num_computed_tokens_ptr, 0),
      grid_x};
  if (checks_indices()) {
    check_rows_of_state(check, args.idx_mapping, grid_x,
                        {next_prefill_tokens_ptr.numel(), all_token_ids_ptr.size(0),
                         prefill_lens_ptr.numel(), num_computed_tokens_ptr.numel()});
    check_sums(check, "query_start_loc_ptr", args.query_start_loc, grid_x + 1,
               input_ids_ptr.numel());
    for (int64_t i = 0; i < grid_x; ++i) {
      const int64_t req = args.idx_mapping[i];
      const int64_t computed = args.num_computed_tokens[req];
      const int64_t len = args.query_start_loc[i + 1] - args.query_start_loc[i];
      if (computed >= args.prefill_lens[req]) continue;
      check.index("prefill_lens_ptr", req, args.prefill_lens[req], 0,
                  all_token_ids_stride + 1);
      check.index("num_computed_tokens_ptr", req, computed, 0,
                  all_token_ids_stride - len + 1);
    }
  }
  return args;
}

PreparePosSeqLens checked_prepare_pos_seq_lens(
    const OpCheck& check, const Tensor& pos_ptr, const Tensor& seq_lens_ptr,
    const Tensor& idx_mapping_ptr, const Tensor& query_start_loc_ptr,
    const Tensor& num_computed_tokens_ptr, int64_t max_num_reqs, int64_t grid_x) {
  const PreparePosSeqLens args{
      check.flat<int64_t>("pos_ptr", pos_ptr, 0),
      check.flat<int32_t>("seq_lens_ptr", seq_lens_ptr,
                          std::max(max_num_reqs, grid_x - 1)),
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x - 1),
      check.flat<const int32_t>("query_start_loc_ptr", query_start_loc_ptr, grid_x),
      check.flat<const int32_t>("num_computed_tokens_ptr", num_computed_tokens_ptr, 0),
      max_num_reqs,
      grid_x};
  if (checks_indices()) {
    check_rows_of_state(check, args.idx_mapping, grid_x - 1,
                        {num_computed_tokens_ptr.numel()});
    check_sums(check, "query_start_loc_ptr", args.query_start_loc, grid_x,
               pos_ptr.numel());
  }
  return args;
}

CombineSampledAndDraftTokens checked_combine_sampled_and_draft_tokens(
    const OpCheck& check, const Tensor& input_ids_ptr, const Tensor& idx_mapping_ptr,
    const Tensor& last_sampled_tokens_ptr, const Tensor& query_start_loc_ptr,
    const Tensor& seq_lens_ptr, const Tensor& prefill_len_ptr,
    const Tensor& draft_tokens_ptr, int64_t draft_tokens_stride,
    const Tensor& cu_num_logits_ptr, const Tensor& logits_indices_ptr,
    int64_t num_new_sampled_tokens, int64_t grid_x) {
  check.in_range("NUM_NEW_SAMPLED_TOKENS", num_new_sampled_tokens, 0, 2);
  const CombineSampledAndDraftTokens args{
      check.flat<int32_t>("input_ids_ptr", input_ids_ptr, 0),
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<const int64_t>("last_sampled_tokens_ptr", last_sampled_tokens_ptr, 0),
      check.flat<const int32_t>("query_start_loc_ptr", query_start_loc_ptr, grid_x + 1),
      check.flat<const int32_t>("seq_lens_ptr", seq_lens_ptr, grid_x),
      check.flat<const int32_t>("prefill_len_ptr", prefill_len_ptr, 0),
      check.rows<const int64_t>("draft_tokens_ptr", draft_tokens_ptr,
                                draft_tokens_stride, 0),
      draft_tokens_stride,
      check.flat<const int32_t>("cu_num_logits_ptr", cu_num_logits_ptr, grid_x + 1),
      check.flat<int64_t>("logits_indices_ptr", logits_indices_ptr, 0),
      num_new_sampled_tokens,
      grid_x};
  if (checks_indices()) {
    check_rows_of_state(check, args.idx_mapping, grid_x,
                        {last_sampled_tokens_ptr.numel(), prefill_len_ptr.numel(),
                         draft_tokens_ptr.size(0)});
    check_sums(check, "query_start_loc_ptr", args.query_start_loc, grid_x + 1,
               input_ids_ptr.numel());
    check_sums(check, "cu_num_logits_ptr", args.cu_num_logits, grid_x + 1,
               logits_indices_ptr.numel());
    for (int64_t i = 0; i < grid_x; ++i) {
      // Neither more logits than tokens, nor more drafts than there are.
      const int64_t most =
          std::min<int64_t>(args.query_start_loc[i + 1] - args.query_start_loc[i],
                            draft_tokens_ptr.size(-1) + num_new_sampled_tokens);
      check.index("cu_num_logits_ptr", i + 1, args.cu_num_logits[i + 1], 0,
                  args.cu_num_logits[i] + most + 1);
    }
  }
  return args;
}

namespace {

template <void (*kLaunch)(const PreparePrefillInputs&)>
void prepare_prefill_inputs(const Tensor& input_ids_ptr,
                            const Tensor& next_prefill_tokens_ptr,
                            const Tensor& idx_mapping_ptr,
                            const Tensor& query_start_loc_ptr,
                            const Tensor& all_token_ids_ptr,
                            int64_t all_token_ids_stride,
                            const Tensor& prefill_lens_ptr,
                            const Tensor& num_computed_tokens_ptr, int64_t grid_x) {
  const OpCheck check("prepare_prefill_inputs", input_ids_ptr);
  kLaunch(checked_prepare_prefill_inputs(
      check, input_ids_ptr, next_prefill_tokens_ptr, idx_mapping_ptr,
      query_start_loc_ptr, all_token_ids_ptr, all_token_ids_stride, prefill_lens_ptr,
      num_computed_tokens_ptr, grid_x));
}

template <void (*kLaunch)(const PreparePosSeqLens&)>
void prepare_pos_seq_lens(const Tensor& pos_ptr, const Tensor& seq_lens_ptr,
                          const Tensor& idx_mapping_ptr,
                          const Tensor& query_start_loc_ptr,
                          const Tensor& num_computed_tokens_ptr, int64_t max_num_reqs,
                          int64_t grid_x) {
  const OpCheck check("prepare_pos_seq_lens", pos_ptr);
  kLaunch(checked_prepare_pos_seq_lens(check, pos_ptr, seq_lens_ptr, idx_mapping_ptr,
                                       query_start_loc_ptr, num_computed_tokens_ptr,
                                       max_num_reqs, grid_x));
}

template <void (*kLaunch)(const CombineSampledAndDraftTokens&)>
void combine_sampled_and_draft_tokens(
    const Tensor& input_ids_ptr, const Tensor& idx_mapping_ptr,
    const Tensor& last_sampled_tokens_ptr, const Tensor& query_start_loc_ptr,
    const Tensor& seq_lens_ptr, const Tensor& prefill_len_ptr,
    const Tensor& draft_tokens_ptr, int64_t draft_tokens_stride,
    const Tensor& cu_num_logits_ptr, const Tensor& logits_indices_ptr,
    int64_t num_new_sampled_tokens, int64_t grid_x) {
  const OpCheck check("combine_sampled_and_draft_tokens", input_ids_ptr);
  kLaunch(checked_combine_sampled_and_draft_tokens(
      check, input_ids_ptr, idx_mapping_ptr, last_sampled_tokens_ptr,
      query_start_loc_ptr, seq_lens_ptr, prefill_len_ptr, draft_tokens_ptr,
      draft_tokens_stride, cu_num_logits_ptr, logits_indices_ptr,
      num_new_sampled_tokens, grid_x));
}

template <void (*kLaunch)(const GetNumSampledAndRejected&)>
void get_num_sampled_and_rejected(const Tensor& num_sampled_ptr,
                                  const Tensor& num_rejected_ptr,
                                  const Tensor& seq_lens_ptr,
                                  const Tensor& cu_num_logits_ptr,
                                  const Tensor& idx_mapping_ptr,
                                  const Tensor& prefill_len_ptr, int64_t grid_x) {
  const OpCheck check("get_num_sampled_and_rejected", num_sampled_ptr);
  const GetNumSampledAndRejected args{
      check.flat<int32_t>("num_sampled_ptr", num_sampled_ptr, grid_x),
      check.flat<int32_t>("num_rejected_ptr", num_rejected_ptr, grid_x),
      check.flat<const int32_t>("seq_lens_ptr", seq_lens_ptr, grid_x),
      check.flat<const int32_t>("cu_num_logits_ptr", cu_num_logits_ptr, grid_x + 1),
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<const int32_t>("prefill_len_ptr", prefill_len_ptr, 0),
      grid_x};
  if (checks_indices()) {
    check_rows_of_state(check, args.idx_mapping, grid_x, {prefill_len_ptr.numel()});
  }
  kLaunch(args);
}

void check_indices(const OpCheck& check, const PostUpdate& a, int64_t rows,
                   int64_t sampled_width, int64_t vocab_size) {
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    const int64_t req = a.idx_mapping[i];
    if (req < 0) continue;
    check.index("idx_mapping_ptr", i, req, 0, rows);
    check.index("num_sampled_ptr", i, a.num_sampled[i], 0, sampled_width + 1);
    check.index("total_len_ptr", req, a.total_len[req], 0,
                a.all_token_ids_stride - a.num_sampled[i] + 1);
    if (a.output_bin_counts == nullptr) continue;
    for (int64_t k = 0; k < a.num_sampled[i]; ++k) {
      const int64_t at = i * a.sampled_tokens_stride + k;
      check.index("sampled_tokens_ptr", at, a.sampled_tokens[at], -1, vocab_size);
    }
  }
}

template <void (*kLaunch)(const PostUpdate&)>
void post_update(const Tensor& idx_mapping_ptr, const Tensor& num_computed_tokens_ptr,
                 const Tensor& last_sampled_tokens_ptr,
                 const OptionalTensor& output_bin_counts_ptr,
                 int64_t output_bin_counts_stride, const Tensor& sampled_tokens_ptr,
                 int64_t sampled_tokens_stride, const Tensor& num_sampled_ptr,
                 const Tensor& num_rejected_ptr,
                 const OptionalTensor& query_start_loc_ptr,
                 const Tensor& all_token_ids_ptr, int64_t all_token_ids_stride,
                 const Tensor& total_len_ptr, int64_t grid_x) {
  const OpCheck check("post_update", idx_mapping_ptr);
  const PostUpdate args{
      check.flat<const int32_t>("idx_mapping_ptr", idx_mapping_ptr, grid_x),
      check.flat<int32_t>("num_computed_tokens_ptr", num_computed_tokens_ptr, 0),
      check.flat<int64_t>("last_sampled_tokens_ptr", last_sampled_tokens_ptr, 0),
      check.rows<int32_t>("output_bin_counts_ptr", output_bin_counts_ptr,
                          output_bin_counts_stride, 0),
      output_bin_counts_stride,
      check.rows<const int64_t>("sampled_tokens_ptr", sampled_tokens_ptr,
                                sampled_tokens_stride, grid_x),
      sampled_tokens_stride,
      check.flat<const int32_t>("num_sampled_ptr", num_sampled_ptr, grid_x),
      check.flat<const int32_t>("num_rejected_ptr", num_rejected_ptr, grid_x),
      check.flat<const int32_t>("query_start_loc_ptr", query_start_loc_ptr, grid_x + 1),
      check.rows<int32_t>("all_token_ids_ptr", all_token_ids_ptr, all_token_ids_stride,
                          0),
      all_token_ids_stride,
      check.flat<int32_t>("total_len_ptr", total_len_ptr, 0),
      grid_x};
  if (checks_indices()) {
    const int64_t rows =
        std::min({num_computed_tokens_ptr.numel(), last_sampled_tokens_ptr.numel(),
                  all_token_ids_ptr.size(0), total_len_ptr.numel(),
                  output_bin_counts_ptr ? output_bin_counts_ptr->size(0) : INT64_MAX});
    check_indices(check, args, rows, sampled_tokens_ptr.size(-1),
                  output_bin_counts_ptr ? output_bin_counts_ptr->size(-1) : 0);
  }
  kLaunch(args);
}

void on_host(const PreparePrefillInputs& a) {
  launch_on_host(host::prepare_prefill_inputs, a, a.num_reqs, kElementsPerRequest);
}
void on_host(const PreparePosSeqLens& a) {
  launch_on_host(host::prepare_pos_seq_lens, a, a.num_columns, kElementsPerRequest);
}
void on_host(const CombineSampledAndDraftTokens& a) {
  launch_on_host(host::combine_sampled_and_draft_tokens, a, a.num_reqs,
                 kElementsPerRequest);
}
void on_host(const GetNumSampledAndRejected& a) {
  launch_on_host(host::get_num_sampled_and_rejected, a, a.num_reqs,
                 kElementsPerRequest);
}
void on_host(const PostUpdate& a) {
  launch_on_host(host::post_update, a, a.num_reqs, kElementsPerRequest);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "prepare_prefill_inputs(Tensor(a!) input_ids_ptr, "
      "Tensor(b!) next_prefill_tokens_ptr, Tensor idx_mapping_ptr, "
      "Tensor query_start_loc_ptr, Tensor all_token_ids_ptr, int all_token_ids_stride, "
      "Tensor prefill_lens_ptr, Tensor num_computed_tokens_ptr, int grid_x) -> ()");
  m.def(
      "prepare_pos_seq_lens(Tensor(a!) pos_ptr, Tensor(b!) seq_lens_ptr, "
      "Tensor idx_mapping_ptr, Tensor query_start_loc_ptr, "
      "Tensor num_computed_tokens_ptr, int max_num_reqs, int grid_x) -> ()");
  m.def(
      "combine_sampled_and_draft_tokens(Tensor(a!) input_ids_ptr, "
      "Tensor idx_mapping_ptr, Tensor last_sampled_tokens_ptr, "
      "Tensor query_start_loc_ptr, Tensor seq_lens_ptr, Tensor prefill_len_ptr, "
      "Tensor draft_tokens_ptr, int draft_tokens_stride, Tensor cu_num_logits_ptr, "
      "Tensor(b!) logits_indices_ptr, int NUM_NEW_SAMPLED_TOKENS, int grid_x) -> ()");
  m.def(
      "get_num_sampled_and_rejected(Tensor(a!) num_sampled_ptr, "
      "Tensor(b!) num_rejected_ptr, Tensor seq_lens_ptr, Tensor cu_num_logits_ptr, "
      "Tensor idx_mapping_ptr, Tensor prefill_len_ptr, int grid_x) -> ()");
  m.def(
      "post_update(Tensor idx_mapping_ptr, Tensor(a!) num_computed_tokens_ptr, "
      "Tensor(b!) last_sampled_tokens_ptr, Tensor(c!)? output_bin_counts_ptr, "
      "int output_bin_counts_stride, Tensor sampled_tokens_ptr, "
      "int sampled_tokens_stride, Tensor num_sampled_ptr, Tensor num_rejected_ptr, "
      "Tensor? query_start_loc_ptr, Tensor(d!) all_token_ids_ptr, "
      "int all_token_ids_stride, Tensor(e!) total_len_ptr, int grid_x) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("prepare_prefill_inputs", &prepare_prefill_inputs<on_host>);
  m.impl("prepare_pos_seq_lens", &prepare_pos_seq_lens<on_host>);
  m.impl("combine_sampled_and_draft_tokens",
         &combine_sampled_and_draft_tokens<on_host>);
  m.impl("get_num_sampled_and_rejected", &get_num_sampled_and_rejected<on_host>);
  m.impl("post_update", &post_update<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("prepare_prefill_inputs", &prepare_prefill_inputs<on_xpu>);
  m.impl("prepare_pos_seq_lens", &prepare_pos_seq_lens<on_xpu>);
  m.impl("combine_sampled_and_draft_tokens", &combine_sampled_and_draft_tokens<on_xpu>);
  m.impl("get_num_sampled_and_rejected", &get_num_sampled_and_rejected<on_xpu>);
  m.impl("post_update", &post_update<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("prepare_prefill_inputs", nothing_to_infer());
  m.impl("prepare_pos_seq_lens", nothing_to_infer());
  m.impl("combine_sampled_and_draft_tokens", nothing_to_infer());
  m.impl("get_num_sampled_and_rejected", nothing_to_infer());
  m.impl("post_update", nothing_to_infer());
}

}  // namespace vllm_kunlun
