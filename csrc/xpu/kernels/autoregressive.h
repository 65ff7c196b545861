// SPDX-License-Identifier: Apache-2.0
// contracts/autoregressive.h on the XPU.
#ifndef VLLM_KUNLUN_XPU_KERNELS_AUTOREGRESSIVE_H_
#define VLLM_KUNLUN_XPU_KERNELS_AUTOREGRESSIVE_H_

#include "xpu/language.h"

namespace vllm_kunlun {
namespace xpu {

__global__ void prepare_draft_prefill_inputs(
    GmParam<Int64> last_token_indices, GmParam<Int64> current_step,
    GmParam<Int32> input_ids, GmParam<Int64> positions, GmParam<Int32> query_start_loc,
    GmParam<Int32> seq_lens, GmParam<const Int32> target_input_ids,
    GmParam<const Int64> target_positions, GmParam<const Int32> idx_mapping,
    GmParam<const Int64> last_sampled, GmParam<const Int32> next_prefill_tokens,
    GmParam<const Int32> num_sampled, GmParam<const Int32> num_rejected,
    GmParam<const Int32> target_query_start, GmParam<const Int32> target_seq_lens,
    int max_num_reqs, int num_reqs);

__global__ void prepare_decode_inputs(
    GmParam<const Int64> draft_tokens, Int64 draft_tokens_stride,
    GmParam<const Int32> target_seq_lens, GmParam<const Int32> num_rejected,
    GmParam<Int32> input_ids, GmParam<Int64> positions, GmParam<Int32> query_start_loc,
    GmParam<Int32> seq_lens, int max_model_len, int max_num_reqs,
    bool advance_draft_positions, int num_reqs);

// Hidden states are copied as bytes, num_bytes a row.
__global__ void update_draft_inputs(
    GmParam<Int64> output_draft_tokens, Int64 output_draft_tokens_stride,
    GmParam<char> next_hidden_states, Int64 next_hidden_row_bytes,
    GmParam<Int32> input_ids, GmParam<Int64> positions, GmParam<Int32> seq_lens,
    GmParam<const Int64> draft_tokens, GmParam<const Int64> current_step,
    GmParam<const char> hidden_states, Int64 hidden_row_bytes, int num_bytes,
    int max_model_len, int num_speculative_steps, bool advance_draft_positions,
    int num_reqs);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_AUTOREGRESSIVE_H_
