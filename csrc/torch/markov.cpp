// SPDX-License-Identifier: Apache-2.0
#include "contracts/markov.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;

// Longer rows would not fit what the host's kernel has on its stack.
constexpr int64_t kMaxRank = 1024;

void check_indices(const OpCheck& check, const MarkovArgmax& a,
                   int64_t target_vocab_size) {
  for (int64_t i = 0; i < a.num_reqs; ++i) {
    check.index("anchors", i * a.anchor_stride, a.anchors[i * a.anchor_stride], 0,
                target_vocab_size);
  }
  for (int64_t i = 0; a.d2t != nullptr && i < a.vocab_size; ++i) {
    check.index("d2t", i, a.d2t[i], -i, target_vocab_size - i);
  }
}

template <void (*kLaunch)(const MarkovArgmax&)>
void markov_argmax(const Tensor& draft_tokens, const Tensor& block_max,
                   const Tensor& block_argmax, const Tensor& block_products,
                   const Tensor& base_logits, const Tensor& w1, const Tensor& w2,
                   const Tensor& w2_norms, const OptionalTensor& d2t,
                   const Tensor& anchors, int64_t anchor_stride,
                   const OptionalTensor& table, const OptionalTensor& rows) {
  const OpCheck check("markov_argmax", draft_tokens);
  if (base_logits.dim() != 3) {
    check.fail("base_logits", "of 3 dimensions",
               "of " + std::to_string(base_logits.dim()));
  }
  const int64_t num_reqs = base_logits.size(0);
  const int64_t num_steps = base_logits.size(1);
  const int64_t vocab_size = base_logits.size(2);
  const int64_t rank = w1.size(1);
  const int64_t num_blocks = (vocab_size + kMarkovBlock - 1) / kMarkovBlock;
  if (num_reqs == 0) return;
  check.at_least("the vocabulary of base_logits", vocab_size, 1);
  check.in_range("the rank of w1", rank, 1, kMaxRank + 1);
  check.in_range("the rank of w2", w2.size(1), rank, rank + 1);
  check.at_least("anchor_stride", anchor_stride, 1);
  check.columns("draft_tokens", draft_tokens, num_steps);
  for (const Tensor& t : {w1, w2}) {
    check.check_dtype("w1 or w2", t, base_logits.scalar_type());
  }
  check.check_flat("w1", w1, rank);
  check.check_flat("w2", w2, vocab_size * rank);
  MarkovArgmax args{
      check.rows<int64_t>("draft_tokens", draft_tokens, draft_tokens.stride(0),
                          num_reqs),
      draft_tokens.stride(0),
      check.flat<float>("block_max", block_max, num_blocks * num_reqs),
      check.flat<int32_t>("block_argmax", block_argmax, num_blocks * num_reqs),
      check.flat<int32_t>("block_products", block_products, num_blocks * num_reqs),
      check.float_rows("base_logits", base_logits.select(1, 0), base_logits.stride(0),
                       num_reqs),
      base_logits.stride(0),
      base_logits.stride(1),
      w1.const_data_ptr(),
      w2.const_data_ptr(),
      check.float_type("base_logits", base_logits),
      rank,
      check.flat<const float>("w2_norms", w2_norms, vocab_size),
      check.flat<const int64_t>("d2t", d2t, vocab_size),
      check.flat<const int32_t>("anchors", anchors, (num_reqs - 1) * anchor_stride + 1),
      anchor_stride,
      vocab_size,
      num_reqs,
      num_steps,
      0};
  record_argument("base_logits", base_logits);  // all steps, of which one was checked
  if (table) {
    if (!rows) check.fail("rows", "given with table", "None");
    check.columns("table", *table, num_steps);
    args.table = check.rows<int64_t>("table", *table, table->stride(0), 0);
    args.table_stride = table->stride(0);
    args.rows = check.flat<const int32_t>("rows", *rows, num_reqs);
    if (checks_indices()) {
      for (int64_t i = 0; i < num_reqs; ++i) {
        check.index("rows", i, args.rows[i], -1, table->size(0));
      }
    }
  }
  if (checks_indices()) check_indices(check, args, w1.size(0));
  for (; args.step < num_steps; ++args.step) kLaunch(args);
}

// What of a row of w2 is read on average: most rows are ruled out.
constexpr int64_t kElementsPerToken = 4;

void on_host(const MarkovArgmax& a) {
  if (simulated(a)) return;
  const int64_t num_blocks = (a.vocab_size + kMarkovBlock - 1) / kMarkovBlock;
  launch_on_host(host::find_markov_best, a, num_blocks,
                 kMarkovBlock * kElementsPerToken * a.num_reqs);
  launch_on_host(host::choose_markov_draft, a, a.num_reqs, num_blocks);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  m.def(
      "markov_argmax(Tensor(a!) draft_tokens, Tensor(b!) block_max, "
      "Tensor(c!) block_argmax, Tensor(d!) block_products, Tensor base_logits, "
      "Tensor w1, Tensor w2, Tensor w2_norms, Tensor? d2t, Tensor anchors, "
      "int anchor_stride, Tensor(e!)? table=None, Tensor? rows=None) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("markov_argmax", &markov_argmax<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("markov_argmax", &markov_argmax<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("markov_argmax", nothing_to_infer());
}

}  // namespace vllm_kunlun
