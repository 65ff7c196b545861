// SPDX-License-Identifier: Apache-2.0
#include "xpu/sim/report.h"

#include <cstring>

#include "xpu/sim/fault.h"
#include "xpu/sim/state.h"

namespace vllm_kunlun::sim {
namespace {

std::string base_name(const char* file) {
  const char* slash = std::strrchr(file, '/');
  return slash == nullptr ? file : slash + 1;
}

}  // namespace

std::string text(const Place& place) {
  return base_name(place.file) + ":" + std::to_string(place.line);
}

std::string who(int number) {
  const int cores = state.ids.cores;
  return "core " + std::to_string((number - 1) % cores) + " of cluster " +
         std::to_string((number - 1) / cores);
}

void fail(const Place& place, const std::string& what) {
  throw Fault(text(place) + ": " + state.kernel + ", " + who(state.core->number) +
              " (" + std::to_string(state.ids.clusters) + "x" +
              std::to_string(state.ids.cores) + ", schedule " +
              std::to_string(state.machine.schedule) + "), " + what + ".");
}

std::string name_of(const Span* span) {
  switch (span->space) {
    case kGlobal:
      return span->name;
    case kLocal:
      return "the array of " + text(span->declared);
    case kShared:
      return "the shared array of " + text(span->declared);
  }
  return "";
}

std::string range(const Span* span, const void* p, int64_t bytes) {
  const int64_t begin = static_cast<const char*>(p) - span->begin;
  return "bytes [" + std::to_string(begin) + ", " + std::to_string(begin + bytes) +
         ") of " + name_of(span);
}

}  // namespace vllm_kunlun::sim
