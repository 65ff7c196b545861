# SPDX-License-Identifier: Apache-2.0
"""What differs between the maintained vLLM versions, for our own code.

Everything else here serves all of them. Each difference is asked of what upstream has,
not of its version number, and goes away with the last version that lacks it.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import LogprobsTensors
    from vllm.v1.worker.gpu.model_runner_v2 import ModelRunnerV2
    from vllm.v1.worker.gpu.sample.sampler import Sampler


def uniform_decodes_lead() -> bool:
    """Whether the decodes that verify all their drafts come first in a batch.

    So in 0.26.0; 0.25.1 orders by the number of tokens alone.
    """
    from vllm.v1.worker.gpu import model_runner

    return hasattr(model_runner, "sort_batch_req_ids")


def copy_shared_blocks(runner: "ModelRunnerV2", output: "SchedulerOutput") -> None:
    """Copy the blocks that a request shares in part, as 0.26.0's scheduler asks."""
    if copies := getattr(output, "kv_cache_block_copies", None):
        from vllm.v1.worker.utils import copy_kv_cache_blocks_inplace

        num_blocks = runner.kv_cache_config.num_blocks
        copy_kv_cache_blocks_inplace(runner.kv_caches, num_blocks, copies)


def topk_scores(sampler: "Sampler") -> "Callable[..., LogprobsTensors]":
    """Return upstream's function for logprobs, which 0.26.0 lets report logits, too."""
    from vllm.v1.worker.gpu.sample import logprob

    if hasattr(logprob, "compute_topk_logprobs"):
        scores: Callable[..., LogprobsTensors] = logprob.compute_topk_logprobs
        return scores
    of_logits = sampler.logprobs_mode in ("raw_logits", "processed_logits")
    return partial(logprob.compute_topk_scores, logits_mode=of_logits)


def splits_prompts(config: "VllmConfig") -> bool:
    """Whether ranks share a prompt, which 0.26.0 can and only upstream's stages do."""
    return bool(config.parallel_config.prefill_context_parallel_size > 1)
