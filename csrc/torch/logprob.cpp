// SPDX-License-Identifier: Apache-2.0
#include "contracts/logprob.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"
#include "torch/rows.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

template <void (*kLaunch)(const TopkLogSoftmax&)>
void topk_log_softmax(const Tensor& output_ptr, const Tensor& logits_ptr,
                      int64_t logits_stride, const Tensor& topk_ids_ptr, int64_t topk,
                      int64_t vocab_size, int64_t grid_x) {
  const OpCheck check("topk_log_softmax", logits_ptr);
  check.at_least("topk", topk, 0);
  check.columns("logits_ptr", logits_ptr, vocab_size);
  const TopkLogSoftmax args{
      check.flat<float>("output_ptr", output_ptr, grid_x * topk),
      check.float_rows("logits_ptr", logits_ptr, logits_stride, grid_x),
      check.float_type("logits_ptr", logits_ptr),
      logits_stride,
      check.flat<const int64_t>("topk_ids_ptr", topk_ids_ptr, grid_x * topk),
      topk,
      vocab_size,
      grid_x};
  kLaunch(args);
}

void on_host(const TopkLogSoftmax& a) {
  launch_on_host(host::topk_log_softmax, a, a.num_rows, a.vocab_size + a.topk);
}

template <void (*kLaunch)(const Ranks&)>
void ranks(const Tensor& output_ptr, const Tensor& logits_ptr, int64_t logits_stride,
           const Tensor& token_ids_ptr, int64_t vocab_size, int64_t grid_x) {
  const OpCheck check("ranks", logits_ptr);
  check.columns("logits_ptr", logits_ptr, vocab_size);
  const Ranks args{check.flat<int64_t>("output_ptr", output_ptr, grid_x),
                   check.float_rows("logits_ptr", logits_ptr, logits_stride, grid_x),
                   check.float_type("logits_ptr", logits_ptr),
                   logits_stride,
                   check.flat<const int64_t>("token_ids_ptr", token_ids_ptr, grid_x),
                   vocab_size,
                   grid_x};
  kLaunch(args);
}

void on_host(const Ranks& a) {
  launch_on_host(host::ranks, a, a.num_rows, a.vocab_size);
}

template <void (*kLaunch)(const FillLogprobTokenIds&)>
void fill_logprob_token_ids(
    const Tensor& out_token_ids_ptr, int64_t out_token_ids_stride,
    const Tensor& out_valid_mask_ptr, int64_t out_valid_mask_stride,
    const Tensor& sampled_token_ids_ptr, const Tensor& topk_indices_ptr,
    int64_t topk_indices_stride, const Tensor& expanded_idx_mapping_ptr,
    const Tensor& num_per_req_token_ids_ptr, const Tensor& per_req_token_ids_ptr,
    int64_t per_req_token_ids_stride, int64_t num_topk, int64_t grid_x) {
  const OpCheck check("fill_logprob_token_ids", out_token_ids_ptr);
  check.at_least("NUM_TOPK", num_topk, 0);
  check.columns("out_token_ids_ptr", out_token_ids_ptr, num_topk + 1);
  check.columns("out_valid_mask_ptr", out_valid_mask_ptr, out_token_ids_ptr.size(-1));
  check.columns("per_req_token_ids_ptr", per_req_token_ids_ptr, 0);
  // Without top-k upstream passes any tensor in its place.
  const int64_t topk_rows = num_topk > 0 ? grid_x : 0;
  check.columns("topk_indices_ptr", topk_indices_ptr, num_topk);
  const int64_t max_num_reqs = num_per_req_token_ids_ptr.numel();
  const int32_t* requests =
      requests_of_rows(check, expanded_idx_mapping_ptr, grid_x, max_num_reqs);
  const int64_t room =
      std::min(out_token_ids_ptr.size(-1) - 1, per_req_token_ids_ptr.size(-1));
  const FillLogprobTokenIds args{
      check.rows<int64_t>("out_token_ids_ptr", out_token_ids_ptr, out_token_ids_stride,
                          grid_x),
      out_token_ids_stride,
      check.rows<bool>("out_valid_mask_ptr", out_valid_mask_ptr, out_valid_mask_stride,
                       grid_x),
      out_valid_mask_stride,
      check.flat<const int64_t>("sampled_token_ids_ptr", sampled_token_ids_ptr, grid_x),
      check.rows<const int32_t>("topk_indices_ptr", topk_indices_ptr,
                                topk_indices_stride, topk_rows),
      topk_indices_stride,
      requests,
      list_lengths(check, "num_per_req_token_ids_ptr", num_per_req_token_ids_ptr,
                   requests, grid_x, room),
      check.rows<const int32_t>("per_req_token_ids_ptr", per_req_token_ids_ptr,
                                per_req_token_ids_stride, max_num_reqs),
      per_req_token_ids_stride,
      num_topk,
      grid_x};
  kLaunch(args);
}

void on_host(const FillLogprobTokenIds& a) {
  launch_on_host(host::fill_logprob_token_ids, a, a.num_rows, a.topk + 1);
}

template <void (*kLaunch)(const PromptLogprobsTokenIds&)>
void prompt_logprobs_token_ids(const Tensor& prompt_logprobs_token_ids_ptr,
                               const Tensor& query_start_loc_ptr,
                               const Tensor& idx_mapping_ptr,
                               const Tensor& num_computed_tokens_ptr,
                               const Tensor& all_token_ids_ptr,
                               int64_t all_token_ids_stride, int64_t grid_x) {
  const OpCheck check("prompt_logprobs_token_ids", prompt_logprobs_token_ids_ptr);
  check.columns("all_token_ids_ptr", all_token_ids_ptr, 0);
  const int64_t max_num_reqs = num_computed_tokens_ptr.numel();
  const PromptLogprobsTokenIds args{
      check.flat<int64_t>("prompt_logprobs_token_ids_ptr",
                          prompt_logprobs_token_ids_ptr, 0),
      check.flat<const int32_t>("query_start_loc_ptr", query_start_loc_ptr, grid_x + 1),
      row_list(check, "idx_mapping_ptr", idx_mapping_ptr, grid_x, max_num_reqs),
      check.flat<const int32_t>("num_computed_tokens_ptr", num_computed_tokens_ptr, 0),
      check.rows<const int32_t>("all_token_ids_ptr", all_token_ids_ptr,
                                all_token_ids_stride, max_num_reqs),
      all_token_ids_stride,
      all_token_ids_ptr.size(-1),
      grid_x};
  if (checks_indices()) {
    const int64_t num_tokens = prompt_logprobs_token_ids_ptr.numel();
    int64_t first = 0;
    for (int64_t i = 0; i <= grid_x; ++i) {
      check.index("query_start_loc_ptr", i, args.query_start_loc[i], first,
                  num_tokens + 1);
      first = args.query_start_loc[i];
    }
    for (int64_t i = 0; i < grid_x; ++i) {
      const int64_t req = args.idx_mapping[i];
      check.index("num_computed_tokens_ptr", req, args.num_computed_tokens[req], 0,
                  args.max_len + 1);
    }
  }
  kLaunch(args);
}

void on_host(const PromptLogprobsTokenIds& a) {
  // A guess: a query's length is known only from a tensor.
  launch_on_host(host::prompt_logprobs_token_ids, a, a.num_reqs, 1024);
}

template <void (*kLaunch)(const NumNans&)>
void num_nans(const Tensor& logits_ptr, int64_t logits_stride,
              const Tensor& num_nans_ptr, int64_t vocab_size, int64_t grid_x) {
  const OpCheck check("num_nans", logits_ptr);
  check.columns("logits_ptr", logits_ptr, vocab_size);
  const NumNans args{check.float_rows("logits_ptr", logits_ptr, logits_stride, grid_x),
                     check.float_type("logits_ptr", logits_ptr),
                     logits_stride,
                     check.flat<int32_t>("num_nans_ptr", num_nans_ptr, grid_x),
                     vocab_size,
                     grid_x};
  kLaunch(args);
}

void on_host(const NumNans& a) {
  launch_on_host(host::num_nans, a, a.num_rows, a.vocab_size);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "topk_log_softmax(Tensor(a!) output_ptr, Tensor logits_ptr, int logits_stride, "
      "Tensor topk_ids_ptr, int topk, int vocab_size, int grid_x) -> ()");
  m.def(
      "ranks(Tensor(a!) output_ptr, Tensor logits_ptr, int logits_stride, "
      "Tensor token_ids_ptr, int vocab_size, int grid_x) -> ()");
  m.def(
      "fill_logprob_token_ids(Tensor(a!) out_token_ids_ptr, int out_token_ids_stride, "
      "Tensor(b!) out_valid_mask_ptr, int out_valid_mask_stride, "
      "Tensor sampled_token_ids_ptr, Tensor topk_indices_ptr, int topk_indices_stride, "
      "Tensor expanded_idx_mapping_ptr, Tensor num_per_req_token_ids_ptr, "
      "Tensor per_req_token_ids_ptr, int per_req_token_ids_stride, int NUM_TOPK, "
      "int grid_x) -> ()");
  m.def(
      "prompt_logprobs_token_ids(Tensor(a!) prompt_logprobs_token_ids_ptr, "
      "Tensor query_start_loc_ptr, Tensor idx_mapping_ptr, "
      "Tensor num_computed_tokens_ptr, Tensor all_token_ids_ptr, "
      "int all_token_ids_stride, int grid_x) -> ()");
  m.def(
      "num_nans(Tensor logits_ptr, int logits_stride, Tensor(a!) num_nans_ptr, "
      "int vocab_size, int grid_x) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("topk_log_softmax", &topk_log_softmax<on_host>);
  m.impl("ranks", &ranks<on_host>);
  m.impl("fill_logprob_token_ids", &fill_logprob_token_ids<on_host>);
  m.impl("prompt_logprobs_token_ids", &prompt_logprobs_token_ids<on_host>);
  m.impl("num_nans", &num_nans<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("topk_log_softmax", &topk_log_softmax<on_xpu>);
  m.impl("ranks", &ranks<on_xpu>);
  m.impl("fill_logprob_token_ids", &fill_logprob_token_ids<on_xpu>);
  m.impl("prompt_logprobs_token_ids", &prompt_logprobs_token_ids<on_xpu>);
  m.impl("num_nans", &num_nans<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("topk_log_softmax", nothing_to_infer());
  m.impl("ranks", nothing_to_infer());
  m.impl("fill_logprob_token_ids", nothing_to_infer());
  m.impl("prompt_logprobs_token_ids", nothing_to_infer());
  m.impl("num_nans", nothing_to_infer());
}

}  // namespace vllm_kunlun
