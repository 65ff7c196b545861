# SPDX-License-Identifier: Apache-2.0
"""Which op of ours does the work of which Triton kernel of the V2 runner."""

PACKAGE = "vllm.v1.worker.gpu."

# (module below PACKAGE, kernel) -> op in torch.ops.vllm_kunlun. The op is named for the
# kernel, without leading "_" and trailing "_kernel", unless two kernels share a name.
KERNELS: dict[tuple[str, str], str] = {
    ("block_table", "_compute_slot_mappings_kernel"): "compute_slot_mappings",
    ("block_table", "_gather_block_tables_kernel"): "gather_block_tables",
    ("buffer_utils", "_apply_write_kernel"): "apply_write",
    ("cp_utils", "_dcp_local_seq_lens_kernel"): "dcp_local_seq_lens",
    (
        "input_batch",
        "_combine_sampled_and_draft_tokens_kernel",
    ): "combine_sampled_and_draft_tokens",
    ("input_batch", "_expand_idx_mapping_kernel"): "expand_idx_mapping",
    (
        "input_batch",
        "_get_num_sampled_and_rejected_kernel",
    ): "get_num_sampled_and_rejected",
    ("input_batch", "_post_update_kernel"): "post_update",
    (
        "input_batch",
        "_post_update_num_computed_tokens_kernel",
    ): "post_update_num_computed_tokens",
    ("input_batch", "_prepare_pos_seq_lens_kernel"): "prepare_pos_seq_lens",
    ("input_batch", "_prepare_prefill_inputs_kernel"): "prepare_prefill_inputs",
    ("metrics.logits", "_num_nans_kernel"): "num_nans",
    ("mm.rope", "_prepare_rope_positions_kernel"): "prepare_rope_positions",
    (
        "model_states.mamba_hybrid",
        "_scatter_num_accepted_kernel",
    ): "scatter_num_accepted",
    ("sample.bad_words", "_bad_words_kernel"): "bad_words",
    ("sample.gumbel", "_gumbel_sample_kernel"): "gumbel_sample",
    ("sample.gumbel", "_temperature_kernel"): "temperature",
    ("sample.logit_bias", "_bias_kernel"): "bias",
    ("sample.logprob", "_fill_logprob_token_ids_kernel"): "fill_logprob_token_ids",
    ("sample.logprob", "_ranks_kernel"): "ranks",
    ("sample.logprob", "_topk_log_softmax_kernel"): "topk_log_softmax",
    ("sample.min_p", "_min_p_kernel"): "min_p",
    ("sample.penalties", "_bincount_kernel"): "bincount",
    ("sample.penalties", "_penalties_kernel"): "penalties",
    (
        "sample.prompt_logprob",
        "_prompt_logprobs_token_ids_kernel",
    ): "prompt_logprobs_token_ids",
    (
        "spec_decode.autoregressive.speculator",
        "_prepare_decode_inputs_kernel",
    ): "prepare_decode_inputs",
    (
        "spec_decode.autoregressive.speculator",
        "_prepare_prefill_inputs_kernel",
    ): "prepare_draft_prefill_inputs",
    (
        "spec_decode.autoregressive.speculator",
        "_update_draft_inputs_kernel",
    ): "update_draft_inputs",
    (
        "spec_decode.dflash.speculator",
        "_prepare_dflash_inputs_kernel",
    ): "prepare_dflash_inputs",
    ("spec_decode.rejection_sampler", "_flatten_sampled_kernel"): "flatten_sampled",
    (
        "spec_decode.rejection_sampler_utils",
        "_compute_cumulative_log_p_kernel",
    ): "compute_cumulative_log_p",
    (
        "spec_decode.rejection_sampler_utils",
        "_compute_local_logits_stats_kernel",
    ): "compute_local_logits_stats",
    (
        "spec_decode.rejection_sampler_utils",
        "_compute_local_residual_mass_kernel",
    ): "compute_local_residual_mass",
    (
        "spec_decode.rejection_sampler_utils",
        "_insert_resampled_kernel",
    ): "insert_resampled",
    ("spec_decode.rejection_sampler_utils", "_rejection_kernel"): "rejection",
    ("spec_decode.rejection_sampler_utils", "_resample_kernel"): "resample",
    ("structured_outputs", "_apply_grammar_bitmask_kernel"): "apply_grammar_bitmask",
}


def op_name(module: str, kernel: str) -> str | None:
    """Return the op for `kernel` of the module with full name `module`, if any."""
    return KERNELS.get((module.removeprefix(PACKAGE), kernel))
