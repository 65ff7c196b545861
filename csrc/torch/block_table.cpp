// SPDX-License-Identifier: Apache-2.0
#include "contracts/block_table.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/launch.h"

namespace vllm_kunlun {
namespace {

using at::Tensor;

void check_indices(const OpCheck& check, const GatherBlockTables& a,
                   int64_t max_num_reqs) {
  for (int64_t i = 0; i < std::min(a.num_reqs, a.num_rows); ++i) {
    const int64_t req = a.batch_idx_to_req_idx[i];
    check.index("batch_idx_to_req_idx", i, req, 0, max_num_reqs);
    for (int64_t g = 0; g < a.num_groups; ++g) {
      const int64_t at = g * a.num_blocks_stride + req;
      check.index("num_blocks_ptr", at, a.num_blocks[at], 0,
                  a.block_table_strides[g] + 1);
    }
  }
}

template <void (*kLaunch)(const GatherBlockTables&)>
void gather_block_tables(const Tensor& batch_idx_to_req_idx,
                         const Tensor& src_block_table_ptrs,
                         const Tensor& dst_block_table_ptrs,
                         const Tensor& block_table_strides,
                         const Tensor& num_blocks_ptr, int64_t num_blocks_stride,
                         int64_t num_reqs, int64_t grid_x, int64_t grid_y) {
  const OpCheck check("gather_block_tables", batch_idx_to_req_idx);
  check.at_least("num_reqs", num_reqs, 0);
  const GatherBlockTables args{
      check.flat<const int32_t>("batch_idx_to_req_idx", batch_idx_to_req_idx,
                                std::min(num_reqs, grid_y)),
      {check.flat<const uint64_t>("src_block_table_ptrs", src_block_table_ptrs,
                                  grid_x)},
      {check.flat<const uint64_t>("dst_block_table_ptrs", dst_block_table_ptrs,
                                  grid_x)},
      check.flat<const int64_t>("block_table_strides", block_table_strides, grid_x),
      check.rows<const int32_t>("num_blocks_ptr", num_blocks_ptr, num_blocks_stride,
                                grid_x),
      num_blocks_stride,
      num_reqs,
      grid_x,
      grid_y};
  if (checks_indices()) check_indices(check, args, num_blocks_ptr.size(1));
  kLaunch(args);
}

void on_host(const GatherBlockTables& a) {
  const int64_t elements = a.num_groups > 0 ? a.block_table_strides[0] : 1;
  launch_on_host(host::gather_block_tables, a, a.num_groups * a.num_rows, elements);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(vllm_kunlun, m) {
  // The tables of addresses stand for the tensors behind them: marked as written, so
  // that no graph takes the op for one without effect.
  m.def(
      "gather_block_tables(Tensor batch_idx_to_req_idx, Tensor src_block_table_ptrs, "
      "Tensor(a!) dst_block_table_ptrs, Tensor block_table_strides, "
      "Tensor num_blocks_ptr, int num_blocks_stride, int num_reqs, int grid_x, "
      "int grid_y) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("gather_block_tables", &gather_block_tables<on_host>);
}

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("gather_block_tables", nothing_to_infer());
}

}  // namespace vllm_kunlun
