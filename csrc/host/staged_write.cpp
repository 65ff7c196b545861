// SPDX-License-Identifier: Apache-2.0
#include "contracts/staged_write.h"

#include <cstring>

#include "host/kernels.h"

namespace vllm_kunlun::host {

void apply_write(const ApplyWrite& a) {
  const char* contents = static_cast<const char*>(a.contents);
  int64_t begin = 0;
  for (int64_t w = 0; w < a.num_writes; ++w) {
    const int64_t end = a.cu_lens[w];
    char* output = static_cast<char*>(a.output);
    int64_t stride = a.output_stride;
    if (a.group_ids != nullptr) {
      output = reinterpret_cast<char*>(a.group_outputs[a.group_ids[w]]);
      stride = a.group_strides[a.group_ids[w]];
    }
    if (end > begin) {
      std::memcpy(output + (a.indices[w] * stride + a.starts[w]) * a.element_size,
                  contents + begin * a.element_size, (end - begin) * a.element_size);
    }
    begin = end;
  }
}

}  // namespace vllm_kunlun::host
