// SPDX-License-Identifier: Apache-2.0
#include "xpu/sim/simulator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>

#include "xpu/sim/fiber.h"

namespace vllm_kunlun::sim {
namespace {

// What memory holds before anything is stored there: neither a small number nor a
// finite one.
constexpr uint8_t kPoison = 0xff;
constexpr int kAlignment = 64;
constexpr int kMaxArrays = 32;  // that a core has at the same time

struct Copy {
  const Span* from;
  const void* src;
  const Span* to;
  void* dst;
  int bytes;
  Place place;
};

enum class Progress { kNew, kWaiting, kDone };

struct Core {
  int id = 0;
  uint16_t number = 0;  // over all clusters, from 1
  Progress progress = Progress::kNew;
  Place waits_at{nullptr, 0};
  std::unique_ptr<char[]> local;
  std::unique_ptr<LocalState[]> states;
  int local_used = 0;
  // Where bytes have been stored but not fenced yet.
  int dirty_begin = 0;
  int dirty_end = 0;
  uint16_t fences[3] = {};
  uint16_t fences_at_barrier[3] = {};
  Span spans[kMaxArrays];  // of the arrays, the last one declared last
  int arrays = 0;
  std::vector<Copy> copies;  // in flight
  Fiber* fiber = nullptr;

  bool is_at(const char* p) const {
    return p >= local.get() && p < local.get() + local_used;
  }
};

struct SharedDeclaration {
  std::unique_ptr<Records> records;
  std::unique_ptr<Span> span;
};

struct State {
  Machine machine;
  std::vector<Argument> arguments;
  std::unique_ptr<GlobalMemory> global;
  int64_t launches = 0;
  bool faulted = false;

  // Of the launch that is running.
  const char* kernel = "";
  const std::function<void()>* body = nullptr;
  Ids ids{};
  uint16_t epoch = 0;
  Core* core = nullptr;
  std::exception_ptr fault;

  std::vector<Core> cores;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> idle;
  std::unique_ptr<char[]> shared;
  int shared_used = 0;
  std::map<std::pair<std::string, int>, SharedDeclaration> declarations;
};

State state;
// What a null pointer points into.
const Span nowhere{kGlobal, "", {}, nullptr, 0, 1, nullptr, nullptr};
std::mutex one_launch;

std::string base_name(const char* file) {
  const char* slash = std::strrchr(file, '/');
  return slash == nullptr ? file : slash + 1;
}

std::string text(const Place& place) {
  return base_name(place.file) + ":" + std::to_string(place.line);
}

std::string who(int number) {
  const int cores = state.ids.cores;
  return "core " + std::to_string((number - 1) % cores) + " of cluster " +
         std::to_string((number - 1) / cores);
}

[[noreturn]] void fail(const Place& place, const std::string& what) {
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

// Memory that an unfinished copy of this core's writes cannot be read or written, and
// what it reads cannot be written.
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

// What one core does, on a fiber.
void run_core(void*) {
  try {
    (*state.body)();
    if (!state.core->copies.empty()) {
      fail(state.core->copies.back().place,
           "returns before a fence completes this copy");
    }
  } catch (...) {
    state.fault = std::current_exception();
  }
  state.core->progress = Progress::kDone;
}

void step(Core& core) {
  if (core.progress == Progress::kNew) {
    if (state.idle.empty()) {
      state.fibers.push_back(std::make_unique<Fiber>(run_core, nullptr));
      state.idle.push_back(state.fibers.back().get());
    }
    core.fiber = state.idle.back();
    state.idle.pop_back();
  }
  state.core = &core;
  state.ids.core = core.id;
  core.fiber->resume();
  if (state.fault) std::rethrow_exception(state.fault);
  if (core.progress == Progress::kDone) state.idle.push_back(core.fiber);
}

// All cores have come to a barrier or to their end.
void check_barrier() {
  const Core* waiting = nullptr;
  const Core* done = nullptr;
  for (const Core& core : state.cores) {
    (core.progress == Progress::kDone ? done : waiting) = &core;
  }
  for (const Core& core : state.cores) {
    if (core.progress == Progress::kDone) continue;
    state.core = const_cast<Core*>(waiting);
    if (done != nullptr) {
      fail(waiting->waits_at,
           "waits at a barrier for " + who(done->number) + ", which has returned");
    }
    if (core.waits_at.line != waiting->waits_at.line ||
        std::strcmp(core.waits_at.file, waiting->waits_at.file) != 0) {
      fail(waiting->waits_at, "waits at a barrier while " + who(core.number) +
                                  " waits at that of " + text(core.waits_at));
    }
  }
}

void run_cluster(int cluster, std::mt19937_64& random) {
  const int n = state.ids.cores;
  state.ids.cluster = cluster;
  state.epoch = 0;
  state.shared_used = 0;
  state.declarations.clear();
  for (Core& core : state.cores) {
    core.number = static_cast<uint16_t>(cluster * n + core.id + 1);
    core.progress = Progress::kNew;
    core.arrays = core.local_used = core.dirty_begin = core.dirty_end = 0;
    std::fill_n(core.fences, 3, 0);
    std::fill_n(core.fences_at_barrier, 3, 0);
    core.copies.clear();
  }
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (bool all_done = false; !all_done;) {
    if (state.machine.schedule != 0) std::shuffle(order.begin(), order.end(), random);
    all_done = true;
    for (const int i : order) {
      step(state.cores[i]);
      all_done = all_done && state.cores[i].progress == Progress::kDone;
    }
    if (all_done) break;
    check_barrier();
    ++state.epoch;
    for (Core& core : state.cores) {
      std::copy_n(core.fences, 3, core.fences_at_barrier);
    }
  }
}

void prepare_cores() {
  const Machine& m = state.machine;
  state.ids = {0, m.cores, 0, m.clusters};
  state.cores.clear();
  state.cores.resize(m.cores);
  for (int i = 0; i < m.cores; ++i) {
    Core& core = state.cores[i];
    core.id = i;
    core.local.reset(new char[m.local_bytes]);
    core.states.reset(new LocalState[m.local_bytes]);
  }
  state.shared.reset(new char[m.shared_bytes]);
}

bool cores_are_ready() {
  const Machine& m = state.machine;
  return !state.faulted && static_cast<int>(state.cores.size()) == m.cores &&
         state.ids.clusters == m.clusters;
}

}  // namespace

Machine& machine() {
  // Another machine has other cores.
  state.cores.clear();
  return state.machine;
}

void set_arguments(std::vector<Argument> arguments) {
  state.arguments = std::move(arguments);
  state.global.reset();
}

void add_argument(Argument argument) {
  state.arguments.push_back(std::move(argument));
  state.global.reset();
}

int64_t launches() { return state.launches; }

const Ids& ids() { return state.ids; }

const Span* span_at(const void* p) {
  if (state.global == nullptr) {
    state.global = std::make_unique<GlobalMemory>(state.arguments);
  }
  return p == nullptr ? &nowhere : state.global->find(p);
}

void run(const char* kernel, const std::function<void()>& core) {
  const std::lock_guard<std::mutex> lock(one_launch);
  if (!cores_are_ready()) {
    state.idle.clear();
    state.fibers.clear();
    state.fault = nullptr;
    prepare_cores();
  }
  // A fault leaves fibers in the middle of a kernel.
  state.faulted = true;
  ++state.launches;
  state.kernel = kernel;
  state.body = &core;
  std::mt19937_64 random(state.machine.schedule);
  std::vector<int> order(state.machine.clusters);
  std::iota(order.begin(), order.end(), 0);
  if (state.machine.schedule != 0) std::shuffle(order.begin(), order.end(), random);
  for (const int cluster : order) run_cluster(cluster, random);
  state.faulted = false;
  // Who wrote what matters within a launch alone.
  state.global.reset();
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

void barrier(const Place& place) {
  Core& me = *state.core;
  if (!me.copies.empty()) {
    fail(place, "comes to a barrier before a fence completes the copy of " +
                    text(me.copies.back().place));
  }
  me.progress = Progress::kWaiting;
  me.waits_at = place;
  me.fiber->pause();
}

LocalSpan::LocalSpan(int bytes, int element, const Place& place) {
  Core& me = *state.core;
  const int begin = me.local_used;
  me.local_used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
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
  me.local_used -=
      static_cast<int>((span_->bytes + kAlignment - 1) / kAlignment * kAlignment);
  --me.arrays;
}

const Span* shared_span(int bytes, int element, const Place& place) {
  const auto key = std::make_pair(std::string(place.file), place.line);
  const auto found = state.declarations.find(key);
  if (found != state.declarations.end()) return found->second.span.get();
  const int begin = state.shared_used;
  state.shared_used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
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
