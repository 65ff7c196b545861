// SPDX-License-Identifier: Apache-2.0
// Rows of a drafting step, and their slots in a KV-cache group: contracts/dflash.h.
// C++11, for the XPU's cores.
#ifndef VLLM_KUNLUN_XPU_DRAFT_ROWS_H_
#define VLLM_KUNLUN_XPU_DRAFT_ROWS_H_

#include "xpu/slots.h"

namespace vllm_kunlun {
namespace xpu {

// Cores that share a request's context, which may be one long prefill.
const int kDraftParts = 4;

// What is the same for all groups.
struct DraftRows {
  Gm<Int32> input_ids;
  Gm<Int64> query_positions;
  Gm<Int32> query_start_loc;
  Gm<Int32> seq_lens;
  Gm<Int64> context_positions;
  Gm<Int64> sample_indices;
  Gm<Int64> sample_pos;
  Gm<Int32> sample_idx_mapping;
  Gm<const Int64> target_positions;
  Gm<const Int32> target_query_start;
  Gm<const Int32> idx_mapping;
  Gm<const Int64> last_sampled;
  Gm<const Int32> next_prefill_tokens;
  Gm<const Int32> num_sampled;
  Gm<const Int32> num_rejected;
  int parallel_drafting_token_id;
  int num_query_per_req;
  int num_speculative_steps;
  int max_num_reqs;
  int max_num_tokens;
  int max_model_len;
  bool sample_from_anchor;
  int pad_slot_id;
  int num_reqs;

  // The position after a request's last valid one.
  __device__ int first_query_position(int b) const {
    const int last = target_query_start[b + 1] - num_rejected[b] - 1;
    return static_cast<int>(target_positions[last]) + 1;
  }

  // The padding is that of request num_reqs.
  __device__ void write(int b, int part) const {
    if (b == num_reqs) {
      pad(part);
      return;
    }
    LmArray<Int64, kTokens> x;
    const int end = target_query_start[b + 1];
    int t = target_query_start[b] + part * kTokens;
    for (; t < end; t += kDraftParts * kTokens) {
      const int n = least(kTokens, end - t);
      GM2LM(target_positions + t, x, 8 * n);
      LM2GM(x, context_positions + t, 8 * n);
    }
    if (part == 0) write_queries(b);
  }

 private:
  __device__ void write_queries(int b) const {
    const int req = idx_mapping[b];
    int anchor = next_prefill_tokens[req];
    if (num_sampled[b] > 0) anchor = static_cast<int>(last_sampled[req]);
    const int first_position = first_query_position(b);
    const int first_row = b * num_query_per_req;
    const int skipped = sample_from_anchor ? 0 : 1;
    for (int q = 0; q < num_query_per_req; ++q) {
      const int position = first_position + q;
      const int row = first_row + q;
      input_ids[row] = q == 0 ? anchor : parallel_drafting_token_id;
      query_positions[row] = least(position, max_model_len - 1);
      if (q < skipped) continue;
      const int sample = b * num_speculative_steps + q - skipped;
      sample_indices[sample] = row;
      sample_pos[sample] = position + 1 - skipped;
      sample_idx_mapping[sample] = req;
    }
    query_start_loc[b] = first_row;
    seq_lens[b] = least(first_position + num_query_per_req, max_model_len);
  }

  __device__ void pad(int part) const {
    const int samples = num_reqs * num_speculative_steps;
    const int padding = max_num_reqs * num_speculative_steps - samples;
    const Int64 zero = 0;
    fill<kTokens>(query_start_loc + num_reqs, num_reqs * num_query_per_req,
                  max_num_reqs + 1 - num_reqs, part, kDraftParts);
    fill<kTokens>(seq_lens + num_reqs, 0, max_num_reqs - num_reqs, part, kDraftParts);
    fill<kTokens>(sample_indices + samples, zero, padding, part, kDraftParts);
    fill<kTokens>(sample_pos + samples, zero, padding, part, kDraftParts);
    fill<kTokens>(sample_idx_mapping + samples, -1, padding, part, kDraftParts);
  }
};

// What a group has of its own.
struct DraftSlots {
  Gm<Int64> query_slots;
  Gm<Int64> context_slots;
  Gm<const Int32> block_table;
  int block_table_stride;
  int block_size;

  // As DraftRows::write. A request's last num_unstored rows of context get no slot.
  __device__ void write(const DraftRows& rows, int b, int part,
                        int num_unstored) const {
    const int queries = b * rows.num_query_per_req;
    if (b == rows.num_reqs) {
      fill<kTokens>(query_slots + queries, static_cast<Int64>(rows.pad_slot_id),
                    rows.max_num_tokens - queries, part, kDraftParts);
      return;
    }
    LmArray<Int64, kTokens> x;
    BlocksOfRow blocks(block_table + offset(b, block_table_stride));
    const int end = rows.target_query_start[b + 1];
    const int stored_end = end - num_unstored;
    int t = rows.target_query_start[b] + part * kTokens;
    for (; t < end; t += kDraftParts * kTokens) {
      const int n = least(kTokens, end - t);
      GM2LM(rows.target_positions + t, x, 8 * n);
      for (int j = 0; j < n; ++j) {
        const int position = static_cast<int>(x[j]);
        x[j] = t + j < stored_end ? slot_of(blocks, position, rows.pad_slot_id)
                                  : rows.pad_slot_id;
      }
      mfence_lm();
      LM2GM(x, context_slots + t, 8 * n);
    }
    if (part != 0) return;
    const int first_position = rows.first_query_position(b);
    for (int q = 0; q < rows.num_query_per_req; ++q) {
      const int position = first_position + q;
      query_slots[queries + q] = position < rows.max_model_len
                                     ? slot_of(blocks, position, rows.pad_slot_id)
                                     : rows.pad_slot_id;
    }
  }

 private:
  __device__ int slot_of(BlocksOfRow& blocks, int position, int pad) const {
    const int column = position / block_size;
    if (column >= block_table_stride) return pad;
    return blocks.at(column) * block_size + (position - column * block_size);
  }
};

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_DRAFT_ROWS_H_
