// SPDX-License-Identifier: Apache-2.0
// Inputs of the DFlash and DSpark drafters.
// Upstream: vllm/v1/worker/gpu/spec_decode/dflash/speculator.py
#ifndef VLLM_KUNLUN_CONTRACTS_DFLASH_H_
#define VLLM_KUNLUN_CONTRACTS_DFLASH_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _prepare_dflash_inputs_kernel, grid (num_reqs, anything).
//
// A drafting step has num_query_per_req query rows per request: an anchor with the
// token that was sampled last (while the prompt is still being prefilled, its next
// token), then rows with the parallel-drafting token. They follow the request's last
// valid position, that of the target's row before the num_rejected last ones. The
// target's rows themselves, rejected ones included, are the context whose keys and
// values are stored for the drafter.
// A slot is block_table[i, position / block_size] * block_size + position % block_size;
// rows of the block table are in the order of the batch.
//
// Written, for the rows of a request i:
//   context_positions, context_slots: at the rows of the target's batch, the target's
//     position and its slot.
//   input_ids, query_positions, query_slots: at [i * Q, (i + 1) * Q) with
//     Q = num_query_per_req. Positions are clamped to max_model_len - 1.
//   query_start_loc[i] = i * Q; seq_lens[i] = last valid position + 1 + Q, at most
//     max_model_len.
//   sample_indices, sample_pos, sample_idx_mapping: at [i * K, (i + 1) * K) with
//     K = num_speculative_steps, one per query row that is sampled from: every row with
//     sample_from_anchor (DSpark), which then predicts the position after its own, or
//     all but the anchor (DFlash), which predict their own. Not clamped.
// and for padding, up to the full persistent buffers:
//   query_start_loc[num_reqs .. max_num_reqs] = num_reqs * Q,
//   seq_lens[num_reqs .. max_num_reqs) = 0,
//   sample_indices, sample_pos[num_reqs * K .. max_num_reqs * K) = 0,
//   sample_idx_mapping[num_reqs * K .. max_num_reqs * K) = -1,
//   query_slots[num_reqs * Q .. max_num_tokens) = pad_slot_id.
//
// Where upstream differs (docs/deviations.md): a query row at a position from
// max_model_len on, and any row at a position past the end of its row of the block
// table, has slot pad_slot_id and so writes no keys and values; upstream takes the
// row's last block. Upstream does not limit seq_lens.
struct PrepareDflashInputs {
  int32_t* input_ids;                  // [max_num_tokens]
  int64_t* query_positions;            // [max_num_tokens]
  int32_t* query_start_loc;            // [max_num_reqs + 1]
  int32_t* seq_lens;                   // [max_num_reqs]
  int64_t* query_slots;                // [max_num_tokens]
  int64_t* context_positions;          // [num_tokens]
  int64_t* context_slots;              // [num_tokens]
  int64_t* sample_indices;             // [max_num_reqs * K]
  int64_t* sample_pos;                 // [max_num_reqs * K]
  int32_t* sample_idx_mapping;         // [max_num_reqs * K]
  const int64_t* target_positions;     // [num_tokens]
  const int32_t* target_query_start;   // [num_reqs + 1]
  const int32_t* idx_mapping;          // [num_reqs]
  const int64_t* last_sampled;         // [max_num_reqs]
  const int32_t* next_prefill_tokens;  // [max_num_reqs]
  const int32_t* num_sampled;          // [num_reqs]
  const int32_t* num_rejected;         // [num_reqs], less than the target's rows
  const int32_t* block_table;          // [num_reqs, block_table_stride]
  int64_t block_table_stride;
  int64_t parallel_drafting_token_id;
  int64_t block_size;
  int64_t num_query_per_req;
  int64_t num_speculative_steps;
  int64_t max_num_reqs;
  int64_t max_num_tokens;
  int64_t max_model_len;
  bool sample_from_anchor;
  int64_t pad_slot_id;
  int64_t num_reqs;
};

// What a draft's KV-cache group has of its own.
struct DraftGroup {
  int64_t* query_slots;        // [max_num_tokens]
  int64_t* context_slots;      // [num_tokens]
  const int32_t* block_table;  // [num_reqs, block_table_stride]
  int64_t block_table_stride;
  int64_t block_size;
};

// Not upstream's: all that a drafting step takes from the target's step, in one launch.
//
// Written: as prepare_dflash_inputs does for each group, whose slots and block table
// stand for those of `rows`; and the copies of the sampling state that the draft's
// sampling reads (the target's may change while a draft still runs):
//   out_temperature, out_seeds [0 .. max_num_reqs),
//   out_idx_mapping [0 .. num_reqs), with -1 in [num_reqs .. max_num_reqs).
// With skip_rejected, context rows that were rejected have slot pad_slot_id: their keys
// and values would never be read, since query rows take over their positions.
struct PrepareDraftInputs {
  PrepareDflashInputs rows;  // without slots and block table
  const DraftGroup* groups;
  int64_t num_groups;
  float* out_temperature;    // [max_num_reqs]
  int64_t* out_seeds;        // [max_num_reqs]
  int32_t* out_idx_mapping;  // [max_num_reqs]
  const float* temperature;  // [max_num_reqs]
  const int64_t* seeds;      // [max_num_reqs]
  bool skip_rejected;
};

// One of the target's layers whose hidden states the draft reads.
struct ContextSource {
  const char* data;  // [num_tokens, row_bytes], rows stride_bytes apart
  int64_t stride_bytes;
  int64_t row_bytes;
};

// Not upstream's, grid (num_reqs): the context without its rejected rows.
//
// The rows of a request but for its num_rejected last ones, moved up so that nothing is
// between the requests. Row t of the target's batch is written to row t less what was
// rejected before it:
//   features: the sources' rows side by side; out_positions; out_slots, of every group.
// As many rows as the batch has without the rejected ones are written.
struct GatherContext {
  char* features;          // [num_kept, feature_bytes]
  int64_t* out_positions;  // [num_kept]
  int64_t* out_slots;      // [num_groups, num_kept]
  int64_t out_slots_stride;
  const ContextSource* sources;
  int64_t num_sources;
  int64_t feature_bytes;     // sum of the sources' row_bytes
  const int64_t* positions;  // [num_tokens]
  const int64_t* slots;      // [num_groups, num_tokens]
  int64_t slots_stride;
  int64_t num_groups;
  const int32_t* query_start_loc;  // [num_reqs + 1]
  const int32_t* num_rejected;     // [num_reqs]
  int64_t num_reqs;
  int64_t num_kept;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_DFLASH_H_
