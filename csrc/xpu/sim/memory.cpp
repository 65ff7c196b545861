// SPDX-License-Identifier: Apache-2.0
#include "xpu/sim/memory.h"

#include <algorithm>
#include <utility>

namespace vllm_kunlun::sim {
namespace {

constexpr int kLargestGranule = 8;

}  // namespace

void* begin_of(const Span* span) { return span->begin; }

GlobalMemory::GlobalMemory(std::vector<Argument> arguments)
    : arguments_(std::move(arguments)) {
  for (const Argument& a : arguments_) {
    if (a.bytes <= 0) continue;
    char* begin = static_cast<char*>(const_cast<void*>(a.data));
    spans_.push_back(
        {kGlobal, a.name.c_str(), {}, begin, a.bytes, a.element, nullptr, nullptr});
  }
  std::sort(spans_.begin(), spans_.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  // Arguments that overlap share their records, so that no race hides behind a second
  // name.
  for (size_t i = 0; i < spans_.size();) {
    char* end = spans_[i].begin;
    int granule = kLargestGranule;
    size_t j = i;
    for (; j < spans_.size() && (j == i || spans_[j].begin < end); ++j) {
      end = std::max(end, spans_[j].begin + spans_[j].bytes);
      granule = std::min(granule, spans_[j].element == 0 ? 4 : spans_[j].element);
    }
    records_.push_back(
        std::make_unique<Records>(spans_[i].begin, end - spans_[i].begin, granule));
    for (; i < j; ++i) spans_[i].records = records_.back().get();
  }
}

const Span* GlobalMemory::find(const void* p) const {
  const Span* found = nullptr;
  for (const Span& span : spans_) {
    const char* at = static_cast<const char*>(p);
    if (at < span.begin || at >= span.begin + span.bytes) continue;
    // Best where the span begins at p; of those the longest.
    const bool starts = at == span.begin;
    if (found == nullptr ||
        (starts && (at != found->begin || span.bytes > found->bytes))) {
      found = &span;
    }
  }
  return found;
}

}  // namespace vllm_kunlun::sim
