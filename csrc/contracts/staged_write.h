// SPDX-License-Identifier: Apache-2.0
// Staged writes. Upstream: vllm/v1/worker/gpu/buffer_utils.py
#ifndef VLLM_KUNLUN_CONTRACTS_STAGED_WRITE_H_
#define VLLM_KUNLUN_CONTRACTS_STAGED_WRITE_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _apply_write_kernel, grid (num_writes).
//
// Write w copies contents[cu_lens[w-1], cu_lens[w]) (from 0 for w = 0) to row
// indices[w] of its output, from column starts[w] on. The output is the one tensor, or
// with group_ids (upstream's MULTI_GROUP) the i32 tensor of group group_ids[w].
// Elements are copied as they are: 4 bytes (i32, f32) or 8 (i64).
// Written: those elements alone. A write is not clipped to the width of its row.
// Programs run in order: of two writes to one element the last staged one wins.
struct ApplyWrite {
  void* output;                  // [rows, stride] or [rows]; unused with group_ids
  int64_t output_stride;         // unused with group_ids
  TableOfTables group_outputs;   // [num_groups], only with group_ids
  const int64_t* group_strides;  // [num_groups], only with group_ids
  const int32_t* indices;        // [num_writes]
  const int32_t* starts;         // [num_writes]
  const void* contents;          // [cu_lens[num_writes - 1]]
  const int32_t* cu_lens;        // [num_writes], inclusive sums
  const int32_t* group_ids;      // [num_writes] or null
  int64_t element_size;
  int64_t num_writes;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_STAGED_WRITE_H_
