// SPDX-License-Identifier: Apache-2.0
// Blocks of the KV cache that are new. Upstream: vllm/v1/worker/utils.py
#ifndef VLLM_KUNLUN_CONTRACTS_KV_ZERO_H_
#define VLLM_KUNLUN_CONTRACTS_KV_ZERO_H_

#include "contracts/types.h"

namespace vllm_kunlun {

// _zero_kv_blocks_kernel, any grid that covers the blocks in all segments.
//
// A segment is the part of a layer's cache in which the data of block b are the
// page_size words from b * page_size on.
// Written: 0 to the given blocks, in all segments.
struct ZeroKvBlocks {
  TableOfTables segments;    // [num_segments]
  const int64_t* block_ids;  // [num_blocks], all different
  int64_t num_blocks;
  int64_t num_segments;
  int64_t page_size;  // words of 32 bits, a multiple of upstream's BLOCK_SIZE
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_KV_ZERO_H_
