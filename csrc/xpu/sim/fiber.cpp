// SPDX-License-Identifier: Apache-2.0
#include "xpu/sim/fiber.h"

#include <cstdint>

#ifdef __x86_64__

// Saves what a function must keep, and where the stack is; goes on where another stack
// was left. swapcontext() does the same with a system call each time, which is most of
// what a small launch would cost.
asm(R"(
.text
.hidden vllm_kunlun_sim_switch
.globl vllm_kunlun_sim_switch
.type vllm_kunlun_sim_switch, @function
vllm_kunlun_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size vllm_kunlun_sim_switch, . - vllm_kunlun_sim_switch
)");
extern "C" void vllm_kunlun_sim_switch(void** from, void* to);

#endif

namespace vllm_kunlun::sim {
namespace {

Fiber* starting = nullptr;

}  // namespace

void Fiber::run(Fiber* self) {
  for (;;) {
    self->body_(self->context_);
    self->pause();
  }
}

void Fiber::start() { run(starting); }

#ifdef __x86_64__

Fiber::Fiber(void (*body)(void*), void* context)
    : body_(body), context_(context), stack_(new char[kStackBytes]) {
  // As if start() had been called with an empty set of saved registers.
  uintptr_t top = reinterpret_cast<uintptr_t>(stack_.get() + kStackBytes);
  top = top / 16 * 16;
  void** frame = reinterpret_cast<void**>(top);
  *--frame = nullptr;  // start() has no caller; aligns the stack as a call does
  *--frame = reinterpret_cast<void*>(&Fiber::start);
  for (int i = 0; i < 6; ++i) *--frame = nullptr;
  own_ = frame;
}

void Fiber::resume() {
  starting = this;
  vllm_kunlun_sim_switch(&caller_, own_);
}

void Fiber::pause() { vllm_kunlun_sim_switch(&own_, caller_); }

#else

Fiber::Fiber(void (*body)(void*), void* context)
    : body_(body), context_(context), stack_(new char[kStackBytes]) {
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_.get();
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  makecontext(&own_, &Fiber::start, 0);
}

void Fiber::resume() {
  starting = this;
  swapcontext(&caller_, &own_);
}

void Fiber::pause() { swapcontext(&own_, &caller_); }

#endif

}  // namespace vllm_kunlun::sim
