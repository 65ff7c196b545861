// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "xpu/host_side.h"
#include "xpu/kernels/staged_write.h"

namespace vllm_kunlun {
namespace xpu {

int launch(const ApplyWrite& a, const Stream& stream) {
  if (!fit(a.num_writes)) return kTooLarge;
  if (a.num_writes == 0) return kOk;
#ifdef VLLM_KUNLUN_SIMULATED
  if (a.group_ids != nullptr) {
    // How many rows a group's output has is not in the contract: the last one written.
    const auto words_of = [&](int64_t g) {
      int64_t rows = 0;
      for (int64_t w = 0; w < a.num_writes; ++w) {
        if (a.group_ids[w] == g) rows = std::max<int64_t>(rows, a.indices[w] + 1);
      }
      return rows * a.group_strides[g];
    };
    const int32_t last = *std::max_element(a.group_ids, a.group_ids + a.num_writes);
    declare_tables("output_ptr", a.group_outputs, last + 1, words_of);
  }
#endif
  return VLLM_KUNLUN_LAUNCH(stream, apply_write, static_cast<Int32*>(a.output),
                            Int64{a.output_stride}, device(a.group_outputs),
                            device(a.group_strides), a.indices, a.starts,
                            static_cast<const Int32*>(a.contents), a.cu_lens,
                            a.group_ids, i32(a.element_size / 4), i32(a.num_writes));
}

}  // namespace xpu
}  // namespace vllm_kunlun
