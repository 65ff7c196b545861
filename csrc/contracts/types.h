// SPDX-License-Identifier: Apache-2.0
// What the contracts have in common. Contracts know no framework: raw pointers and
// sizes, the same for every device.
//
// Rules for every contract, unless it says otherwise:
//  * A launch is upstream's grid: program p does what upstream's program p does, and
//    programs may run in any order and at the same time.
//  * Memory that a contract does not list as written keeps its content.
//  * Offsets are computed in 64 bits.
//  * Indices are trusted; the op layer checks them on request (VLLM_KUNLUN_CHECK=1).
#ifndef VLLM_KUNLUN_CONTRACTS_TYPES_H_
#define VLLM_KUNLUN_CONTRACTS_TYPES_H_

#include <cstdint>

namespace vllm_kunlun {

// Integers that upstream passes as i32 in one place and as i64 in another. With `at`,
// element i is the one at place at[i] of the data.
struct IntList {
  const void* data = nullptr;
  bool is_i64 = false;
  const int64_t* at = nullptr;

  int64_t operator[](int64_t i) const {
    if (at != nullptr) i = at[i];
    return is_i64 ? static_cast<const int64_t*>(data)[i]
                  : static_cast<const int32_t*>(data)[i];
  }
};

// The type of logits, which is the model's.
enum class FloatType { kF32, kF16, kBF16 };

// A table of raw device addresses, one i32 tensor per KV-cache group.
struct TableOfTables {
  const uint64_t* addresses = nullptr;

  int32_t* operator[](int64_t group) const {
    return reinterpret_cast<int32_t*>(addresses[group]);
  }
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_TYPES_H_
