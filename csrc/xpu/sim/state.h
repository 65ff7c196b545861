// SPDX-License-Identifier: Apache-2.0
// The machine while a launch runs.
#ifndef VLLM_KUNLUN_XPU_SIM_STATE_H_
#define VLLM_KUNLUN_XPU_SIM_STATE_H_

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "xpu/sim/fiber.h"
#include "xpu/sim/memory.h"
#include "xpu/sim/simulator.h"

namespace vllm_kunlun::sim {

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

extern State state;

// What a null pointer points into.
extern const Span nowhere;

}  // namespace vllm_kunlun::sim

#endif  // VLLM_KUNLUN_XPU_SIM_STATE_H_
