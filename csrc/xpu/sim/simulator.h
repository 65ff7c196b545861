// SPDX-License-Identifier: Apache-2.0
// Launches a kernel on the simulated XPU (docs/simulator.md).
#ifndef VLLM_KUNLUN_XPU_SIM_SIMULATOR_H_
#define VLLM_KUNLUN_XPU_SIM_SIMULATOR_H_

#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "xpu/sim/fault.h"
#include "xpu/sim/language.h"
#include "xpu/sim/memory.h"

namespace vllm_kunlun::sim {

struct Machine {
  int clusters = 12;
  int cores = 64;
  // Decides in which order clusters, and a cluster's cores between two barriers, run.
  // 0: in the order of their numbers.
  uint64_t schedule = 0;
  int local_bytes = 6 * 1024;     // of a core
  int shared_bytes = 256 * 1024;  // of a cluster
  // Off, a race goes on with whatever the schedule gives.
  bool finds_races = true;
};

// What the next launches run on.
Machine& machine();

// The memory that the next launches may touch.
void set_arguments(std::vector<Argument> arguments);
void add_argument(Argument argument);

void run(const char* kernel, const std::function<void()>& core);

// How many launches there were, in this process.
int64_t launches();

template <class Parameter, class T>
struct Bind {
  static_assert(std::is_same_v<Parameter, T>,
                "a kernel's parameter must be given its very type: nothing converts "
                "where a kernel is launched on the XPU");
  static Parameter value(const T& x) { return x; }
};
template <class P, class T>
struct Bind<Pointer<P, kGlobal>, T*> {
  static_assert(std::is_same_v<std::remove_const_t<P>, std::remove_const_t<T>>);
  static Pointer<P, kGlobal> value(T* p) { return {p, span_at(p)}; }
};

template <class... Parameters, class... Arguments>
int launch(const char* name, void (*kernel)(Parameters...), Arguments... arguments) {
  const std::tuple<Parameters...> values{
      Bind<Parameters, Arguments>::value(arguments)...};
  run(name, [&] { std::apply(kernel, values); });
  return 0;
}

}  // namespace vllm_kunlun::sim

#endif  // VLLM_KUNLUN_XPU_SIM_SIMULATOR_H_
