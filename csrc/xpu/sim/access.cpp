// SPDX-License-Identifier: Apache-2.0
#include "xpu/sim/access.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "xpu/sim/report.h"
#include "xpu/sim/state.h"

namespace vllm_kunlun::sim {
namespace {

void check_element(const Span* span, const void* p, int bytes, const char* verb,
                   const Place& place) {
  if (bytes == span->element || span->element == 0) return;
  fail(place, std::string(verb) + " " + range(span, p, bytes) +
                  ", whose elements have " + std::to_string(span->element) + " bytes");
}

bool overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const char* x = static_cast<const char*>(a);
  const char* y = static_cast<const char*>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

}  // namespace

void check_range(const Span* span, const void* p, int64_t bytes, const char* verb,
                 const Place& place) {
  if (span == &nowhere) fail(place, std::string(verb) + " through a null pointer");
  if (span == nullptr) {
    fail(place,
         std::string(verb) + " through an address that no argument of the launch has");
  }
  const char* at = static_cast<const char*>(p);
  if (at < span->begin || at + bytes > span->begin + span->bytes) {
    fail(place, std::string(verb) + " " + range(span, p, bytes) + ", which has " +
                    std::to_string(span->bytes) + " bytes");
  }
  // A pointer to a local array that is gone, or to another core's.
  if (span->space == kLocal && !state.core->is_at(at)) {
    fail(place, std::string(verb) + " " + range(span, p, bytes) +
                    ", which is not this core's any more");
  }
}

void check_copies(const Span* span, const void* p, int64_t bytes, bool writes,
                  const char* verb, const Place& place) {
  for (const Copy& c : state.core->copies) {
    if (overlap(p, bytes, c.dst, c.bytes) ||
        (writes && overlap(p, bytes, c.src, c.bytes))) {
      fail(place, std::string(verb) + " " + range(span, p, bytes) +
                      " before a fence completes the copy of " + text(c.place));
    }
  }
}

void check_written(const Span* span, const void* p, int64_t bytes, bool fenced,
                   const Place& place) {
  const char* at = static_cast<const char*>(p);
  const LocalState* states = span->local_states + (at - span->begin);
  for (int64_t i = 0; i < bytes; ++i) {
    if (states[i] == kUnwritten) {
      fail(place, "reads " + range(span, at + i, bytes - i) +
                      ", of which the first was never written");
    }
    if (fenced && states[i] == kStored) {
      fail(place, "copies " + range(span, at + i, bytes - i) +
                      ", of which the first was stored without a fence since");
    }
  }
}

void mark_local(const Span* span, const void* p, int64_t bytes, LocalState to) {
  const char* at = static_cast<const char*>(p);
  std::memset(span->local_states + (at - span->begin), to, bytes);
  if (to != kStored) return;
  Core& me = *state.core;
  const int begin = static_cast<int>(at - me.local.get());
  const int end = begin + static_cast<int>(bytes);
  const bool clean = me.dirty_begin == me.dirty_end;
  me.dirty_begin = clean ? begin : std::min(me.dirty_begin, begin);
  me.dirty_end = clean ? end : std::max(me.dirty_end, end);
}

void check_read(const Span* span, const void* p, int bytes, const Place& place) {
  check_range(span, p, bytes, "reads", place);
  check_element(span, p, bytes, "reads", place);
  if (!state.core->copies.empty()) {
    check_copies(span, p, bytes, false, "reads", place);
  }
  if (span->space == kLocal) {
    check_written(span, p, bytes, false, place);
  } else {
    record_read(span, p, bytes, place);
  }
}

void check_write(const Span* span, const void* p, int bytes, const Place& place) {
  check_range(span, p, bytes, "writes", place);
  check_element(span, p, bytes, "writes", place);
  if (!state.core->copies.empty()) {
    check_copies(span, p, bytes, true, "writes", place);
  }
  switch (span->space) {
    case kLocal:
      mark_local(span, p, bytes, kStored);
      break;
    case kShared:
      record_write(span, p, bytes, kFenceShared, place);
      break;
    case kGlobal:
      record_write(span, p, bytes, kFenceGlobal, place);
      break;
  }
}

}  // namespace vllm_kunlun::sim
