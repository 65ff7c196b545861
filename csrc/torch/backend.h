// SPDX-License-Identifier: Apache-2.0
// Which kernels an op's launch goes to. Tensors of the CPU go to the host's, or with
// VLLM_KUNLUN_BACKEND=sim to the XPU's on the simulator, where there is one.
#ifndef VLLM_KUNLUN_TORCH_BACKEND_H_
#define VLLM_KUNLUN_TORCH_BACKEND_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <type_traits>
#include <utility>

#include "xpu/kernels.h"

namespace vllm_kunlun {

// The op whose arguments are being checked, on this thread, and these arguments: the
// simulator lets a kernel touch nothing else.
void begin_arguments(const char* op, const at::Device& device);
void record_argument(const char* name, const at::Tensor& t);

bool simulates();

// Whether the op's tensors can be looked at from here.
bool is_host_memory();

// Launches a kernel of the XPU on the simulator.
//
// Raises a ValueError for what the kernel cannot do, and sim::Fault for what it does
// wrong.
void run_simulated(const std::function<int()>& launch);

template <class Args, class = void>
struct HasXpuKernel : std::false_type {};
template <class Args>
struct HasXpuKernel<Args, std::void_t<decltype(xpu::launch(std::declval<const Args&>(),
                                                           xpu::Stream{}))>>
    : std::true_type {};

#ifdef VLLM_KUNLUN_XPU
// Launches the XPU's kernel of a contract into torch's current stream of the op's
// device. Kunlun's tensors say that they are CUDA's. Not yet run on hardware.
//
// Raises a ValueError for what the kernel cannot do, a RuntimeError for what the
// runtime says.
void run_on_xpu(const std::function<int(const xpu::Stream&)>& launch);

template <class Args>
void on_xpu(const Args& args) {
  run_on_xpu([&](const xpu::Stream& stream) { return xpu::launch(args, stream); });
}
#endif

// Whether the launch is done.
template <class Args>
bool simulated([[maybe_unused]] const Args& args) {
#ifdef VLLM_KUNLUN_SIMULATED
  if constexpr (HasXpuKernel<Args>::value) {
    if (simulates()) {
      run_simulated([&] { return xpu::launch(args, xpu::Stream{}); });
      return true;
    }
  }
#endif
  return false;
}

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_TORCH_BACKEND_H_
