// SPDX-License-Identifier: Apache-2.0
// How a checked launch reaches a device's kernel.
#ifndef VLLM_KUNLUN_TORCH_LAUNCH_H_
#define VLLM_KUNLUN_TORCH_LAUNCH_H_

#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#ifdef __SANITIZE_THREAD__
#include <thread>
#endif

#include "torch/backend.h"

namespace vllm_kunlun {

// Elements that one thread handles before a second one is worth waking: some 50
// microseconds of work, so that a small decode batch stays on the calling thread.
inline constexpr int64_t kElementsPerThread = 262144;

#ifdef __SANITIZE_THREAD__
// ThreadSanitizer does not see how libgomp's threads wait for each other. Threads of
// our own, which even the smallest launches of a test are shared out to, take their
// place.
template <class Work>
void parallel_for(int64_t programs, int64_t /*grain*/, const Work& work) {
  constexpr int64_t kThreads = 4;
  std::thread threads[kThreads];
  for (int64_t t = 0; t < kThreads; ++t) {
    threads[t] =
        std::thread(work, programs * t / kThreads, programs * (t + 1) / kThreads);
  }
  for (std::thread& thread : threads) thread.join();
}
#else
template <class Work>
void parallel_for(int64_t programs, int64_t grain, const Work& work) {
  at::parallel_for(0, programs, grain, work);
}
#endif

// Runs the host kernel over all programs of a launch, unless the XPU's is simulated.
// `elements` is a guess at what one program touches.
template <class Args>
void launch_on_host(void (*kernel)(const Args&, int64_t, int64_t), const Args& args,
                    int64_t programs, int64_t elements) {
  if (simulated(args)) return;
  const int64_t grain = kElementsPerThread / std::max<int64_t>(elements, 1);
  parallel_for(programs, std::max<int64_t>(grain, 1),
               [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

inline void drop_arguments(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
}

// The implementation for meta tensors of an op that only writes to its arguments.
inline torch::CppFunction nothing_to_infer() {
  return torch::CppFunction::makeFromBoxedFunction<&drop_arguments>();
}

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_TORCH_LAUNCH_H_
