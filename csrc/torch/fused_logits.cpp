// SPDX-License-Identifier: Apache-2.0
#include "contracts/fused_logits.h"

#include <optional>

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"
#include "torch/rows.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

// The tables of state rows, of which each has a row for every request. Those of a group
// are given together or not at all.
class States {
 public:
  States(const OpCheck& check, const int32_t* requests, int64_t num_rows,
         int64_t max_num_reqs)
      : check_(check),
        requests_(requests),
        num_rows_(num_rows),
        max_num_reqs_(max_num_reqs) {}

  template <class T>
  const T* list(const char* name, const OptionalTensor& t) const {
    return check_.flat<const T>(name, given(name, t), max_num_reqs_);
  }

  template <class T>
  const T* table(const char* name, const OptionalTensor& t, int64_t width) const {
    check_.columns(name, given(name, t), width);
    return check_.rows<const T>(name, *t, t->stride(0), max_num_reqs_);
  }

  // The lengths of the lists that the rows of another table begin with.
  const int32_t* lengths(const char* name, const OptionalTensor& t,
                         const OptionalTensor& table) const {
    list<int32_t>(name, t);
    return list_lengths(check_, name, *t, requests_, num_rows_, table->size(-1));
  }

 private:
  const Tensor& given(const char* name, const OptionalTensor& t) const {
    if (!t) check_.fail(name, "a tensor", "None");
    return *t;
  }

  const OpCheck& check_;
  const int32_t* requests_;
  int64_t num_rows_;
  int64_t max_num_reqs_;
};

void check_bad_words(const OpCheck& check, const FusedLogits& a, int64_t num_tokens,
                     int64_t num_offsets, int64_t max_len) {
  const BadWords& b = *a.bad_words;
  for (int64_t row = 0; row < a.num_rows; ++row) {
    const int64_t req = a.expanded_idx_mapping[row];
    const int64_t num_words = b.num_bad_words[req];
    check.index("num_bad_words", req, num_words, 0, num_offsets);
    check.index("total_len", req, b.total_len[req], 0, max_len + 1);
    check.index("prompt_len", req, b.prompt_len[req], 0, b.total_len[req] + int64_t{1});
    int64_t begin = 0;
    for (int64_t w = 0; num_words > 0 && w <= num_words; ++w) {
      const int64_t at = req * b.bad_word_offsets_stride + w;
      check.index("bad_word_offsets", at, b.bad_word_offsets[at], begin,
                  num_tokens + 1);
      begin = b.bad_word_offsets[at];
    }
  }
}

// A row's place says where its request's first row is.
void check_places(const OpCheck& check, const FusedLogits& a) {
  for (int64_t row = 0; row < a.num_rows; ++row) {
    const int64_t place = a.expanded_local_pos[row];
    check.index("expanded_local_pos", row, place, 0, row + 1);
    const int64_t first = a.logits_indices[row - place];
    check.index("logits_indices", row, a.logits_indices[row], first + place,
                first + place + 1);
  }
}

template <void (*kLaunch)(const FusedLogits&)>
void fused_logits(
    const Tensor& out, const OptionalTensor& logits, const Tensor& expanded_idx_mapping,
    const Tensor& expanded_local_pos, const Tensor& logits_indices,
    const Tensor& input_ids, const Tensor& positions, const OptionalTensor& bitmask,
    const OptionalTensor& bitmask_rows, const OptionalTensor& num_allowed_token_ids,
    const OptionalTensor& allowed_token_ids, const OptionalTensor& num_logit_bias,
    const OptionalTensor& bias_token_ids, const OptionalTensor& logit_bias,
    const OptionalTensor& min_lens, const OptionalTensor& num_stop_token_ids,
    const OptionalTensor& stop_token_ids, const OptionalTensor& repetition_penalty,
    const OptionalTensor& frequency_penalty, const OptionalTensor& presence_penalty,
    const OptionalTensor& prompt_bin_mask, const OptionalTensor& output_bin_counts,
    const OptionalTensor& bad_word_token_ids, const OptionalTensor& bad_word_offsets,
    const OptionalTensor& num_bad_words, const OptionalTensor& all_token_ids,
    const OptionalTensor& prompt_len, const OptionalTensor& total_len,
    const Tensor& temperature, const Tensor& min_p) {
  const OpCheck check("fused_logits", out);
  check.columns("out", out, 0);
  const int64_t rows = out.size(0);
  const int64_t vocab_size = out.size(-1);
  const int64_t max_num_reqs = temperature.numel();
  FusedLogits args{};
  args.num_rows = rows;
  args.vocab_size = vocab_size;
  args.out = check.rows<float>("out", out, out.stride(0), rows);
  args.out_stride = out.stride(0);
  if (logits) {
    check.columns("logits", *logits, vocab_size);
    args.logits = check.float_rows("logits", *logits, logits->stride(0), rows);
    args.logits_type = check.float_type("logits", *logits);
    args.logits_stride = logits->stride(0);
  }
  args.expanded_idx_mapping =
      row_list(check, "expanded_idx_mapping", expanded_idx_mapping, rows, max_num_reqs);
  args.expanded_local_pos =
      check.flat<const int32_t>("expanded_local_pos", expanded_local_pos, rows);
  args.logits_indices = tokens_of_rows(check, logits_indices, rows,
                                       std::min(input_ids.numel(), positions.numel()));
  args.input_ids = check.flat<const int32_t>("input_ids", input_ids, 0);
  args.positions = check.flat<const int64_t>("positions", positions, 0);
  args.temperature = check.flat<const float>("temperature", temperature, 0);
  args.min_p = check.flat<const float>("min_p", min_p, max_num_reqs);
  if (checks_indices()) check_places(check, args);

  const States states(check, args.expanded_idx_mapping, rows, max_num_reqs);
  if (bitmask) {
    check.columns("bitmask", *bitmask, 0);
    args.bitmask =
        check.rows<const int32_t>("bitmask", *bitmask, bitmask->stride(0), 0);
    args.bitmask_stride = bitmask->stride(0);
    args.bitmask_width = bitmask->size(-1);
    if (!bitmask_rows) check.fail("bitmask_rows", "a tensor", "None");
    args.bitmask_rows = check.flat<const int32_t>("bitmask_rows", *bitmask_rows, rows);
    for (int64_t row = 0; checks_indices() && row < rows; ++row) {
      check.index("bitmask_rows", row, args.bitmask_rows[row], -1, bitmask->size(0));
    }
  }
  Bias bias{};
  if (num_allowed_token_ids) {
    bias.allowed_token_ids =
        states.table<int32_t>("allowed_token_ids", allowed_token_ids, 0);
    bias.allowed_token_ids_stride = allowed_token_ids->stride(0);
    bias.num_allowed_token_ids = states.lengths(
        "num_allowed_token_ids", num_allowed_token_ids, allowed_token_ids);
    bias.bias_token_ids = states.table<int32_t>("bias_token_ids", bias_token_ids, 0);
    bias.bias_token_ids_stride = bias_token_ids->stride(0);
    bias.bias = states.table<float>("logit_bias", logit_bias, bias_token_ids->size(-1));
    bias.bias_stride = logit_bias->stride(0);
    bias.num_logit_bias =
        states.lengths("num_logit_bias", num_logit_bias, bias_token_ids);
    bias.min_lens = states.list<int32_t>("min_lens", min_lens);
    bias.stop_token_ids = states.table<int32_t>("stop_token_ids", stop_token_ids, 0);
    bias.stop_token_ids_stride = stop_token_ids->stride(0);
    bias.num_stop_token_ids =
        states.lengths("num_stop_token_ids", num_stop_token_ids, stop_token_ids);
    args.bias = &bias;
  }
  Penalties penalties{};
  if (repetition_penalty) {
    penalties.repetition_penalty =
        states.list<float>("repetition_penalty", repetition_penalty);
    penalties.frequency_penalty =
        states.list<float>("frequency_penalty", frequency_penalty);
    penalties.presence_penalty =
        states.list<float>("presence_penalty", presence_penalty);
    penalties.prompt_bin_mask = states.table<int32_t>(
        "prompt_bin_mask", prompt_bin_mask, (vocab_size + 31) / 32);
    penalties.prompt_bin_mask_stride = prompt_bin_mask->stride(0);
    penalties.output_bin_counts =
        states.table<int32_t>("output_bin_counts", output_bin_counts, vocab_size);
    penalties.output_bin_counts_stride = output_bin_counts->stride(0);
    args.penalties = &penalties;
  }
  BadWords bad_words{};
  if (num_bad_words) {
    bad_words.max_num_words = INT64_MAX;
    bad_words.bad_word_token_ids =
        states.table<int32_t>("bad_word_token_ids", bad_word_token_ids, 0);
    bad_words.bad_word_token_ids_stride = bad_word_token_ids->stride(0);
    bad_words.bad_word_offsets =
        states.table<int32_t>("bad_word_offsets", bad_word_offsets, 1);
    bad_words.bad_word_offsets_stride = bad_word_offsets->stride(0);
    bad_words.num_bad_words = states.list<int32_t>("num_bad_words", num_bad_words);
    bad_words.all_token_ids = states.table<int32_t>("all_token_ids", all_token_ids, 0);
    bad_words.all_token_ids_stride = all_token_ids->stride(0);
    bad_words.prompt_len = states.list<int32_t>("prompt_len", prompt_len);
    bad_words.total_len = states.list<int32_t>("total_len", total_len);
    args.bad_words = &bad_words;
    if (checks_indices()) {
      check_bad_words(check, args, bad_word_token_ids->size(-1),
                      bad_word_offsets->size(-1), all_token_ids->size(-1));
    }
  }
  kLaunch(args);
}

void on_host(const FusedLogits& a) {
  launch_on_host(host::fused_logits, a, a.num_rows, a.vocab_size);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "fused_logits(Tensor(a!) out, Tensor? logits, Tensor expanded_idx_mapping, "
      "Tensor expanded_local_pos, Tensor logits_indices, Tensor input_ids, "
      "Tensor positions, *, Tensor? bitmask=None, Tensor? bitmask_rows=None, "
      "Tensor? num_allowed_token_ids=None, Tensor? allowed_token_ids=None, "
      "Tensor? num_logit_bias=None, Tensor? bias_token_ids=None, "
      "Tensor? logit_bias=None, Tensor? min_lens=None, "
      "Tensor? num_stop_token_ids=None, Tensor? stop_token_ids=None, "
      "Tensor? repetition_penalty=None, Tensor? frequency_penalty=None, "
      "Tensor? presence_penalty=None, Tensor? prompt_bin_mask=None, "
      "Tensor? output_bin_counts=None, Tensor? bad_word_token_ids=None, "
      "Tensor? bad_word_offsets=None, Tensor? num_bad_words=None, "
      "Tensor? all_token_ids=None, Tensor? prompt_len=None, Tensor? total_len=None, "
      "Tensor temperature, Tensor min_p) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("fused_logits", &fused_logits<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("fused_logits", &fused_logits<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) { m.impl("fused_logits", nothing_to_infer()); }

}  // namespace vllm_kunlun
