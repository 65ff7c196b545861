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

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_BLOCK_TABLE_H_
