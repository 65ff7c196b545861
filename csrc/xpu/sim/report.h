// SPDX-License-Identifier: Apache-2.0
// How a fault is said.
#ifndef VLLM_KUNLUN_XPU_SIM_REPORT_H_
#define VLLM_KUNLUN_XPU_SIM_REPORT_H_

#include <cstdint>
#include <string>

#include "xpu/sim/checks.h"

namespace vllm_kunlun::sim {

std::string text(const Place& place);
// A core, by its number over all clusters.
std::string who(int number);
std::string name_of(const Span* span);
std::string range(const Span* span, const void* p, int64_t bytes);

// Raises the Fault of the running core.
[[noreturn]] void fail(const Place& place, const std::string& what);

}  // namespace vllm_kunlun::sim

#endif  // VLLM_KUNLUN_XPU_SIM_REPORT_H_
