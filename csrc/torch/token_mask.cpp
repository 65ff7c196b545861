// SPDX-License-Identifier: Apache-2.0
#include "contracts/token_mask.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"
#include "torch/rows.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

template <void (*kLaunch)(const Bias&)>
void bias(const Tensor& logits_ptr, int64_t logits_stride, int64_t vocab_size,
          const Tensor& expanded_idx_mapping_ptr,
          const Tensor& num_allowed_token_ids_ptr, const Tensor& allowed_token_ids_ptr,
          int64_t allowed_token_ids_stride, const Tensor& num_logit_bias_ptr,
          const Tensor& bias_token_ids_ptr, int64_t bias_token_ids_stride,
          const Tensor& bias_ptr, int64_t bias_stride, const Tensor& pos_ptr,
          const Tensor& min_lens_ptr, const Tensor& num_stop_token_ids_ptr,
          const Tensor& stop_token_ids_ptr, int64_t stop_token_ids_stride,
          int64_t grid_x) {
  const OpCheck check("bias", logits_ptr);
  check.columns("logits_ptr", logits_ptr, vocab_size);
  check.columns("allowed_token_ids_ptr", allowed_token_ids_ptr, 0);
  check.columns("bias_token_ids_ptr", bias_token_ids_ptr, 0);
  check.columns("bias_ptr", bias_ptr, bias_token_ids_ptr.size(-1));
  check.columns("stop_token_ids_ptr", stop_token_ids_ptr, 0);
  const int64_t max_num_reqs = min_lens_ptr.numel();
  const int32_t* requests =
      requests_of_rows(check, expanded_idx_mapping_ptr, grid_x, max_num_reqs);
  const Bias args{
      check.rows<float>("logits_ptr", logits_ptr, logits_stride, grid_x),
      logits_stride,
      vocab_size,
      requests,
      list_lengths(check, "num_allowed_token_ids_ptr", num_allowed_token_ids_ptr,
                   requests, grid_x, allowed_token_ids_ptr.size(-1)),
      check.rows<const int32_t>("allowed_token_ids_ptr", allowed_token_ids_ptr,
                                allowed_token_ids_stride, max_num_reqs),
      allowed_token_ids_stride,
      list_lengths(check, "num_logit_bias_ptr", num_logit_bias_ptr, requests, grid_x,
                   bias_token_ids_ptr.size(-1)),
      check.rows<const int32_t>("bias_token_ids_ptr", bias_token_ids_ptr,
                                bias_token_ids_stride, max_num_reqs),
      bias_token_ids_stride,
      check.rows<const float>("bias_ptr", bias_ptr, bias_stride, max_num_reqs),
      bias_stride,
      check.flat<const int64_t>("pos_ptr", pos_ptr, grid_x),
      check.flat<const int32_t>("min_lens_ptr", min_lens_ptr, 0),
      list_lengths(check, "num_stop_token_ids_ptr", num_stop_token_ids_ptr, requests,
                   grid_x, stop_token_ids_ptr.size(-1)),
      check.rows<const int32_t>("stop_token_ids_ptr", stop_token_ids_ptr,
                                stop_token_ids_stride, max_num_reqs),
      stop_token_ids_stride,
      grid_x};
  kLaunch(args);
}

void on_host(const Bias& a) { launch_on_host(host::bias, a, a.num_rows, a.vocab_size); }

void check_indices(const OpCheck& check, const BadWords& a, int64_t num_tokens,
                   int64_t num_offsets, int64_t max_len) {
  for (int64_t i = 0; i < a.num_rows; ++i) {
    const int64_t req = a.expanded_idx_mapping[i];
    const int64_t num_words = a.num_bad_words[req];
    check.index("num_bad_words_ptr", req, num_words, 0, num_offsets);
    check.index("total_len_ptr", req, a.total_len[req], 0, max_len + 1);
    check.index("prompt_len_ptr", req, a.prompt_len[req], 0,
                a.total_len[req] + int64_t{1});
    int64_t begin = 0;
    for (int64_t w = 0; num_words > 0 && w <= num_words; ++w) {
      const int64_t at = req * a.bad_word_offsets_stride + w;
      check.index("bad_word_offsets_ptr", at, a.bad_word_offsets[at], begin,
                  num_tokens + 1);
      begin = a.bad_word_offsets[at];
    }
  }
}

template <void (*kLaunch)(const BadWords&)>
void bad_words(const Tensor& logits_ptr, int64_t logits_stride,
               const Tensor& expanded_idx_mapping_ptr,
               const Tensor& bad_word_token_ids_ptr, int64_t bad_word_token_ids_stride,
               const Tensor& bad_word_offsets_ptr, int64_t bad_word_offsets_stride,
               const Tensor& num_bad_words_ptr, const Tensor& all_token_ids_ptr,
               int64_t all_token_ids_stride, const Tensor& prompt_len_ptr,
               const Tensor& total_len_ptr, const Tensor& input_ids_ptr,
               const Tensor& expanded_local_pos_ptr, int64_t grid_x, int64_t grid_y) {
  const OpCheck check("bad_words", logits_ptr);
  check.columns("logits_ptr", logits_ptr, 0);
  check.columns("bad_word_token_ids_ptr", bad_word_token_ids_ptr, 0);
  check.columns("bad_word_offsets_ptr", bad_word_offsets_ptr, 1);
  check.columns("all_token_ids_ptr", all_token_ids_ptr, 0);
  const int64_t max_num_reqs = num_bad_words_ptr.numel();
  const BadWords args{
      check.rows<float>("logits_ptr", logits_ptr, logits_stride, grid_x),
      logits_stride,
      logits_ptr.size(-1),
      requests_of_rows(check, expanded_idx_mapping_ptr, grid_x, max_num_reqs),
      check.rows<const int32_t>("bad_word_token_ids_ptr", bad_word_token_ids_ptr,
                                bad_word_token_ids_stride, max_num_reqs),
      bad_word_token_ids_stride,
      check.rows<const int32_t>("bad_word_offsets_ptr", bad_word_offsets_ptr,
                                bad_word_offsets_stride, max_num_reqs),
      bad_word_offsets_stride,
      check.flat<const int32_t>("num_bad_words_ptr", num_bad_words_ptr, 0),
      check.rows<const int32_t>("all_token_ids_ptr", all_token_ids_ptr,
                                all_token_ids_stride, max_num_reqs),
      all_token_ids_stride,
      check.flat<const int32_t>("prompt_len_ptr", prompt_len_ptr, max_num_reqs),
      check.flat<const int32_t>("total_len_ptr", total_len_ptr, max_num_reqs),
      check.flat<const int32_t>("input_ids_ptr", input_ids_ptr, grid_x),
      places_of_rows(check, expanded_local_pos_ptr, grid_x),
      grid_x,
      grid_y};
  if (checks_indices()) {
    check_indices(check, args, bad_word_token_ids_ptr.size(-1),
                  bad_word_offsets_ptr.size(-1), all_token_ids_ptr.size(-1));
  }
  kLaunch(args);
}

void on_host(const BadWords& a) {
  launch_on_host(host::bad_words, a, a.num_rows, a.max_num_words * 8);
}

template <void (*kLaunch)(const ApplyGrammarBitmask&)>
void apply_grammar_bitmask(const Tensor& logits_ptr, int64_t logits_stride,
                           const Tensor& logits_indices_ptr, const Tensor& bitmask_ptr,
                           int64_t bitmask_stride, int64_t vocab_size, int64_t grid_x) {
  const OpCheck check("apply_grammar_bitmask", logits_ptr);
  check.columns("logits_ptr", logits_ptr, vocab_size);
  check.columns("bitmask_ptr", bitmask_ptr, 0);
  check.check_rows("logits_ptr", logits_ptr, logits_stride, 0);
  const ApplyGrammarBitmask args{
      logits_ptr.mutable_data_ptr(),
      check.float_type("logits_ptr", logits_ptr),
      logits_stride,
      row_list(check, "logits_indices_ptr", logits_indices_ptr, grid_x,
               logits_ptr.size(0)),
      check.rows<const int32_t>("bitmask_ptr", bitmask_ptr, bitmask_stride, grid_x),
      bitmask_stride,
      bitmask_ptr.size(-1),
      vocab_size,
      grid_x};
  kLaunch(args);
}

void on_host(const ApplyGrammarBitmask& a) {
  launch_on_host(host::apply_grammar_bitmask, a, a.num_masks, a.vocab_size);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "bias(Tensor(a!) logits_ptr, int logits_stride, int vocab_size, "
      "Tensor expanded_idx_mapping_ptr, Tensor num_allowed_token_ids_ptr, "
      "Tensor allowed_token_ids_ptr, int allowed_token_ids_stride, "
      "Tensor num_logit_bias_ptr, Tensor bias_token_ids_ptr, "
      "int bias_token_ids_stride, Tensor bias_ptr, int bias_stride, Tensor pos_ptr, "
      "Tensor min_lens_ptr, Tensor num_stop_token_ids_ptr, Tensor stop_token_ids_ptr, "
      "int stop_token_ids_stride, int grid_x) -> ()");
  m.def(
      "bad_words(Tensor(a!) logits_ptr, int logits_stride, "
      "Tensor expanded_idx_mapping_ptr, Tensor bad_word_token_ids_ptr, "
      "int bad_word_token_ids_stride, Tensor bad_word_offsets_ptr, "
      "int bad_word_offsets_stride, Tensor num_bad_words_ptr, "
      "Tensor all_token_ids_ptr, int all_token_ids_stride, Tensor prompt_len_ptr, "
      "Tensor total_len_ptr, Tensor input_ids_ptr, Tensor expanded_local_pos_ptr, "
      "int grid_x, int grid_y) -> ()");
  m.def(
      "apply_grammar_bitmask(Tensor(a!) logits_ptr, int logits_stride, "
      "Tensor logits_indices_ptr, Tensor bitmask_ptr, int bitmask_stride, "
      "int vocab_size, int grid_x) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("bias", &bias<on_host>);
  m.impl("bad_words", &bad_words<on_host>);
  m.impl("apply_grammar_bitmask", &apply_grammar_bitmask<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("bias", &bias<on_xpu>);
  m.impl("bad_words", &bad_words<on_xpu>);
  m.impl("apply_grammar_bitmask", &apply_grammar_bitmask<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("bias", nothing_to_infer());
  m.impl("bad_words", nothing_to_infer());
  m.impl("apply_grammar_bitmask", nothing_to_infer());
}

}  // namespace vllm_kunlun
