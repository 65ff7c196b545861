// SPDX-License-Identifier: Apache-2.0
#include "contracts/block_table.h"

#include "host/kernels.h"
#include "torch/check.h"
#include "torch/checked.h"
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

void check_indices(const OpCheck& check, const ComputeSlotMappings& a,
                   int64_t num_positions) {
  for (int64_t i = 0; i < a.num_columns; ++i) {
    check.index("query_start_loc", i, a.query_start_loc[i],
                i > 0 ? a.query_start_loc[i - 1] : 0, num_positions + 1);
  }
  for (int64_t i = 0; i + 1 < a.num_columns; ++i) {
    check.index("idx_mapping", i, a.idx_mapping[i], 0, INT64_MAX);
    for (int64_t g = 0; g < a.num_groups; ++g) {
      const int64_t limit = a.block_table_strides[g] * a.block_sizes[g] * a.cp_size;
      for (int64_t t = a.query_start_loc[i]; t < a.query_start_loc[i + 1]; ++t) {
        check.index("pos", t, a.pos[t], 0, limit);
      }
    }
  }
}

}  // namespace

GatherBlockTables checked_gather_block_tables(
    const OpCheck& check, const Tensor& batch_idx_to_req_idx,
    const Tensor& src_block_table_ptrs, const Tensor& dst_block_table_ptrs,
    const Tensor& block_table_strides, const Tensor& num_blocks_ptr,
    int64_t num_blocks_stride, int64_t num_reqs, int64_t grid_x, int64_t grid_y) {
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
  return args;
}

ComputeSlotMappings checked_compute_slot_mappings(
    const OpCheck& check, int64_t max_num_tokens, const Tensor& idx_mapping,
    const Tensor& query_start_loc, const Tensor& pos, const Tensor& block_table_ptrs,
    const Tensor& block_table_strides, const Tensor& block_sizes,
    const Tensor& slot_mappings_ptr, int64_t slot_mappings_stride, int64_t cp_rank,
    int64_t cp_size, int64_t cp_interleave, int64_t pad_id, int64_t grid_x,
    int64_t grid_y) {
  check.at_least("CP_SIZE", cp_size, 1);
  check.at_least("CP_INTERLEAVE", cp_interleave, 1);
  check.in_range("cp_rank", cp_rank, 0, cp_size);
  const ComputeSlotMappings args{
      max_num_tokens,
      check.flat<const int32_t>("idx_mapping", idx_mapping, grid_y - 1),
      check.flat<const int32_t>("query_start_loc", query_start_loc, grid_y),
      check.flat<const int64_t>("pos", pos, 0),
      {check.flat<const uint64_t>("block_table_ptrs", block_table_ptrs, grid_x)},
      check.flat<const int64_t>("block_table_strides", block_table_strides, grid_x),
      check.flat<const int32_t>("block_sizes", block_sizes, grid_x),
      check.rows<int64_t>("slot_mappings_ptr", slot_mappings_ptr, slot_mappings_stride,
                          grid_x),
      slot_mappings_stride,
      cp_rank,
      cp_size,
      cp_interleave,
      pad_id,
      grid_x,
      grid_y};
  check.in_range("max_num_tokens", max_num_tokens, 0, slot_mappings_ptr.size(-1) + 1);
  if (checks_indices()) {
    check_indices(check, args, std::min(pos.numel(), slot_mappings_ptr.size(-1)));
  }
  return args;
}

namespace {

template <void (*kLaunch)(const GatherBlockTables&)>
void gather_block_tables(const Tensor& batch_idx_to_req_idx,
                         const Tensor& src_block_table_ptrs,
                         const Tensor& dst_block_table_ptrs,
                         const Tensor& block_table_strides,
                         const Tensor& num_blocks_ptr, int64_t num_blocks_stride,
                         int64_t num_reqs, int64_t grid_x, int64_t grid_y) {
  const OpCheck check("gather_block_tables", batch_idx_to_req_idx);
  kLaunch(checked_gather_block_tables(check, batch_idx_to_req_idx, src_block_table_ptrs,
                                      dst_block_table_ptrs, block_table_strides,
                                      num_blocks_ptr, num_blocks_stride, num_reqs,
                                      grid_x, grid_y));
}

void on_host(const GatherBlockTables& a) {
  const int64_t elements = a.num_groups > 0 ? a.block_table_strides[0] : 1;
  launch_on_host(host::gather_block_tables, a, a.num_groups * a.num_rows, elements);
}

template <void (*kLaunch)(const ComputeSlotMappings&)>
void compute_slot_mappings(int64_t max_num_tokens, const Tensor& idx_mapping,
                           const Tensor& query_start_loc, const Tensor& pos,
                           const Tensor& block_table_ptrs,
                           const Tensor& block_table_strides, const Tensor& block_sizes,
                           const Tensor& slot_mappings_ptr,
                           int64_t slot_mappings_stride, int64_t cp_rank,
                           int64_t cp_size, int64_t cp_interleave, int64_t pad_id,
                           int64_t grid_x, int64_t grid_y) {
  const OpCheck check("compute_slot_mappings", idx_mapping);
  kLaunch(checked_compute_slot_mappings(
      check, max_num_tokens, idx_mapping, query_start_loc, pos, block_table_ptrs,
      block_table_strides, block_sizes, slot_mappings_ptr, slot_mappings_stride,
      cp_rank, cp_size, cp_interleave, pad_id, grid_x, grid_y));
}

void on_host(const ComputeSlotMappings& a) {
  const int64_t programs = a.num_groups * a.num_columns;
  launch_on_host(host::compute_slot_mappings, a, programs,
                 a.max_num_tokens / std::max<int64_t>(a.num_columns, 1));
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
  m.def(
      "compute_slot_mappings(int max_num_tokens, Tensor idx_mapping, "
      "Tensor query_start_loc, Tensor pos, Tensor block_table_ptrs, "
      "Tensor block_table_strides, Tensor block_sizes, Tensor(a!) slot_mappings_ptr, "
      "int slot_mappings_stride, int cp_rank, int CP_SIZE, int CP_INTERLEAVE, "
      "int PAD_ID, int grid_x, int grid_y) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_kunlun, CPU, m) {
  m.impl("gather_block_tables", &gather_block_tables<on_host>);
  m.impl("compute_slot_mappings", &compute_slot_mappings<on_host>);
}

#ifdef VLLM_KUNLUN_XPU
TORCH_LIBRARY_IMPL(vllm_kunlun, CUDA, m) {
  m.impl("gather_block_tables", &gather_block_tables<on_xpu>);
  m.impl("compute_slot_mappings", &compute_slot_mappings<on_xpu>);
}
#endif

TORCH_LIBRARY_IMPL(vllm_kunlun, Meta, m) {
  m.impl("gather_block_tables", nothing_to_infer());
  m.impl("compute_slot_mappings", nothing_to_infer());
}

}  // namespace vllm_kunlun
