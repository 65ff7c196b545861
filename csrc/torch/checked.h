// SPDX-License-Identifier: Apache-2.0
// The checked arguments of launches that a fused op makes, too: tensors in, a contract
// out. Each checks what the op of its name checks, in that op's words.
#ifndef VLLM_KUNLUN_TORCH_CHECKED_H_
#define VLLM_KUNLUN_TORCH_CHECKED_H_

#include "contracts/block_table.h"
#include "contracts/input_batch.h"
#include "contracts/requests.h"
#include "contracts/staged_write.h"
#include "torch/check.h"

namespace vllm_kunlun {

PreparePrefillInputs checked_prepare_prefill_inputs(
    const OpCheck& check, const at::Tensor& input_ids_ptr,
    const at::Tensor& next_prefill_tokens_ptr, const at::Tensor& idx_mapping_ptr,
    const at::Tensor& query_start_loc_ptr, const at::Tensor& all_token_ids_ptr,
    int64_t all_token_ids_stride, const at::Tensor& prefill_lens_ptr,
    const at::Tensor& num_computed_tokens_ptr, int64_t grid_x);

PreparePosSeqLens checked_prepare_pos_seq_lens(
    const OpCheck& check, const at::Tensor& pos_ptr, const at::Tensor& seq_lens_ptr,
    const at::Tensor& idx_mapping_ptr, const at::Tensor& query_start_loc_ptr,
    const at::Tensor& num_computed_tokens_ptr, int64_t max_num_reqs, int64_t grid_x);

CombineSampledAndDraftTokens checked_combine_sampled_and_draft_tokens(
    const OpCheck& check, const at::Tensor& input_ids_ptr,
    const at::Tensor& idx_mapping_ptr, const at::Tensor& last_sampled_tokens_ptr,
    const at::Tensor& query_start_loc_ptr, const at::Tensor& seq_lens_ptr,
    const at::Tensor& prefill_len_ptr, const at::Tensor& draft_tokens_ptr,
    int64_t draft_tokens_stride, const at::Tensor& cu_num_logits_ptr,
    const at::Tensor& logits_indices_ptr, int64_t num_new_sampled_tokens,
    int64_t grid_x);

ExpandIdxMapping checked_expand_idx_mapping(const OpCheck& check,
                                            const at::Tensor& idx_mapping_ptr,
                                            const at::Tensor& expanded_idx_mapping_ptr,
                                            const at::Tensor& expanded_local_pos_ptr,
                                            const at::Tensor& cu_num_logits_ptr,
                                            int64_t grid_x);

GatherBlockTables checked_gather_block_tables(
    const OpCheck& check, const at::Tensor& batch_idx_to_req_idx,
    const at::Tensor& src_block_table_ptrs, const at::Tensor& dst_block_table_ptrs,
    const at::Tensor& block_table_strides, const at::Tensor& num_blocks_ptr,
    int64_t num_blocks_stride, int64_t num_reqs, int64_t grid_x, int64_t grid_y);

ComputeSlotMappings checked_compute_slot_mappings(
    const OpCheck& check, int64_t max_num_tokens, const at::Tensor& idx_mapping,
    const at::Tensor& query_start_loc, const at::Tensor& pos,
    const at::Tensor& block_table_ptrs, const at::Tensor& block_table_strides,
    const at::Tensor& block_sizes, const at::Tensor& slot_mappings_ptr,
    int64_t slot_mappings_stride, int64_t cp_rank, int64_t cp_size,
    int64_t cp_interleave, int64_t pad_id, int64_t grid_x, int64_t grid_y);

ApplyWrite checked_apply_write_multi_group(
    const OpCheck& check, const at::Tensor& output_ptr, const at::Tensor& output_stride,
    const at::Tensor& write_indices_ptr, const at::Tensor& write_starts_ptr,
    const at::Tensor& write_contents_ptr, const at::Tensor& write_cu_lens_ptr,
    const at::Tensor& write_group_ids_ptr, int64_t grid_x);

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_TORCH_CHECKED_H_
