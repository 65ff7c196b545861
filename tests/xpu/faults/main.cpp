// SPDX-License-Identifier: Apache-2.0
// Runs kernels of kernels.xpu, as each line of the standard input says:
//   KERNEL CLUSTERS CORES SCHEDULE FINDS_RACES
// Prints for each "fault: " and the fault, or "result: " and out[0], which is right
// where it is 2, or "wrong: " and the first other element that is not 2 * in[i].
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "kernels.h"
#include "xpu/sim/simulator.h"

namespace vllm_kunlun {
namespace {

constexpr int kElements = 256;

struct Data {
  std::vector<float> out = std::vector<float>(kElements, -1.0f);
  std::vector<float> in = std::vector<float>(kElements);
  std::vector<int64_t> pos = std::vector<int64_t>(kElements);
};

template <class T>
sim::Argument argument(const char* name, const std::vector<T>& data) {
  return {name, data.data(), static_cast<int64_t>(data.size() * sizeof(T)), sizeof(T)};
}

void run(const char* name, Data& d) {
  float* out = d.out.data();
  const float* in = d.in.data();
  sim::set_arguments(
      {argument("out", d.out), argument("in", d.in), argument("pos", d.pos)});
#define X(kernel)                                          \
  if (std::strcmp(name, #kernel) == 0) {                   \
    sim::launch(#kernel, xpu::kernel, out, in, kElements); \
    return;                                                \
  }
  VLLM_KUNLUN_PLAIN_KERNELS(X)
#undef X
  const xpu::Int64* pos = reinterpret_cast<const xpu::Int64*>(d.pos.data());
  if (std::strcmp(name, "int64_right") == 0) {
    sim::launch(name, xpu::int64_right, out, in, pos, kElements);
  } else if (std::strcmp(name, "low_half_of_int64") == 0) {
    sim::launch(name, xpu::low_half_of_int64, out, in,
                reinterpret_cast<const int*>(pos), kElements);
  } else if (std::strcmp(name, "null_pointer") == 0) {
    const int* none = nullptr;
    sim::launch(name, xpu::null_pointer, out, in, none, kElements);
  } else {
    std::fprintf(stderr, "there is no kernel %s\n", name);
    std::exit(2);
  }
}

void report(const char* name) {
  Data d;
  for (int i = 0; i < kElements; ++i) {
    d.in[i] = static_cast<float>(i + 1);
    d.pos[i] = i;
  }
  try {
    run(name, d);
  } catch (const sim::Fault& fault) {
    std::printf("fault: %s\n", fault.what());
    return;
  }
  for (int i = 1; i < kElements; ++i) {
    if (d.out[i] != 2.0f * d.in[i]) {
      std::printf("wrong: out[0] is %g, out[%d] is %g\n", d.out[0], i, d.out[i]);
      return;
    }
  }
  std::printf("result: %g\n", d.out[0]);
}

}  // namespace
}  // namespace vllm_kunlun

int main() {
  vllm_kunlun::sim::Machine& machine = vllm_kunlun::sim::machine();
  std::string kernel;
  while (std::cin >> kernel >> machine.clusters >> machine.cores >> machine.schedule >>
         machine.finds_races) {
    vllm_kunlun::report(kernel.c_str());
  }
}
