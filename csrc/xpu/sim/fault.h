// SPDX-License-Identifier: Apache-2.0
#ifndef VLLM_KUNLUN_XPU_SIM_FAULT_H_
#define VLLM_KUNLUN_XPU_SIM_FAULT_H_

#include <stdexcept>

namespace vllm_kunlun::sim {

// What a kernel did wrong, in one sentence: source line, kernel, core, and memory.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace vllm_kunlun::sim

#endif  // VLLM_KUNLUN_XPU_SIM_FAULT_H_
