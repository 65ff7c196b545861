// SPDX-License-Identifier: Apache-2.0
// Block tables and slot mappings. Upstream: vllm/v1/worker/gpu/block_table.py
#ifndef VLLM_KUNLUN_CONTRACTS_BLOCK_TABLE_H_
#define VLLM_KUNLUN_CONTRACTS_BLOCK_TABLE_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _gather_block_tables_kernel, grid (num_groups, num_rows).
//
// Copies the block ids of each request in the batch from its row of the source table
// to the batch's row of the destination table, for every KV-cache group.
// Written, per group g, in the destination table [>= num_rows, strides[g]]:
//   rows [0, num_reqs): the first num_blocks[g, request] entries. The entries after
//     them keep what they held: the caller never reads them.
//   rows [num_reqs, num_rows), the padding: zero, over the whole stride.
struct GatherBlockTables {
  const int32_t* batch_idx_to_req_idx;  // [num_reqs]
  TableOfTables src_block_tables;       // [num_groups] -> [max_num_reqs, stride]
  TableOfTables dst_block_tables;       // [num_groups] -> [>= num_rows, stride]
  const int64_t* block_table_strides;   // [num_groups]
  const int32_t* num_blocks;            // [num_groups, max_num_reqs]
  int64_t num_blocks_stride;
  int64_t num_reqs;
  int64_t num_groups;
  int64_t num_rows;
};

// _compute_slot_mappings_kernel, grid (num_groups, num_reqs + 1).
//
// The KV-cache slot of each token, per group g: the table names the token's block by
// its position, the offset within the block is position % block_size. The row of the
// (source) block table is that of the request, not of the batch.
// With context parallelism (cp_size > 1) a block holds block_size * cp_size positions,
// dealt out in runs of cp_interleave to the ranks in turn; a token of another rank gets
// pad_id.
// Written: slot_mappings[g, query_start_loc[i] .. query_start_loc[i + 1]) of each
// request i, and pad_id in [query_start_loc[num_reqs], max_num_tokens), to the end of
// the persistent buffer, since slots of earlier steps are still there. A grid without
// columns writes nothing.
struct ComputeSlotMappings {
  int64_t max_num_tokens;
  const int32_t* idx_mapping;          // [num_reqs]
  const int32_t* query_start_loc;      // [num_reqs + 1]
  const int64_t* pos;                  // [query_start_loc[num_reqs]]
  TableOfTables block_tables;          // [num_groups] -> [max_num_reqs, stride]
  const int64_t* block_table_strides;  // [num_groups]
  const int32_t* block_sizes;          // [num_groups]
  int64_t* slot_mappings;              // [num_groups, >= max_num_tokens]
  int64_t slot_mappings_stride;
  int64_t cp_rank;
  int64_t cp_size;
  int64_t cp_interleave;
  int64_t pad_id;
  int64_t num_groups;
  int64_t num_columns;  // num_reqs + 1
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_BLOCK_TABLE_H_
