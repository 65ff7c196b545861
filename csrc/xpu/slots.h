// SPDX-License-Identifier: Apache-2.0
// Slots of the KV cache. C++11, for the XPU's cores.
#ifndef VLLM_KUNLUN_XPU_SLOTS_H_
#define VLLM_KUNLUN_XPU_SLOTS_H_

#include "xpu/device.h"

namespace vllm_kunlun {
namespace xpu {

const int kTokens = 128;  // whose positions and slots are in local memory

// A request's row of a block table. Tokens come in order, so that the block that was
// looked up last is mostly the next one's too.
class BlocksOfRow {
 public:
  __device__ explicit BlocksOfRow(Gm<const Int32> row)
      : row_(row), column_(-1), block_(0) {}

  __device__ int at(int column) {
    if (column != column_) {
      column_ = column;
      block_ = row_[column];
    }
    return block_;
  }

 private:
  Gm<const Int32> row_;
  int column_;
  int block_;
};

// Which tokens of a block are a rank's own: contracts/block_table.h.
struct ContextParallel {
  int rank;
  int size;
  int interleave;
  int pad;  // the slot of another rank's token

  // The place of a token in the rank's share of its block, or -1.
  __device__ int local_offset(int offset_in_block) const {
    if (size == 1) return offset_in_block;
    if (offset_in_block / interleave % size != rank) return -1;
    const int rounds = offset_in_block / (interleave * size);
    return rounds * interleave + offset_in_block % interleave;
  }
};

// The slots of a request's tokens [begin, end): of the chunks of kTokens that begin
// with number `part`, every num_parts-th.
__device__ inline void write_slots(Gm<const Int64> pos, Gm<Int64> slots, int begin,
                                   int end, Gm<const Int32> row, int block_size,
                                   const ContextParallel& cp, int part, int num_parts) {
  LmArray<Int64, kTokens> x;
  BlocksOfRow blocks(row);
  const int positions_per_block = block_size * cp.size;
  for (int t = begin + part * kTokens; t < end; t += num_parts * kTokens) {
    const int n = least(kTokens, end - t);
    GM2LM(pos + t, x, 8 * n);
    for (int j = 0; j < n; ++j) {
      const int position = static_cast<int>(x[j]);
      const int column = position / positions_per_block;
      const int local = cp.local_offset(position - column * positions_per_block);
      x[j] = local < 0 ? cp.pad : blocks.at(column) * block_size + local;
    }
    mfence_lm();
    LM2GM(x, slots + t, 8 * n);
  }
}

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_SLOTS_H_
