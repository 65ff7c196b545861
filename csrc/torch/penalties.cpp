// SPDX-License-Identifier: Apache-2.0
#include "contracts/penalties.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"
#include "torch/rows.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

int64_t mask_words(int64_t vocab_size) { return (vocab_size + 31) / 32; }

template <void (*kLaunch)(const Penalties&)>
void penalties(const Tensor& logits_ptr, int64_t logits_stride,
               const Tensor& expanded_idx_mapping_ptr, const Tensor& token_ids_ptr,
               const Tensor& expanded_local_pos_ptr,
               const Tensor& repetition_penalty_ptr,
               const Tensor& frequency_penalty_ptr, const Tensor& presence_penalty_ptr,
               const Tensor& prompt_bin_mask_ptr, int64_t prompt_bin_mask_stride,
               const Tensor& output_bin_counts_ptr, int64_t output_bin_counts_stride,
               int64_t vocab_size, int64_t block_size, int64_t grid_x, int64_t grid_y) {
  const OpCheck check("penalties", logits_ptr);
  check.at_least("BLOCK_SIZE", block_size, 32);
  if (block_size % 32 != 0) {
    check.fail("BLOCK_SIZE", "a multiple of 32", std::to_string(block_size));
  }
  check.columns("logits_ptr", logits_ptr, vocab_size);
  check.columns("prompt_bin_mask_ptr", prompt_bin_mask_ptr, mask_words(vocab_size));
  check.columns("output_bin_counts_ptr", output_bin_counts_ptr, vocab_size);
  const int64_t max_num_reqs = repetition_penalty_ptr.numel();
  const Penalties args{
      check.rows<float>("logits_ptr", logits_ptr, logits_stride, grid_x),
      logits_stride,
      requests_of_rows(check, expanded_idx_mapping_ptr, grid_x, max_num_reqs),
      check.flat<const int32_t>("token_ids_ptr", token_ids_ptr, grid_x),
      places_of_rows(check, expanded_local_pos_ptr, grid_x),
      check.flat<const float>("repetition_penalty_ptr", repetition_penalty_ptr, 0),
      check.flat<const float>("frequency_penalty_ptr", frequency_penalty_ptr,
                              max_num_reqs),
      check.flat<const float>("presence_penalty_ptr", presence_penalty_ptr,
                              max_num_reqs),
      check.rows<const int32_t>("prompt_bin_mask_ptr", prompt_bin_mask_ptr,
                                prompt_bin_mask_stride, max_num_reqs),
      prompt_bin_mask_stride,
      check.rows<const int32_t>("output_bin_counts_ptr", output_bin_counts_ptr,
                                output_bin_counts_stride, max_num_reqs),
      output_bin_counts_stride,
      vocab_size,
      block_size,
      grid_x,
      grid_y};
  kLaunch(args);
}

void on_host(const Penalties& a) {
  launch_on_host(host::penalties, a, a.num_rows * a.num_blocks,
                 std::min(a.block_size, a.vocab_size));
}

template <void (*kLaunch)(const BinCount&)>
void bincount(const Tensor& expanded_idx_mapping_ptr, const Tensor& all_token_ids_ptr,
              int64_t all_token_ids_stride, const Tensor& prompt_len_ptr,
              const Tensor& prefill_len_ptr, const Tensor& prompt_bin_mask_ptr,
              int64_t prompt_bin_mask_stride, const Tensor& output_bin_counts_ptr,
              int64_t output_bin_counts_stride, int64_t grid_x) {
  const OpCheck check("bincount", expanded_idx_mapping_ptr);
  check.columns("output_bin_counts_ptr", output_bin_counts_ptr, 0);
  check.columns("all_token_ids_ptr", all_token_ids_ptr, 0);
  const int64_t max_num_reqs = output_bin_counts_ptr.size(0);
  const int64_t vocab_size = output_bin_counts_ptr.size(-1);
  check.columns("prompt_bin_mask_ptr", prompt_bin_mask_ptr, mask_words(vocab_size));
  const BinCount args{
      requests_of_rows(check, expanded_idx_mapping_ptr, grid_x, max_num_reqs),
      check.rows<const int32_t>("all_token_ids_ptr", all_token_ids_ptr,
                                all_token_ids_stride, max_num_reqs),
      all_token_ids_stride,
      check.flat<const int32_t>("prompt_len_ptr", prompt_len_ptr, max_num_reqs),
      check.flat<const int32_t>("prefill_len_ptr", prefill_len_ptr, max_num_reqs),
      check.rows<int32_t>("prompt_bin_mask_ptr", prompt_bin_mask_ptr,
                          prompt_bin_mask_stride, max_num_reqs),
      prompt_bin_mask_stride,
      check.rows<int32_t>("output_bin_counts_ptr", output_bin_counts_ptr,
                          output_bin_counts_stride, max_num_reqs),
      output_bin_counts_stride,
      vocab_size,
      grid_x};
  if (checks_indices()) {
    for (int64_t i = 0; i < grid_x; ++i) {
      const int64_t req = args.expanded_idx_mapping[i];
      check.index("prefill_len_ptr", req, args.prefill_len[req], 0,
                  all_token_ids_ptr.size(-1) + 1);
      check.index("prompt_len_ptr", req, args.prompt_len[req], 0,
                  args.prefill_len[req] + int64_t{1});
    }
  }
  kLaunch(args);
}

void on_host(const BinCount& a) {
  // A guess: a prompt's length is known only from a tensor.
  launch_on_host(host::bincount, a, a.num_reqs, 1024);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "penalties(Tensor(a!) logits_ptr, int logits_stride, "
      "Tensor expanded_idx_mapping_ptr, Tensor token_ids_ptr, "
      "Tensor expanded_local_pos_ptr, Tensor repetition_penalty_ptr, "
      "Tensor frequency_penalty_ptr, Tensor presence_penalty_ptr, "
      "Tensor prompt_bin_mask_ptr, int prompt_bin_mask_stride, "
      "Tensor output_bin_counts_ptr, int output_bin_counts_stride, int vocab_size, "
      "int BLOCK_SIZE, int grid_x, int grid_y) -> ()");
  m.def(
      "bincount(Tensor expanded_idx_mapping_ptr, Tensor all_token_ids_ptr, "
      "int all_token_ids_stride, Tensor prompt_len_ptr, Tensor prefill_len_ptr, "
      "Tensor(a!) prompt_bin_mask_ptr, int prompt_bin_mask_stride, "
      "Tensor(b!) output_bin_counts_ptr, int output_bin_counts_stride, int grid_x) "
      "-> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("penalties", &penalties<on_host>);
  m.impl("bincount", &bincount<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("penalties", &penalties<on_xpu>);
  m.impl("bincount", &bincount<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("penalties", nothing_to_infer());
  m.impl("bincount", nothing_to_infer());
}

}  // namespace vllm_kunlun
