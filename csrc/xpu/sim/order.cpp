// SPDX-License-Identifier: Apache-2.0
// Races between cores, in the memory that they share.
#include <string>

#include "xpu/sim/access.h"
#include "xpu/sim/report.h"
#include "xpu/sim/state.h"

namespace vllm_kunlun::sim {
namespace {

int cluster_of(uint16_t number) { return (number - 1) / state.ids.cores; }

void check_order(const Span* span, const Record& r, const void* p, const char* verb,
                 const Place& place) {
  const Core& me = *state.core;
  if (r.writer == 0 || r.writer == me.number || !state.machine.finds_races) return;
  const auto conflict = [&](const std::string& why) {
    fail(place, std::string(verb) + " " + range(span, p, span->records->granule()) +
                    ", which " + who(r.writer) + " wrote in line " +
                    std::to_string(r.writer_line) + why);
  };
  if (cluster_of(r.writer) != state.ids.cluster) {
    conflict(": no barrier orders the cores of two clusters");
  }
  if (r.writer_epoch == state.epoch) conflict(" without a barrier in between");
  if (r.publish == kNoFence) return;
  const Core& writer = state.cores[(r.writer - 1) % state.ids.cores];
  if (writer.fences_at_barrier[r.publish] <= r.writer_fence) {
    conflict(" without a fence before the barrier");
  }
}

}  // namespace

void record_read(const Span* span, const void* p, int64_t bytes, const Place& place) {
  const Core& me = *state.core;
  const int granule = span->records->granule();
  Record* r = span->records->of(p);
  for (int64_t i = 0; i < bytes; i += granule, ++r) {
    const char* at = static_cast<const char*>(p) + i;
    check_order(span, *r, at, "reads", place);
    if (span->space == kShared && r->writer == 0) {
      fail(place, "reads " + range(span, at, granule) + ", which nobody has written");
    }
    if (r->reader == 0) {
      r->reader = me.number;
      r->reader_cluster = static_cast<uint16_t>(state.ids.cluster);
    } else {
      r->many_clusters |= r->reader_cluster != state.ids.cluster;
      const bool same = r->reader_epoch == state.epoch && r->reader != me.number;
      r->reader = same ? Record::kManyReaders : me.number;
    }
    r->reader_epoch = state.epoch;
  }
}

void record_write(const Span* span, const void* p, int64_t bytes, FenceKind publish,
                  const Place& place) {
  const Core& me = *state.core;
  const int granule = span->records->granule();
  Record* r = span->records->of(p);
  for (int64_t i = 0; i < bytes; i += granule, ++r) {
    const char* at = static_cast<const char*>(p) + i;
    check_order(span, *r, at, "writes", place);
    if (r->reader != 0 && state.machine.finds_races) {
      const bool other_cluster =
          r->many_clusters != 0 || r->reader_cluster != state.ids.cluster;
      if (other_cluster || (r->reader_epoch == state.epoch && r->reader != me.number)) {
        fail(place, "writes " + range(span, at, granule) +
                        ", which another core has read without a barrier in between");
      }
    }
    r->writer = me.number;
    r->writer_epoch = state.epoch;
    r->writer_fence = publish == kNoFence ? 0 : me.fences[publish];
    r->writer_line = static_cast<uint16_t>(place.line);
    r->publish = publish;
  }
}

}  // namespace vllm_kunlun::sim
