// SPDX-License-Identifier: Apache-2.0
// The simulated machine's memories, and what is remembered of who touched them.
#ifndef VLLM_KUNLUN_XPU_SIM_MEMORY_H_
#define VLLM_KUNLUN_XPU_SIM_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "xpu/sim/checks.h"

namespace vllm_kunlun::sim {

// Which fence makes a store visible to others; none where it is at once.
enum FenceKind : uint8_t { kFenceGlobal, kFenceLocal, kFenceShared, kNoFence };

// Who touched one granule of memory that cores share. Cores count from 1.
struct Record {
  uint16_t writer;
  uint16_t writer_epoch;  // barriers that its cluster had passed
  uint16_t writer_fence;  // fences that it had passed
  uint16_t writer_line;
  uint16_t reader;  // kManyReaders: several in reader_epoch
  uint16_t reader_epoch;
  uint16_t reader_cluster;
  uint8_t many_clusters;
  FenceKind publish;

  static constexpr uint16_t kManyReaders = 0xffff;
};
static_assert(sizeof(Record) == 16);

// Records for a range of addresses. Untouched ones cost nothing.
class Records {
 public:
  Records(const char* begin, int64_t bytes, int granule)
      : begin_(begin),
        granule_(granule),
        records_(
            static_cast<Record*>(std::calloc(bytes / granule + 1, sizeof(Record)))) {}

  Record* of(const void* p) const {
    return records_.get() + (static_cast<const char*>(p) - begin_) / granule_;
  }
  int granule() const { return granule_; }

 private:
  struct Free {
    void operator()(Record* p) const { std::free(p); }
  };
  const char* begin_;
  int granule_;
  std::unique_ptr<Record, Free> records_;
};

// How far a byte of local memory is.
enum LocalState : uint8_t { kUnwritten, kStored, kComplete };

struct Span {
  Space space;
  const char* name;  // an argument's
  Place declared;    // an array's
  char* begin;
  int64_t bytes;
  int element;               // bytes
  const Records* records;    // global and shared memory
  LocalState* local_states;  // local memory, one for each byte
};

// A launch's tensor, as the wrapper's caller knows it.
struct Argument {
  std::string name;
  const void* data;
  int64_t bytes;
  int element;  // bytes; 0: of any size from 4 on
};

// The global memory of a launch: what its arguments name, and nothing else.
class GlobalMemory {
 public:
  explicit GlobalMemory(std::vector<Argument> arguments);

  const Span* find(const void* p) const;

 private:
  std::vector<Argument> arguments_;
  std::vector<Span> spans_;
  std::vector<std::unique_ptr<Records>> records_;
};

}  // namespace vllm_kunlun::sim

#endif  // VLLM_KUNLUN_XPU_SIM_MEMORY_H_
