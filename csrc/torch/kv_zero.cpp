// SPDX-License-Identifier: Apache-2.0
#include "contracts/kv_zero.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

template <void (*kLaunch)(const ZeroKvBlocks&)>
void zero_kv_blocks(const Tensor& seg_addrs_ptr, const Tensor& block_ids_ptr,
                    int64_t n_blocks, int64_t n_segs, int64_t page_size_el,
                    int64_t block_size) {
  const OpCheck check("zero_kv_blocks", seg_addrs_ptr);
  check.at_least("n_blocks", n_blocks, 0);
  check.at_least("N_SEGS", n_segs, 0);
  check.at_least("BLOCK_SIZE", block_size, 1);
  if (page_size_el < 0 || page_size_el % block_size != 0) {
    check.fail("PAGE_SIZE_EL", "a multiple of BLOCK_SIZE " + std::to_string(block_size),
               std::to_string(page_size_el));
  }
  const ZeroKvBlocks args{
      {check.flat<const uint64_t>("seg_addrs_ptr", seg_addrs_ptr, n_segs)},
      check.flat<const int64_t>("block_ids_ptr", block_ids_ptr, n_blocks),
      n_blocks,
      n_segs,
      page_size_el};
  if (checks_indices()) {
    for (int64_t i = 0; i < n_blocks; ++i) {
      check.index("block_ids_ptr", i, args.block_ids[i], 0, INT64_MAX);
    }
  }
  kLaunch(args);
}

void on_host(const ZeroKvBlocks& a) {
  launch_on_host(host::zero_kv_blocks, a, a.num_blocks * a.num_segments, a.page_size);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  // The table of addresses is marked as written for the memory behind it.
  m.def(
      "zero_kv_blocks(Tensor(a!) seg_addrs_ptr, Tensor block_ids_ptr, int n_blocks, "
      "int N_SEGS, int PAGE_SIZE_EL, int BLOCK_SIZE) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("zero_kv_blocks", &zero_kv_blocks<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("zero_kv_blocks", &zero_kv_blocks<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("zero_kv_blocks", nothing_to_infer());
}

}  // namespace vllm_kunlun
