// SPDX-License-Identifier: Apache-2.0
// What each access to memory is asked, and what is remembered of it.
#ifndef VLLM_KUNLUN_XPU_SIM_ACCESS_H_
#define VLLM_KUNLUN_XPU_SIM_ACCESS_H_

#include <cstdint>

#include "xpu/sim/memory.h"

namespace vllm_kunlun::sim {

// Each reports a fault. `verb` is what the core does to the bytes.

void check_range(const Span* span, const void* p, int64_t bytes, const char* verb,
                 const Place& place);
// Memory that an unfinished copy of this core's writes cannot be read or written, and
// what it reads cannot be written.
void check_copies(const Span* span, const void* p, int64_t bytes, bool writes,
                  const char* verb, const Place& place);

// Local memory: what was never written cannot be read, nor, if `fenced`, what was
// stored since the last fence.
void check_written(const Span* span, const void* p, int64_t bytes, bool fenced,
                   const Place& place);
void mark_local(const Span* span, const void* p, int64_t bytes, LocalState to);

// Memory that cores share: no access without a barrier after another core's.
void record_read(const Span* span, const void* p, int64_t bytes, const Place& place);
void record_write(const Span* span, const void* p, int64_t bytes, FenceKind publish,
                  const Place& place);

}  // namespace vllm_kunlun::sim

#endif  // VLLM_KUNLUN_XPU_SIM_ACCESS_H_
