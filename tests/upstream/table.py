# SPDX-License-Identifier: Apache-2.0
"""Which of upstream's tests are run on our kernels, how, and which are not, and why.

`docs/upstream-tests.md` is made of it, by ``python tests/upstream/page.py``.
"""

from entries import Run, Swap

V1 = "tests the V1 runner"
OTHER = "has nothing to do with the runner"
HUB = "wants the weights of a model from the Hugging Face Hub"
GPU = "wants a GPU's attention kernels"
SEVERAL = "wants several GPUs"

V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}

# What upstream asks the hub for: no more than the config of a model is used.
MODELS: dict[str, dict[str, object]] = {
    "facebook/opt-125m": {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "torch_dtype": "float16",
    },
}

_REJECTION = frozenset(
    {
        "_compute_local_logits_stats_kernel",
        "_insert_resampled_kernel",
        "_rejection_kernel",
        "_resample_kernel",
    }
)
_BLOCK_VERIFICATION = frozenset(
    {"_compute_cumulative_log_p_kernel", "_compute_local_residual_mass_kernel"}
)

_IMPORT_ZEROS = Swap(
    "import torch\n",
    "import torch\n\nfrom tests.conftest import untouched_zeros\n",
    "for the next swaps",
)
_FILLER = (
    "the requests beside the one under test are zeros: the same offsets, without "
    "drawing 5 GB of random numbers"
)

# File below upstream's tests/ -> how it is run.
RUNS: dict[str, Run] = {
    "kernels/mamba/test_precopy_mamba_align.py": Run(
        covers="copies of Mamba states at block boundaries",
        passed=9,
        device_lines=2,
        kernels=frozenset({"precopy_mamba_align_fused_kernel"}),
    ),
    "test_config.py": Run(
        covers="which runner a config takes",
        passed={"0.25.1": 21, "0.26.0": 23},
        left_out={
            r"(?!test_(v2_model_runner|resolve_cudagraph_mode_adjusts|is_default_v2))"
            r".*": OTHER,
        },
        not_applicable=137,
    ),
    "v1/core/test_scheduler.py": Run(
        covers="the scheduler, also as the V2 runner wants it",
        passed={"0.25.1": 88, "0.26.0": 95},
        left_out={
            r"test_(ec_connector_(?!pending)|priority_scheduling_ec_connector|eagle3_mm"
            r"|encoder_cache|free_encoder_inputs|no_mm|schedule_multimodal"
            r"|schedule_partial_requests).*": "wants the tokenizer and the image "
            "processor of a model from the Hugging Face Hub",
        },
        not_applicable=35,
    ),
    "v1/core/test_worker_slot_overflow.py": Run(
        covers="the scheduler never gives the V2 runner more requests than it has rows",
        passed=3,
    ),
    "v1/cudagraph/test_breakable_cudagraph.py": Run(
        covers="metadata of attention are made anew for the pass that is captured",
        passed=1,
        device_lines=14,
        swaps=(
            Swap(
                'os.environ["VLLM_USE_BREAKABLE_CUDAGRAPH"] = "1"\n',
                "",
                "it would hold for the files after it, which do not want it",
            ),
        ),
        left_out={r"(?!test_piecewise_capture).*": "wants a GPU's graphs"},
        not_applicable=12,
        versions=("0.26.0",),
    ),
    "v1/kv_connector/unit/test_remote_prefill_lifecycle.py": Run(
        covers="the scheduler with remote prefills, as the V2 runner wants it",
        passed=9,
        environment=V2,
    ),
    "v1/kv_offload/test_factory.py": Run(
        covers="the layout of V2's KV cache is not shared between parallel setups",
        passed=1,
        left_out={r"(?!.*v2_model_runner).*": OTHER},
        not_applicable=29,
        versions=("0.26.0",),
    ),
    "v1/kv_offload/test_file_mapper.py": Run(
        covers="the same as v1/kv_offload/test_factory.py of 0.26.0",
        passed=1,
        left_out={r"(?!.*v2_model_runner).*": OTHER},
        not_applicable=7,
        versions=("0.25.1",),
    ),
    "v1/sample/test_logprobs.py": Run(
        covers="log probabilities beyond 2^31 logits",
        passed=1,
        device_lines=2,
        swaps=(
            _IMPORT_ZEROS,
            Swap(
                "from ...conftest import HfRunner, VllmRunner",
                "HfRunner = VllmRunner = None",
                "only tests that are left out use them",
            ),
            Swap("@large_gpu_mark(min_gb=24)\n", "", "it is not a GPU's memory"),
            Swap(
                "logits = torch.randn(batch_size, vocab_size, device=device, "
                "dtype=torch.float32)",
                "logits = untouched_zeros((batch_size, vocab_size), torch.float32)\n"
                "    logits[-1].normal_()",
                "all rows but the one that is checked are zeros: the same offsets, "
                "without 8.6 GB of random numbers",
            ),
        ),
        kernels=frozenset({"_topk_log_softmax_kernel"}),
        left_out={
            r"test_logprob_token_ids_validate.*": OTHER,
            r"(?!test_(token_logprobs_large_batch|logprob_token_ids_validate)).*": HUB,
        },
        not_applicable={"0.25.1": 58, "0.26.0": 59},
    ),
    "v1/spec_decode/test_dynamic_sd_cug.py": Run(
        covers="which graph a batch takes when the number of drafts varies",
        passed=4,
        swaps=(
            Swap(
                "pytestmark = pytest.mark.cpu_test\n",
                "pytestmark = pytest.mark.cpu_test\n"
                "gpu_cudagraph_utils.current_platform.get_global_graph_pool = Mock()\n",
                "the CPU platform has no pool of graphs",
            ),
            Swap(
                "from unittest.mock import MagicMock\n",
                "from unittest.mock import MagicMock, Mock\n",
                "for the swap before",
            ),
        ),
    ),
    "v1/spec_decode/test_rejection_sampler_utils.py": Run(
        covers="rejection sampling and block verification keep the target's "
        "distribution",
        passed=27,
        device_lines=8,
        swaps=(
            Swap(
                ".contiguous()",
                "",
                "all rows are the same one, in place of 15 GB of copies of it",
                times=2,
            ),
            Swap(
                "torch.multinomial(\n"
                "        draft_probs.expand(num_trials, -1), K, replacement=True\n"
                "    )",
                "torch.multinomial(draft_probs, num_trials * K, replacement=True)"
                ".view(num_trials, K)",
                "the same drafts at once; row by row a CPU takes longer for them than "
                "for what is tested",
            ),
        ),
        kernels=_REJECTION | _BLOCK_VERIFICATION,
    ),
    "v1/spec_decode/test_synthetic_rejection_sampler_utils.py": Run(
        covers="rates of synthetic acceptance",
        passed=9,
    ),
    "v1/streaming_input/test_gpu_model_runner_v2_streaming.py": Run(
        covers="requests whose prompt goes on after they have begun",
        passed=2,
        swaps=(
            Swap(
                "        model_dtype=torch.float32,\n"
                "        cache_draft_logits=False,\n",
                "",
                "stale: RequestState has no such arguments any more",
            ),
            Swap(
                "    runner.is_last_pp_rank = False\n",
                "    runner.is_last_pp_rank = False\n    runner.pp_handler = None\n",
                "stale: the runner has got a new attribute",
            ),
        ),
    ),
    "v1/worker/test_attn_utils.py": Run(
        covers="shapes and strides of the KV cache",
        passed=4,
    ),
    "v1/worker/test_encoder_runner.py": Run(
        covers="which embeddings of an encoder a step gathers",
        passed={"0.25.1": 6, "0.26.0": 7},
    ),
    "v1/worker/test_gpu_autoregressive_speculator.py": Run(
        covers="what a token-by-token draft model returns",
        passed=2,
    ),
    "v1/worker/test_gpu_batch_ordering.py": Run(
        covers="decodes that verify all their drafts lead a batch",
        passed=3,
        versions=("0.26.0",),
    ),
    "v1/worker/test_gpu_block_table.py": Run(
        covers="writes to the block tables, of one group and of several",
        passed=2,
        device_lines=3,
        kernels=frozenset({"_apply_write_kernel"}),
    ),
    "v1/worker/test_gpu_gumbel_sample.py": Run(
        covers="Gumbel sampling has the target's distribution",
        passed=10,
        device_lines=3,
        swaps=(
            Swap(
                "NUM_SAMPLES = 500_000",
                "NUM_SAMPLES = 4_000",
                "500 000 samples of 200 000 tokens are 10^11 random numbers in each of "
                "three tests; the vocabulary and the gap to its tail stay",
                scaled=True,
            ),
            Swap(
                "Z_TOLERANCE = 10.0",
                "Z_TOLERANCE = 4.0",
                "24 samples are expected in the tail in place of 3000, so that a lost "
                "tail is 5 sigma away; seeds are fixed, so nothing fails by chance",
                scaled=True,
            ),
            Swap(
                "_sample(logits, 10_000)",
                "_sample(logits, 1_000)",
                "the same token must win each time",
                scaled=True,
            ),
            Swap(
                "    gen = torch.Generator(device=DEVICE).manual_seed(2024)\n",
                "    VOCAB_SIZE = 8_000\n"
                "    gen = torch.Generator(device=DEVICE).manual_seed(2024)\n",
                "4 000 000 samples of 200 000 tokens are 8 * 10^11 random numbers; "
                "1/25 of both keeps 20 samples for each token",
                scaled=True,
            ),
            Swap(
                "num_samples = 4_000_000",
                "num_samples = 160_000",
                "as the swap before",
                scaled=True,
            ),
        ),
        kernels=frozenset({"_gumbel_sample_kernel"}),
    ),
    "v1/worker/test_gpu_model_runner.py": Run(
        covers="LoRA mappings of multi-modal inputs",
        passed=1,
        device_lines=2,
        left_out={r"(?!test_set_active_mm_loras).*": V1},
        not_applicable={"0.25.1": 32, "0.26.0": 33},
    ),
    "v1/worker/test_gpu_model_runner_v2_eplb.py": Run(
        covers="load balancing of experts in the V2 runner",
        passed=4,
    ),
    "v1/worker/test_gpu_rejection_sampler_i64.py": Run(
        covers="block verification beyond 2^31 logits",
        passed=2,
        device_lines=2,
        swaps=(
            _IMPORT_ZEROS,
            Swap(
                "full_target = torch.randn(\n"
                "        num_logits, VOCAB_SIZE, dtype=torch.bfloat16, device=device\n"
                "    )",
                "full_target = untouched_zeros((num_logits, VOCAB_SIZE), "
                "torch.bfloat16)",
                _FILLER,
            ),
            Swap(
                "full_draft = torch.randn(\n"
                "        max_num_reqs,\n"
                "        NUM_SPECULATIVE_STEPS,\n"
                "        VOCAB_SIZE,\n"
                "        dtype=torch.bfloat16,\n"
                "        device=device,\n"
                "    )",
                "full_draft = untouched_zeros((max_num_reqs, NUM_SPECULATIVE_STEPS, "
                "VOCAB_SIZE), torch.bfloat16)",
                _FILLER,
            ),
        ),
        kernels=_REJECTION | _BLOCK_VERIFICATION,
    ),
    "v1/worker/test_late_interaction_runner.py": Run(
        covers="scores of late interaction in the pooling runner",
        passed=4,
    ),
    "v1/worker/test_mamba_utils.py": Run(
        covers="what becomes of Mamba states when drafts are rejected",
        passed=18,
        device_lines=2,
        swaps=(
            Swap(
                "from vllm.v1.worker.mamba_utils import (\n",
                "import vllm.v1.worker.mamba_utils\n"
                "from vllm.utils.cpu_triton_utils import batch_memcpy_kernel\n\n"
                "vllm.v1.worker.mamba_utils.batch_memcpy_kernel = batch_memcpy_kernel\n"
                "from vllm.v1.worker.mamba_utils import (\n",
                "the V1 runner's path, which the kernel is compared with, copies as "
                "upstream's CPU runner does",
            ),
        ),
        kernels=frozenset({"postprocess_mamba_fused_kernel"}),
    ),
    "v1/worker/test_mixed_warmup_gate.py": Run(
        covers="no mixed warm-up with fewer than two requests",
        passed=2,
    ),
}

# File below upstream's tests/ -> why none of its tests is run.
LEFT_OUT: dict[str, str] = {
    "basic_correctness/test_basic_correctness.py": SEVERAL,
    "distributed/test_multiproc_executor.py": SEVERAL,
    "distributed/test_pipeline_parallel.py": SEVERAL,
    "distributed/test_pp_cudagraph.py": SEVERAL,
    "distributed/test_ray_v2_executor.py": SEVERAL,
    "entrypoints/llm/test_struct_output_generate.py": HUB,
    "entrypoints/openai/chat_completion/test_thinking_token_budget.py": V1,
    "kernels/attention/test_minimax_m3.py": GPU,
    "lora/test_qwen3_with_multi_loras.py": HUB,
    "v1/attention/test_dspark_noncausal_sparse_mla.py": GPU,
    "v1/distributed/test_async_llm_dp.py": SEVERAL,
    "v1/distributed/test_eagle_dp.py": SEVERAL,
    "v1/distributed/test_pp_dp_v2.py": SEVERAL,
    "v1/e2e/general/test_async_scheduling.py": HUB,
    "v1/e2e/general/test_context_length.py": HUB,
    "v1/e2e/general/test_mamba_prefix_cache.py": HUB,
    "v1/e2e/general/test_min_tokens.py": HUB,
    "v1/e2e/spec_decode/test_spec_decode.py": HUB,
    "v1/engine/test_llm_engine.py": HUB,
    "v1/kv_offload/tiering/test_obj_tier.py": V1,
    "v1/spec_decode/test_max_len.py": HUB,
}
