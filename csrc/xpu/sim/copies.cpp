// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>
#include <vector>

#include "xpu/sim/access.h"
#include "xpu/sim/report.h"
#include "xpu/sim/state.h"

namespace vllm_kunlun::sim {
namespace {

void check_copy(const Span* from, const void* src, const Span* to, void* dst, int bytes,
                const Place& place) {
  if (bytes <= 0) fail(place, "copies " + std::to_string(bytes) + " bytes");
  check_range(from, src, bytes, "copies", place);
  check_range(to, dst, bytes, "copies to", place);
  for (const Span* span : {from, to}) {
    if (span->element != 0 && bytes % span->element != 0) {
      fail(place, "copies " + std::to_string(bytes) + " bytes, no whole number of " +
                      name_of(span) + "'s elements of " +
                      std::to_string(span->element));
    }
  }
  check_copies(from, src, bytes, false, "copies", place);
  check_copies(to, dst, bytes, true, "copies to", place);
  if (from->space == kLocal) check_written(from, src, bytes, true, place);
}

bool touches(const Copy& copy, Space space) {
  return copy.from->space == space || copy.to->space == space;
}

}  // namespace

void copy(const Span* from, const void* src, const Span* to, void* dst, int bytes,
          const Place& place) {
  check_copy(from, src, to, dst, bytes, place);
  if (from->space != kLocal) record_read(from, src, bytes, place);
  if (to->space == kLocal) {
    mark_local(to, dst, bytes, kComplete);
  } else {
    record_write(to, dst, bytes, kNoFence, place);
  }
  std::memcpy(dst, src, bytes);
}

void copy_later(const Span* from, const void* src, const Span* to, void* dst, int bytes,
                const Place& place) {
  check_copy(from, src, to, dst, bytes, place);
  if (from->space != kLocal) record_read(from, src, bytes, place);
  if (to->space != kLocal) {
    const bool shared = from->space == kShared || to->space == kShared;
    record_write(to, dst, bytes, shared ? kFenceShared : kFenceLocal, place);
  }
  state.core->copies.push_back({from, src, to, dst, bytes, place});
}

void fence(bool global, bool local, bool shared) {
  Core& me = *state.core;
  me.fences[kFenceGlobal] += global;
  me.fences[kFenceLocal] += local;
  me.fences[kFenceShared] += shared;
  if (local) {
    for (int i = me.dirty_begin; i < me.dirty_end; ++i) {
      if (me.states[i] == kStored) me.states[i] = kComplete;
    }
    me.dirty_begin = me.dirty_end = 0;
  }
  if (me.copies.empty()) return;
  std::vector<Copy> rest;
  for (const Copy& c : me.copies) {
    if (!((local && touches(c, kLocal)) || (shared && touches(c, kShared)))) {
      rest.push_back(c);
      continue;
    }
    std::memcpy(c.dst, c.src, c.bytes);
    if (c.to->space == kLocal) mark_local(c.to, c.dst, c.bytes, kComplete);
  }
  me.copies.swap(rest);
}

}  // namespace vllm_kunlun::sim
