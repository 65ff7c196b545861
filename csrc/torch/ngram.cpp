// SPDX-License-Identifier: Apache-2.0
#include "contracts/ngram.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

SampledStep sampled_step(const OpCheck& check, const Tensor& idx_mapping,
                         const Tensor& query_start_loc, const Tensor& seq_lens,
                         const Tensor& prefill_len, const Tensor& num_sampled,
                         const Tensor& all_token_ids, const Tensor& total_len,
                         int64_t max_num_reqs) {
  const int64_t num_reqs = idx_mapping.numel();
  check.columns("all_token_ids", all_token_ids, 1);
  const int64_t stride = all_token_ids.stride(0);
  return {
      check.flat<const int32_t>("idx_mapping", idx_mapping, 0),
      check.flat<const int32_t>("query_start_loc", query_start_loc, num_reqs + 1),
      check.flat<const int32_t>("seq_lens", seq_lens, num_reqs),
      check.flat<const int32_t>("prefill_len", prefill_len, max_num_reqs),
      check.flat<const int32_t>("num_sampled", num_sampled, num_reqs),
      check.rows<const int32_t>("all_token_ids", all_token_ids, stride, max_num_reqs),
      stride,
      check.flat<const int32_t>("total_len", total_len, max_num_reqs),
      num_reqs};
}

void check_indices(const OpCheck& check, const SampledStep& s, int64_t max_num_reqs,
                   int64_t max_model_len) {
  for (int64_t i = 0; i < s.num_reqs; ++i) {
    const int64_t req = s.idx_mapping[i];
    check.index("idx_mapping", i, req, 0, max_num_reqs);
    if (s.num_sampled[i] <= 0) continue;
    check.index("total_len", req, s.total_len[req], 1, max_model_len + 1);
  }
}

template <void (*kLaunch)(const NgramDraft&)>
void ngram_draft(const Tensor& draft_tokens, const Tensor& num_drafts,
                 const Tensor& found, const OptionalTensor& index,
                 const OptionalTensor& indexed_len, const Tensor& idx_mapping,
                 const Tensor& query_start_loc, const Tensor& seq_lens,
                 const Tensor& prefill_len, const Tensor& num_sampled,
                 const Tensor& all_token_ids, const Tensor& total_len, int64_t min_len,
                 int64_t max_len, int64_t max_model_len) {
  const OpCheck check("ngram_draft", draft_tokens);
  check.columns("draft_tokens", draft_tokens, 1);
  const int64_t max_num_reqs = draft_tokens.size(0);
  const int64_t num_steps = draft_tokens.size(1);
  check.in_range("min_len", min_len, 1, kLongestNgram + 1);
  check.in_range("max_len", max_len, min_len, kLongestNgram + 1);
  check.columns("all_token_ids", all_token_ids, max_model_len);
  const int64_t num_lens = max_len - min_len + 1;
  if (index && index->dim() != 4) {
    check.fail("index", "of 4 dimensions", "of " + std::to_string(index->dim()));
  }
  const int64_t index_size = index ? index->size(2) : 0;
  if (index) check.at_least("index.size(2)", index_size, max_model_len + 1);
  const NgramDraft args{
      sampled_step(check, idx_mapping, query_start_loc, seq_lens, prefill_len,
                   num_sampled, all_token_ids, total_len, max_num_reqs),
      check.rows<int64_t>("draft_tokens", draft_tokens, num_steps, 0),
      num_steps,
      check.flat<int32_t>("num_drafts", num_drafts, max_num_reqs),
      reinterpret_cast<Found*>(check.flat<int32_t>("found", found, max_num_reqs * 2)),
      check.flat<int32_t>("index", index, max_num_reqs * num_lens * index_size * 2),
      check.flat<int32_t>("indexed_len", indexed_len, index ? max_num_reqs : 0),
      index_size,
      min_len,
      max_len,
      num_steps,
      max_model_len};
  if (index && !indexed_len) check.fail("indexed_len", "given with index", "None");
  if (checks_indices()) check_indices(check, args.step, max_num_reqs, max_model_len);
  kLaunch(args);
}

void on_host(const NgramDraft& a) {
  // A search touches all tokens of a request, which only the device knows.
  const int64_t elements = a.index == nullptr ? a.max_model_len : 1024;
  launch_on_host(host::ngram_draft, a, a.step.num_reqs, elements);
}

template <void (*kLaunch)(const AdaptDraftLength&)>
void adapt_draft_length(const Tensor& num_drafts, const Tensor& trials,
                        const Tensor& own, const Tensor& pool, const Tensor& chance,
                        const Tensor& draft_tokens, const Tensor& found,
                        const Tensor& idx_mapping, const Tensor& query_start_loc,
                        const Tensor& seq_lens, const Tensor& prefill_len,
                        const Tensor& num_sampled, const Tensor& all_token_ids,
                        const Tensor& total_len, double decay, double pool_decay,
                        double pool_weight, double verify_cost, int64_t free_rows) {
  const OpCheck check("adapt_draft_length", num_drafts);
  check.columns("draft_tokens", draft_tokens, 1);
  const int64_t max_num_reqs = draft_tokens.size(0);
  const int64_t num_steps = draft_tokens.size(1);
  const AdaptDraftLength args{
      sampled_step(check, idx_mapping, query_start_loc, seq_lens, prefill_len,
                   num_sampled, all_token_ids, total_len, max_num_reqs),
      check.flat<int32_t>("num_drafts", num_drafts, max_num_reqs),
      check.flat<int32_t>("trials", trials, max_num_reqs * (kTrialNumbers + num_steps)),
      check.flat<float>("own", own, max_num_reqs * kAgreements * 2),
      check.flat<float>("pool", pool, kLengthClasses * kAgreements * 2),
      check.flat<float>("chance", chance, idx_mapping.numel() * num_steps),
      check.rows<const int64_t>("draft_tokens", draft_tokens, num_steps, 0),
      num_steps,
      reinterpret_cast<const Found*>(
          check.flat<const int32_t>("found", found, max_num_reqs * 2)),
      num_steps,
      static_cast<float>(decay),
      static_cast<float>(pool_decay),
      static_cast<float>(pool_weight),
      static_cast<float>(verify_cost),
      free_rows};
  if (checks_indices()) {
    check_indices(check, args.step, max_num_reqs, all_token_ids.size(1));
    for (int64_t i = 0; i < args.step.num_reqs; ++i) {
      const int64_t req = args.step.idx_mapping[i];
      check.index("num_drafts", req, args.num_drafts[req], 0, num_steps + 1);
      if (args.num_drafts[req] == 0) continue;
      check.at_least("found", args.found[req].len, 1);
    }
  }
  kLaunch(args);
}

void on_host(const AdaptDraftLength& a) {
  if (!simulated(a)) host::adapt_draft_length(a);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "ngram_draft(Tensor(a!) draft_tokens, Tensor(b!) num_drafts, "
      "Tensor(c!) found, Tensor(d!)? index, Tensor(e!)? indexed_len, "
      "Tensor idx_mapping, Tensor query_start_loc, Tensor seq_lens, "
      "Tensor prefill_len, Tensor num_sampled, Tensor all_token_ids, "
      "Tensor total_len, int min_len, int max_len, int max_model_len) -> ()");
  m.def(
      "adapt_draft_length(Tensor(a!) num_drafts, Tensor(b!) trials, "
      "Tensor(c!) own, Tensor(d!) pool, Tensor(e!) chance, "
      "Tensor draft_tokens, Tensor found, Tensor idx_mapping, "
      "Tensor query_start_loc, Tensor seq_lens, Tensor prefill_len, "
      "Tensor num_sampled, Tensor all_token_ids, Tensor total_len, "
      "float decay, float pool_decay, float pool_weight, "
      "float verify_cost, int free_rows) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("ngram_draft", &ngram_draft<on_host>);
  m.impl("adapt_draft_length", &adapt_draft_length<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("ngram_draft", &ngram_draft<on_xpu>);
  m.impl("adapt_draft_length", &adapt_draft_length<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("ngram_draft", nothing_to_infer());
  m.impl("adapt_draft_length", nothing_to_infer());
}

}  // namespace vllm_kunlun
