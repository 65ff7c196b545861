// SPDX-License-Identifier: Apache-2.0
// Prints the draws of the (seed, offset) pairs on its command line, one per line.
#include <cstdio>
#include <cstdlib>

#include "contracts/philox.h"

int main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const uint64_t seed = std::strtoull(argv[i], nullptr, 0);
    const uint64_t offset = std::strtoull(argv[i + 1], nullptr, 0);
    const vllm_kunlun::PhiloxWords words = vllm_kunlun::philox(
        seed, static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32));
    std::printf("%u %a\n", words.w0,
                static_cast<double>(vllm_kunlun::unit_float(words.w0)));
  }
}
