# SPDX-License-Identifier: Apache-2.0
"""Which op of ours does the work of which Triton kernel of the V2 runner."""

PACKAGE = "vllm.v1."

# Module below PACKAGE -> kernel -> op in torch.ops.vllm_kunlun. The op is named for the
# kernel, without leading "_" and trailing "_kernel", unless two kernels share a name.
_OPS: dict[str, dict[str, str]] = {
    "worker.gpu.block_table": {
        "_compute_slot_mappings_kernel": "compute_slot_mappings",
        "_gather_block_tables_kernel": "gather_block_tables",
    },
    "worker.gpu.buffer_utils": {
        "_apply_write_kernel": "apply_write",
    },
    "worker.gpu.cp_utils": {
        "_dcp_local_seq_lens_kernel": "dcp_local_seq_lens",
    },
    "worker.gpu.input_batch": {
        "_combine_sampled_and_draft_tokens_kernel": "combine_sampled_and_draft_tokens",
        "_expand_idx_mapping_kernel": "expand_idx_mapping",
        "_get_num_sampled_and_rejected_kernel": "get_num_sampled_and_rejected",
        "_post_update_kernel": "post_update",
        "_post_update_num_computed_tokens_kernel": "post_update_num_computed_tokens",
        "_prepare_pos_seq_lens_kernel": "prepare_pos_seq_lens",
        "_prepare_prefill_inputs_kernel": "prepare_prefill_inputs",
    },
    "worker.gpu.metrics.logits": {
        "_num_nans_kernel": "num_nans",
    },
    "worker.gpu.mm.rope": {
        "_prepare_rope_positions_kernel": "prepare_rope_positions",
    },
    "worker.gpu.model_states.mamba_hybrid": {
        "_scatter_num_accepted_kernel": "scatter_num_accepted",
    },
    "worker.gpu.sample.bad_words": {
        "_bad_words_kernel": "bad_words",
    },
    "worker.gpu.sample.gumbel": {
        "_gumbel_sample_kernel": "gumbel_sample",
        "_temperature_kernel": "temperature",
    },
    "worker.gpu.sample.logit_bias": {
        "_bias_kernel": "bias",
    },
    "worker.gpu.sample.logprob": {
        "_fill_logprob_token_ids_kernel": "fill_logprob_token_ids",
        "_ranks_kernel": "ranks",
        "_topk_log_softmax_kernel": "topk_log_softmax",
    },
    "worker.gpu.sample.min_p": {
        "_min_p_kernel": "min_p",
    },
    "worker.gpu.sample.penalties": {
        "_bincount_kernel": "bincount",
        "_penalties_kernel": "penalties",
    },
    "worker.gpu.sample.prompt_logprob": {
        "_prompt_logprobs_token_ids_kernel": "prompt_logprobs_token_ids",
    },
    "worker.gpu.spec_decode.autoregressive.speculator": {
        "_prepare_decode_inputs_kernel": "prepare_decode_inputs",
        "_prepare_prefill_inputs_kernel": "prepare_draft_prefill_inputs",
        "_update_draft_inputs_kernel": "update_draft_inputs",
    },
    "worker.gpu.spec_decode.dflash.speculator": {
        "_prepare_dflash_inputs_kernel": "prepare_dflash_inputs",
    },
    "worker.gpu.spec_decode.rejection_sampler": {
        "_flatten_sampled_kernel": "flatten_sampled",
    },
    "worker.gpu.spec_decode.rejection_sampler_utils": {
        "_compute_cumulative_log_p_kernel": "compute_cumulative_log_p",
        "_compute_local_logits_stats_kernel": "compute_local_logits_stats",
        "_compute_local_residual_mass_kernel": "compute_local_residual_mass",
        "_insert_resampled_kernel": "insert_resampled",
        "_rejection_kernel": "rejection",
        "_resample_kernel": "resample",
    },
    "worker.gpu.structured_outputs": {
        "_apply_grammar_bitmask_kernel": "apply_grammar_bitmask",
    },
    "worker.mamba_utils": {
        "postprocess_mamba_fused_kernel": "postprocess_mamba_fused",
        "precopy_mamba_align_fused_kernel": "precopy_mamba_align_fused",
        "preprocess_mamba_align_fused_kernel": "preprocess_mamba_align_fused",
    },
    "worker.utils": {
        "_zero_kv_blocks_kernel": "zero_kv_blocks",
    },
}

# Kernels outside of V2's package that V2 can reach, and why they need no op.
_WITHOUT_OP: dict[str, dict[str, str]] = {
    "sample.ops.topk_topp_triton": {
        "_topk_topp_kernel": "without Triton upstream takes its PyTorch path, as V1 on "
        "a CPU does",
    },
    "worker.mamba_utils": {
        "batch_memcpy_kernel": "the V1 runner's alone",
    },
}


def _flat(table: dict[str, dict[str, str]]) -> dict[tuple[str, str], str]:
    return {
        (PACKAGE + module, kernel): value
        for module, kernels in table.items()
        for kernel, value in kernels.items()
    }


# (module, kernel) -> op
KERNELS = _flat(_OPS)
# (module, kernel) -> reason
WITHOUT_OP = _flat(_WITHOUT_OP)


def op_name(module: str, kernel: str) -> str | None:
    """Return the op for `kernel` of the module with full name `module`, if any."""
    return KERNELS.get((module, kernel))
