// SPDX-License-Identifier: Apache-2.0
#include "torch/backend.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#ifdef VLLM_KUNLUN_SIMULATED
#include "xpu/sim/simulator.h"
#endif

namespace vllm_kunlun {
namespace {

thread_local const char* current_op = "";
thread_local at::Device current_device = at::kCPU;

[[maybe_unused]] void check_status(int status) {
  TORCH_CHECK_VALUE(status != xpu::kTooLarge, "vllm_kunlun::", current_op,
                    ": a size of the launch is beyond the 31 bits that the XPU's "
                    "kernels count with: make the batch smaller.");
  TORCH_CHECK(status == xpu::kOk, "vllm_kunlun::", current_op,
              ": the launch failed with the XPU runtime's status ", status, ".");
}

// The ops whose launches go to the XPU's kernels on the simulator and on the XPU.
std::vector<std::string> xpu_kernels() {
  return {
      "adapt_draft_length",
      "apply_grammar_bitmask",
      "apply_write",
      "bad_words",
      "bias",
      "bincount",
      "combine_sampled_and_draft_tokens",
      "compute_cumulative_log_p",
      "compute_local_logits_stats",
      "compute_local_residual_mass",
      "compute_slot_mappings",
      "dcp_local_seq_lens",
      "expand_idx_mapping",
      "fill_logprob_token_ids",
      "flatten_sampled",
      "fused_logits",
      "gather_block_tables",
      "gather_context",
      "get_num_sampled_and_rejected",
      "gumbel_sample",
      "insert_resampled",
      "markov_argmax",
      "min_p",
      "ngram_draft",
      "num_nans",
      "penalties",
      "post_update",
      "post_update_num_computed_tokens",
      "postprocess_mamba_fused",
      "precopy_mamba_align_fused",
      "prepare_block_tables",
      "prepare_decode_inputs",
      "prepare_dflash_inputs",
      "prepare_draft_inputs",
      "prepare_draft_prefill_inputs",
      "prepare_pos_seq_lens",
      "prepare_prefill_inputs",
      "prepare_rope_positions",
      "prepare_step",
      "preprocess_mamba_align_fused",
      "prompt_logprobs_token_ids",
      "ranks",
      "rejection",
      "rejection_sample",
      "resample",
      "scatter_num_accepted",
      "store_drafts",
      "temperature",
      "topk_log_softmax",
      "update_draft_inputs",
      "verify_drawn",
      "verify_greedy",
      "zero_kv_blocks",
  };
}

#ifdef VLLM_KUNLUN_SIMULATED

bool choose_backend(const std::string& text) {
  if (text.empty() || text == "host") return false;
  sim::Machine m;
  unsigned long long schedule = 0;
  int end = 0;
  const int length = static_cast<int>(text.size());
  std::sscanf(text.c_str(), "sim%n", &end);
  if (end < length) {
    end = 0;
    std::sscanf(text.c_str(), "sim:%dx%d%n:%llu%n", &m.clusters, &m.cores, &end,
                &schedule, &end);
  }
  m.schedule = schedule;
  const bool is_machine =
      m.clusters >= 1 && m.clusters <= 1000 && m.cores >= 1 && m.cores <= 64;
  TORCH_CHECK_VALUE(
      end == length && is_machine,
      "VLLM_KUNLUN_BACKEND must be host, sim, or sim:CLUSTERSxCORES[:SCHEDULE] with at "
      "most 64 cores, but is '",
      text, "'.");
  sim::machine() = m;
  return true;
}

#else

bool choose_backend(const std::string& text) {
  TORCH_CHECK_VALUE(text.empty() || text == "host", "VLLM_KUNLUN_BACKEND is '", text,
                    "', but this build of the kernels has the host's alone: build it "
                    "with -DVLLM_KUNLUN_SIM=ON.");
  return false;
}

#endif

bool& simulating() {
  static bool on = [] {
    const char* text = std::getenv("VLLM_KUNLUN_BACKEND");
    return choose_backend(text == nullptr ? "" : text);
  }();
  return on;
}

void use_backend(const std::string& text) { simulating() = choose_backend(text); }

int64_t simulated_launches() {
#ifdef VLLM_KUNLUN_SIMULATED
  return sim::launches();
#else
  return 0;
#endif
}

}  // namespace

bool simulates() { return simulating(); }

bool is_host_memory() { return current_device.is_cpu(); }

#ifdef VLLM_KUNLUN_XPU
void run_on_xpu(const std::function<int(const xpu::Stream&)>& launch) {
  const c10::impl::VirtualGuardImpl guard(current_device.type());
  const c10::Device previous = guard.exchangeDevice(current_device);
  const int status =
      launch(xpu::Stream{guard.getStream(current_device).native_handle()});
  guard.setDevice(previous);
  check_status(status);
}
#endif

#ifdef VLLM_KUNLUN_SIMULATED

namespace {

thread_local std::vector<sim::Argument> arguments;

int64_t extent(const at::Tensor& t) {
  if (t.numel() == 0) return 0;
  int64_t elements = 1;
  for (int64_t d = 0; d < t.dim(); ++d) elements += (t.size(d) - 1) * t.stride(d);
  return elements * t.element_size();
}

}  // namespace

void begin_arguments(const char* op, const at::Device& device) {
  current_op = op;
  current_device = device;
  arguments.clear();
}

void record_argument(const char* name, const at::Tensor& t) {
  if (!simulates()) return;
  // Bytes are memory for whatever a launch keeps there.
  const bool raw = t.scalar_type() == at::kByte;
  arguments.push_back({name, t.const_data_ptr(), extent(t),
                       raw ? 0 : static_cast<int>(t.element_size())});
}

void run_simulated(const std::function<int()>& launch) {
  sim::set_arguments(arguments);
  check_status(launch());
}

#else

void begin_arguments(const char* op, const at::Device& device) {
  current_op = op;
  current_device = device;
}
void record_argument(const char*, const at::Tensor&) {}
void run_simulated(const std::function<int()>&) {}

#endif

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def("use_backend(str backend) -> ()", &use_backend);
  m.def("xpu_kernels() -> str[]", &xpu_kernels);
  m.def("simulated_launches() -> int", &simulated_launches);
}

}  // namespace vllm_kunlun
