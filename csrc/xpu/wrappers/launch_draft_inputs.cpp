// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "xpu/host_side.h"
#include "xpu/kernels/draft_inputs.h"

namespace vllm_kunlun {
namespace xpu {
namespace {

template <class T>
auto* words(T* p) {
  using Word = std::conditional_t<std::is_const_v<T>, const Int32, Int32>;
  return reinterpret_cast<Word*>(p);
}

// Launches for the groups from `first` on; the rows go with the first of them.
int launch_groups(const PrepareDraftInputs& a, int64_t first, const Stream& stream) {
  const PrepareDflashInputs& r = a.rows;
  const int64_t count = std::min<int64_t>(a.num_groups - first, kDraftGroups);
  const auto group = [&](int64_t k) {
    return k < count ? a.groups[first + k] : DraftGroup{};
  };
  static_assert(kDraftGroups == 4, "as many as there are below");
  const DraftGroup g0 = group(0), g1 = group(1), g2 = group(2), g3 = group(3);
  return VLLM_KUNLUN_LAUNCH(
      stream, prepare_draft_inputs, r.input_ids, device(r.query_positions),
      r.query_start_loc, r.seq_lens, device(r.context_positions),
      device(r.sample_indices), device(r.sample_pos), r.sample_idx_mapping,
      device(r.target_positions), r.target_query_start, r.idx_mapping,
      device(r.last_sampled), r.next_prefill_tokens, r.num_sampled, r.num_rejected,
      i32(r.parallel_drafting_token_id), i32(r.num_query_per_req),
      i32(r.num_speculative_steps), i32(r.max_num_reqs), i32(r.max_num_tokens),
      i32(r.max_model_len), r.sample_from_anchor, i32(r.pad_slot_id), i32(r.num_reqs),
      words(a.out_temperature), words(a.out_seeds), a.out_idx_mapping,
      words(a.temperature), words(a.seeds), a.skip_rejected, device(g0.query_slots),
      device(g0.context_slots), g0.block_table, i32(g0.block_table_stride),
      i32(g0.block_size), device(g1.query_slots), device(g1.context_slots),
      g1.block_table, i32(g1.block_table_stride), i32(g1.block_size),
      device(g2.query_slots), device(g2.context_slots), g2.block_table,
      i32(g2.block_table_stride), i32(g2.block_size), device(g3.query_slots),
      device(g3.context_slots), g3.block_table, i32(g3.block_table_stride),
      i32(g3.block_size), i32(count), first == 0);
}

}  // namespace

int launch(const PrepareDraftInputs& a, const Stream& stream) {
  const PrepareDflashInputs& r = a.rows;
  bool fits =
      fit(r.max_num_reqs * r.num_query_per_req,
          r.max_num_reqs * r.num_speculative_steps, 2 * r.max_num_reqs,
          r.max_num_tokens, r.pad_slot_id, r.max_model_len + r.num_query_per_req);
  for (int64_t g = 0; g < a.num_groups; ++g) {
    fits = fits && fit(a.groups[g].block_table_stride, a.groups[g].block_size);
  }
  if (!fits) return kTooLarge;
  int status = kOk;
  for (int64_t g = 0; g < a.num_groups && status == kOk; g += kDraftGroups) {
    status = launch_groups(a, g, stream);
  }
  return status;
}

}  // namespace xpu
}  // namespace vllm_kunlun
