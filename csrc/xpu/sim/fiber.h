// SPDX-License-Identifier: Apache-2.0
// Threads of control that take turns on one thread: what a core is while it waits for
// others at a barrier.
#ifndef VLLM_KUNLUN_XPU_SIM_FIBER_H_
#define VLLM_KUNLUN_XPU_SIM_FIBER_H_

#include <cstddef>
#include <memory>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace vllm_kunlun::sim {

class Fiber {
 public:
  // Calls body(context) once for each resume() that finds it idle.
  Fiber(void (*body)(void*), void* context);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs until the body ends or pauses.
  void resume();
  // Back to who resumed; to be called by the body.
  void pause();

 private:
  static constexpr size_t kStackBytes = 128 * 1024;

  static void run(Fiber* self);
  static void start();

  void (*body_)(void*);
  void* context_;
  std::unique_ptr<char[]> stack_;
#ifdef __x86_64__
  void* own_ = nullptr;
  void* caller_ = nullptr;
#else
  ucontext_t own_;
  ucontext_t caller_;
#endif
};

}  // namespace vllm_kunlun::sim

#endif  // VLLM_KUNLUN_XPU_SIM_FIBER_H_
