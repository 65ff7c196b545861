// SPDX-License-Identifier: Apache-2.0
#include "contracts/verify.h"

#include <algorithm>
#include <optional>

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"
#include "torch/rejection.h"
#include "torch/rows.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

// The blocks of a vocabulary that upstream's rejection_sample works in.
constexpr int64_t kStatsBlock = 8192;
constexpr int64_t kResampleBlock = 1024;

int64_t blocks_of(int64_t vocab_size, int64_t block) {
  return (vocab_size + block - 1) / block;
}

// Cuts lists of 8-byte elements or smaller ones out of a buffer; without a buffer it
// only counts.
class Workspace {
 public:
  explicit Workspace(uint8_t* data) : data_(data) {}

  template <class T>
  T* take(int64_t elements) {
    uint8_t* list = data_ == nullptr ? nullptr : data_ + bytes_;
    bytes_ += (elements * static_cast<int64_t>(sizeof(T)) + 7) / 8 * 8;
    return reinterpret_cast<T*>(list);
  }

  int64_t bytes() const { return bytes_; }

 private:
  uint8_t* data_;
  int64_t bytes_ = 0;
};

// What rejection_sample keeps between its phases.
struct Between {
  Rows<int64_t> target_argmax;
  Rows<float> target_max;
  Rows<float> target_sumexp;
  Rows<float> draft_max;
  Rows<float> draft_sumexp;
  float* cumulative_log_p;
  Rows<float> local_residual_mass;
  float* target_logsumexp;
  float* draft_logsumexp;
  Rows<int64_t> resampled;
  double* resampled_max;  // f32 without use_fp64
};

Between between(Workspace& w, int64_t num_logits, int64_t num_reqs,
                int64_t vocab_size) {
  const int64_t blocks = blocks_of(vocab_size, kStatsBlock);
  const int64_t resample_blocks = blocks_of(vocab_size, kResampleBlock);
  const auto floats = [&] {
    return Rows<float>{w.take<float>(num_logits * blocks), blocks};
  };
  Between b{};
  b.target_argmax = {w.take<int64_t>(num_logits * blocks), blocks};
  b.target_max = floats();
  b.target_sumexp = floats();
  b.draft_max = floats();
  b.draft_sumexp = floats();
  b.cumulative_log_p = w.take<float>(num_logits);
  b.local_residual_mass = floats();
  b.target_logsumexp = w.take<float>(num_reqs);
  b.draft_logsumexp = w.take<float>(num_reqs);
  b.resampled = {w.take<int64_t>(num_reqs * resample_blocks), resample_blocks};
  b.resampled_max = w.take<double>(num_reqs * resample_blocks);
  return b;
}

int64_t rejection_sample_workspace(int64_t num_logits, int64_t num_reqs,
                                   int64_t vocab_size) {
  Workspace w(nullptr);
  between(w, num_logits, num_reqs, vocab_size);
  return w.bytes();
}

// What both ops know of a batch.
struct Batch {
  GetNumSampledAndRejected counts;
  IntList draft_sampled;
  Rows<int64_t> sampled;
  int64_t num_logits;
};

Batch batch(const OpCheck& check, const Tensor& sampled, const Tensor& num_sampled,
            const Tensor& num_rejected, const Tensor& input_ids,
            const Tensor& logits_indices, const Tensor& cu_num_logits,
            const Tensor& idx_mapping, const Tensor& seq_lens,
            const Tensor& prefill_len, int64_t vocab_size) {
  check.columns("sampled", sampled, 1);
  const int64_t num_reqs = sampled.size(0);
  Batch b{};
  b.num_logits = logits_indices.numel();
  b.sampled = {check.rows<int64_t>("sampled", sampled, sampled.stride(0), num_reqs),
               sampled.stride(0)};
  b.counts = {
      check.flat<int32_t>("num_sampled", num_sampled, num_reqs),
      check.flat<int32_t>("num_rejected", num_rejected, num_reqs),
      check.flat<const int32_t>("seq_lens", seq_lens, num_reqs),
      check.flat<const int32_t>("cu_num_logits", cu_num_logits, num_reqs + 1),
      row_list(check, "idx_mapping", idx_mapping, num_reqs, prefill_len.numel()),
      check.flat<const int32_t>("prefill_len", prefill_len, 0),
      num_reqs};
  b.draft_sampled = {
      check.flat<const int32_t>("input_ids", input_ids, 0), false,
      tokens_of_rows(check, logits_indices, b.num_logits, input_ids.numel())};
  if (checks_indices()) {
    check_logit_rows(check, b.counts.cu_num_logits, num_reqs, b.num_logits);
    check_drafts(check, b.counts.cu_num_logits, b.draft_sampled, num_reqs,
                 sampled.size(-1) - 1, vocab_size);
  }
  return b;
}

IntList positions_of_rows(const OpCheck& check, const Tensor& positions,
                          const Tensor& logits_indices) {
  return {
      check.flat<const int64_t>("positions", positions, 0), true,
      tokens_of_rows(check, logits_indices, logits_indices.numel(), positions.numel())};
}

TargetLogits logits_of(const OpCheck& check, const Tensor& logits, int64_t num_logits,
                       int64_t vocab_size) {
  check.columns("logits", logits, vocab_size);
  return {check.float_rows("logits", logits, logits.stride(0), num_logits),
          check.float_type("logits", logits), logits.stride(0)};
}

VerifyGreedy equal_drafts(const OpCheck& check, const Tensor& sampled,
                          const Tensor& num_sampled, const Tensor& num_rejected,
                          const Tensor& logits, const Tensor& input_ids,
                          const Tensor& logits_indices, const Tensor& cu_num_logits,
                          const Tensor& idx_mapping, const Tensor& seq_lens,
                          const Tensor& prefill_len, int64_t vocab_size) {
  check.at_least("vocab_size", vocab_size, 1);
  // A draft that the drafter alone knows is never the target's token.
  const Batch b =
      batch(check, sampled, num_sampled, num_rejected, input_ids, logits_indices,
            cu_num_logits, idx_mapping, seq_lens, prefill_len, INT32_MAX);
  return {b.sampled, logits_of(check, logits, b.num_logits, vocab_size), vocab_size,
          b.draft_sampled, b.counts};
}

template <void (*kLaunch)(const VerifyGreedy&)>
void verify_greedy(const Tensor& sampled, const Tensor& num_sampled,
                   const Tensor& num_rejected, const Tensor& logits,
                   const Tensor& input_ids, const Tensor& logits_indices,
                   const Tensor& cu_num_logits, const Tensor& idx_mapping,
                   const Tensor& seq_lens, const Tensor& prefill_len,
                   int64_t vocab_size) {
  const OpCheck check("verify_greedy", logits);
  kLaunch(equal_drafts(check, sampled, num_sampled, num_rejected, logits, input_ids,
                       logits_indices, cu_num_logits, idx_mapping, seq_lens,
                       prefill_len, vocab_size));
}

template <void (*kLaunch)(const VerifyDrawn&)>
void verify_drawn(const Tensor& sampled, const Tensor& num_sampled,
                  const Tensor& num_rejected, const Tensor& logits,
                  const Tensor& input_ids, const Tensor& positions,
                  const Tensor& logits_indices, const Tensor& cu_num_logits,
                  const Tensor& idx_mapping, const Tensor& seq_lens,
                  const Tensor& prefill_len, const Tensor& temperature,
                  const Tensor& seeds, int64_t vocab_size, bool use_fp64) {
  const OpCheck check("verify_drawn", logits);
  const VerifyGreedy verify = equal_drafts(
      check, sampled, num_sampled, num_rejected, logits, input_ids, logits_indices,
      cu_num_logits, idx_mapping, seq_lens, prefill_len, vocab_size);
  if (checks_indices()) {
    row_list(check, "idx_mapping", idx_mapping, verify.counts.num_reqs,
             std::min(temperature.numel(), seeds.numel()));
  }
  kLaunch({verify, check.flat<const float>("temperature", temperature, 0),
           check.flat<const int64_t>("seeds", seeds, 0),
           positions_of_rows(check, positions, logits_indices), use_fp64});
}

int64_t rows_per_request(const VerifyGreedy& a) {
  const int64_t reqs = a.counts.num_reqs;
  return reqs > 0 ? a.counts.cu_num_logits[reqs] / reqs : 0;
}

void on_host(const VerifyGreedy& a) {
  launch_on_host(host::verify_greedy, a, a.counts.num_reqs,
                 rows_per_request(a) * a.vocab_size);
}

// A token's exponentials and its noise cost as much as several elements of plain work.
constexpr int64_t kElementsPerToken = 8;

void on_host(const VerifyDrawn& a) {
  launch_on_host(host::verify_drawn, a, a.verify.counts.num_reqs,
                 kElementsPerToken * rows_per_request(a.verify) * a.verify.vocab_size);
}

template <void (*kLaunch)(const RejectionSample&)>
void rejection_sample(const Tensor& sampled, const Tensor& num_sampled,
                      const Tensor& num_rejected, const Tensor& workspace,
                      const Tensor& logits, const OptionalTensor& drafts,
                      const Tensor& input_ids, const Tensor& positions,
                      const Tensor& logits_indices, const Tensor& cu_num_logits,
                      const Tensor& idx_mapping, const Tensor& expanded_idx_mapping,
                      const Tensor& expanded_local_pos, const Tensor& seq_lens,
                      const Tensor& prefill_len, const Tensor& temperature,
                      const Tensor& seeds, const OptionalTensor& rates,
                      int64_t num_speculative_steps, bool use_fp64,
                      bool use_block_verification) {
  const OpCheck check("rejection_sample", logits);
  check.columns("logits", logits, 1);
  check.columns("sampled", sampled, num_speculative_steps + 1);
  check.at_least("num_speculative_steps", num_speculative_steps, 0);
  if (use_block_verification && rates) {
    check.fail("synthetic_conditional_rates", "None with block verification",
               "a tensor");
  }
  int64_t vocab_size = logits.size(-1);
  if (drafts) vocab_size = std::min(vocab_size, drafts->size(-1));
  const Batch b =
      batch(check, sampled, num_sampled, num_rejected, input_ids, logits_indices,
            cu_num_logits, idx_mapping, seq_lens, prefill_len, vocab_size);
  const int64_t reqs = b.counts.num_reqs;
  const TargetLogits target = logits_of(check, logits, b.num_logits, vocab_size);
  const auto draft_stride = [&](int64_t d) {
    return drafts && drafts->dim() == 3 ? drafts->stride(d) : 0;
  };
  const DraftLogits draft =
      draft_logits(check, drafts, draft_stride(0), draft_stride(1), vocab_size,
                   drafts.has_value(), "draft_logits");
  if (drafts && drafts->size(1) < num_speculative_steps) {
    check.fail("draft_logits",
               "of at least " + std::to_string(num_speculative_steps) + " steps",
               "of " + std::to_string(drafts->size(1)));
  }
  const int64_t num_states = std::min(
      {temperature.numel(), seeds.numel(), drafts ? drafts->size(0) : INT64_MAX});
  if (checks_indices()) {
    row_list(check, "idx_mapping", idx_mapping, reqs, num_states);
  }
  const int32_t* expanded = row_list(check, "expanded_idx_mapping",
                                     expanded_idx_mapping, b.num_logits, num_states);
  const auto* places =
      check.flat<const int32_t>("expanded_local_pos", expanded_local_pos, b.num_logits);
  const IntList pos = positions_of_rows(check, positions, logits_indices);
  const auto* temp = check.flat<const float>("temperature", temperature, 0);
  const auto* seed = check.flat<const int64_t>("seeds", seeds, 0);
  const float* rates_data = check.flat<const float>("synthetic_conditional_rates",
                                                    rates, num_speculative_steps);
  Workspace w(
      check.flat<uint8_t>("workspace", workspace,
                          rejection_sample_workspace(b.num_logits, reqs, vocab_size)));
  const Between m = between(w, b.num_logits, reqs, vocab_size);

  const int64_t blocks = m.target_max.stride;
  const int64_t resample_blocks = m.resampled.stride;
  const auto read = [](const auto& rows) {
    return Rows<const std::remove_pointer_t<decltype(rows.data)>>{rows.data,
                                                                  rows.stride};
  };
  const LogitsStats stats{read(m.target_max), read(m.target_sumexp), read(m.draft_max),
                          read(m.draft_sumexp), blocks};
  const float* log_p = use_block_verification ? m.cumulative_log_p : nullptr;
  const int32_t* ends = b.counts.cu_num_logits;
  const int32_t* states = b.counts.idx_mapping;
  RejectionSample args{};
  args.use_block_verification = use_block_verification;
  args.stats = {m.target_argmax, m.target_max, m.target_sumexp, m.draft_max,
                m.draft_sumexp,  target,       draft,           expanded,
                places,          temp,         vocab_size,      num_speculative_steps,
                kStatsBlock,     b.num_logits, blocks};
  args.cumulative_log_p = {m.cumulative_log_p,
                           target,
                           stats,
                           b.draft_sampled,
                           draft,
                           ends,
                           states,
                           temp,
                           reqs};
  args.local_residual_mass = {m.local_residual_mass,
                              m.cumulative_log_p,
                              target,
                              stats,
                              draft,
                              expanded,
                              places,
                              temp,
                              vocab_size,
                              num_speculative_steps,
                              kStatsBlock,
                              b.num_logits,
                              blocks};
  args.rejection = {b.sampled,
                    b.counts.num_sampled,
                    m.target_logsumexp,
                    m.draft_logsumexp,
                    target,
                    read(m.target_argmax),
                    stats,
                    b.draft_sampled,
                    draft,
                    ends,
                    states,
                    temp,
                    seed,
                    pos,
                    rates_data,
                    log_p,
                    read(m.local_residual_mass),
                    reqs};
  args.resample = {m.resampled,
                   m.resampled_max,
                   resample_blocks,
                   target,
                   m.target_logsumexp,
                   draft,
                   m.draft_logsumexp,
                   b.counts.num_sampled,
                   ends,
                   expanded,
                   b.draft_sampled,
                   temp,
                   seed,
                   pos,
                   log_p,
                   vocab_size,
                   kResampleBlock,
                   use_fp64,
                   reqs,
                   resample_blocks};
  args.insert_resampled = {b.sampled,
                           b.counts.num_sampled,
                           read(m.resampled),
                           m.resampled_max,
                           resample_blocks,
                           use_fp64,
                           ends,
                           expanded,
                           temp,
                           reqs,
                           resample_blocks};
  args.counts = b.counts;
  kLaunch(args);
}

void on_host(const RejectionSample& a) {
  const int64_t reqs = a.counts.num_reqs;
  if (reqs >= at::get_num_threads()) {
    const int64_t rows = a.counts.cu_num_logits[reqs] / std::max<int64_t>(reqs, 1);
    launch_on_host(host::rejection_sample, a, reqs,
                   kElementsPerToken * rows * a.stats.vocab_size);
    return;
  }
  // Few requests: all threads at each phase, over the blocks of the vocabulary.
  const int64_t programs = a.stats.num_logits * a.stats.num_blocks;
  launch_on_host(host::compute_local_logits_stats, a.stats, programs,
                 kElementsPerToken * kStatsBlock);
  if (a.use_block_verification) {
    host::compute_cumulative_log_p(a.cumulative_log_p, 0, reqs);
    if (a.local_residual_mass.draft_logits.data != nullptr) {
      launch_on_host(host::compute_local_residual_mass, a.local_residual_mass, programs,
                     kElementsPerToken * kStatsBlock);
    }
  }
  host::rejection(a.rejection, 0, reqs);
  launch_on_host(host::resample, a.resample, reqs * a.resample.num_blocks,
                 kElementsPerToken * kResampleBlock);
  host::insert_resampled(a.insert_resampled, 0, reqs);
  host::get_num_sampled_and_rejected(a.counts, 0, reqs);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "verify_greedy(Tensor(a!) sampled, Tensor(b!) num_sampled, "
      "Tensor(c!) num_rejected, Tensor logits, Tensor input_ids, "
      "Tensor logits_indices, Tensor cu_num_logits, Tensor idx_mapping, "
      "Tensor seq_lens, Tensor prefill_len, int vocab_size) -> ()");
  m.def(
      "verify_drawn(Tensor(a!) sampled, Tensor(b!) num_sampled, "
      "Tensor(c!) num_rejected, Tensor logits, Tensor input_ids, Tensor positions, "
      "Tensor logits_indices, Tensor cu_num_logits, Tensor idx_mapping, "
      "Tensor seq_lens, Tensor prefill_len, Tensor temperature, Tensor seeds, "
      "int vocab_size, bool use_fp64) -> ()");
  m.def(
      "rejection_sample(Tensor(a!) sampled, Tensor(b!) num_sampled, "
      "Tensor(c!) num_rejected, Tensor(d!) workspace, Tensor logits, "
      "Tensor? draft_logits, Tensor input_ids, Tensor positions, "
      "Tensor logits_indices, Tensor cu_num_logits, Tensor idx_mapping, "
      "Tensor expanded_idx_mapping, Tensor expanded_local_pos, Tensor seq_lens, "
      "Tensor prefill_len, Tensor temperature, Tensor seeds, "
      "Tensor? synthetic_conditional_rates, int num_speculative_steps, bool use_fp64, "
      "bool use_block_verification) -> ()");
  // The bytes that rejection_sample keeps between its phases.
  m.def(
      "rejection_sample_workspace(int num_logits, int num_reqs, int vocab_size) -> int",
      &rejection_sample_workspace);
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("verify_greedy", &verify_greedy<on_host>);
  m.impl("verify_drawn", &verify_drawn<on_host>);
  m.impl("rejection_sample", &rejection_sample<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("verify_greedy", &verify_greedy<on_xpu>);
  m.impl("verify_drawn", &verify_drawn<on_xpu>);
  m.impl("rejection_sample", &rejection_sample<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("verify_greedy", nothing_to_infer());
  m.impl("verify_drawn", nothing_to_infer());
  m.impl("rejection_sample", nothing_to_infer());
}

}  // namespace vllm_kunlun
