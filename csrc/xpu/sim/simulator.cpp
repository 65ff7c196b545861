// SPDX-License-Identifier: Apache-2.0
// Launches: which core runs when.
#include "xpu/sim/simulator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "xpu/sim/fiber.h"
#include "xpu/sim/report.h"
#include "xpu/sim/state.h"

namespace vllm_kunlun::sim {

State state;
const Span nowhere{kGlobal, "", {}, nullptr, 0, 1, nullptr, nullptr};

namespace {

std::mutex one_launch;

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

}  // namespace vllm_kunlun::sim
