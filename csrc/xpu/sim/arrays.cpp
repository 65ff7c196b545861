// SPDX-License-Identifier: Apache-2.0
// A core's local memory and a cluster's shared one, from which arrays are made.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "xpu/sim/report.h"
#include "xpu/sim/state.h"

namespace vllm_kunlun::sim {
namespace {

// What memory holds before anything is stored there: neither a small number nor a
// finite one.
constexpr uint8_t kPoison = 0xff;
constexpr int kAlignment = 64;

int aligned(int64_t bytes) {
  return static_cast<int>((bytes + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace

LocalSpan::LocalSpan(int bytes, int element, const Place& place) {
  Core& me = *state.core;
  const int begin = me.local_used;
  me.local_used += aligned(bytes);
  if (me.local_used > state.machine.local_bytes) {
    fail(place, "has arrays of " + std::to_string(me.local_used) +
                    " bytes, but local memory has " +
                    std::to_string(state.machine.local_bytes));
  }
  std::memset(me.local.get() + begin, kPoison, bytes);
  std::memset(me.states.get() + begin, kUnwritten, bytes);
  if (me.arrays == kMaxArrays) {
    fail(place, "has more than " + std::to_string(kMaxArrays) + " local arrays");
  }
  Span& span = me.spans[me.arrays++];
  span = {kLocal, "",      place,   me.local.get() + begin,
          bytes,  element, nullptr, me.states.get() + begin};
  span_ = &span;
}

LocalSpan::~LocalSpan() {
  Core& me = *state.core;
  me.local_used -= aligned(span_->bytes);
  --me.arrays;
}

const Span* shared_span(int bytes, int element, const Place& place) {
  const auto key = std::make_pair(std::string(place.file), place.line);
  const auto found = state.declarations.find(key);
  if (found != state.declarations.end()) return found->second.span.get();
  const int begin = state.shared_used;
  state.shared_used += aligned(bytes);
  if (state.shared_used > state.machine.shared_bytes) {
    fail(place, "has shared arrays of " + std::to_string(state.shared_used) +
                    " bytes, but shared memory has " +
                    std::to_string(state.machine.shared_bytes));
  }
  char* memory = state.shared.get() + begin;
  std::memset(memory, kPoison, bytes);
  SharedDeclaration declared;
  declared.records = std::make_unique<Records>(memory, bytes, std::min(element, 4));
  declared.span = std::make_unique<Span>(Span{
      kShared, "", place, memory, bytes, element, declared.records.get(), nullptr});
  const Span* span = declared.span.get();
  state.declarations.emplace(key, std::move(declared));
  return span;
}

}  // namespace vllm_kunlun::sim
