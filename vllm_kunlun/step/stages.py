# SPDX-License-Identifier: Apache-2.0
"""Which stages of a step run fused."""

from functools import partial
from typing import TYPE_CHECKING

from vllm_kunlun import ops
from vllm_kunlun.switches import Switches
from vllm_kunlun.upstream import splits_prompts

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.worker.gpu.model_runner_v2 import FusedStages, ModelRunnerV2


def make_stages(runner: "ModelRunnerV2", switches: Switches) -> "FusedStages":
    """Return the fused stages that `switches` turn on, bound to `runner`."""
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner
    from vllm.v1.worker.gpu.model_runner_v2 import FusedStages

    from vllm_kunlun.draft.dspark.speculator import FusedDSparkSpeculator
    from vllm_kunlun.draft.ngram.speculator import NgramSpeculator
    from vllm_kunlun.step import layers, sampling
    from vllm_kunlun.step.inputs import StepInputs
    from vllm_kunlun.step.post_update import PostUpdate
    from vllm_kunlun.step.tables import BatchedBlockTables

    ops.load()
    if isinstance(runner.speculator, FusedDSparkSpeculator):
        runner.speculator.attach(runner)
    post_update = PostUpdate(runner)
    # With pipeline parallelism a batch lives on while later ones are prepared, so
    # that none of its buffers may be one that stays: upstream's stages allocate.
    fixed_buffers = not runner.use_pp and not splits_prompts(runner.vllm_config)
    batch_meta = switches.batch_meta and fixed_buffers
    hostvec = switches.hostvec and fixed_buffers
    inputs = StepInputs(runner, switches) if batch_meta or hostvec else None

    sample = sampling.sample(runner, switches)

    def add_requests(output: "SchedulerOutput") -> None:
        # Without new requests upstream would stage unchanged sampling parameters.
        if output.scheduled_new_reqs or not batch_meta:
            GPUModelRunner.add_requests(runner, output)
        if output.scheduled_new_reqs and sample is not None:
            sample.forget()

    stages = FusedStages(
        models_loaded=(
            partial(layers.fuse, runner, switches)
            if layers.fusible(runner, switches)
            else None
        ),
        make_block_tables=BatchedBlockTables if batch_meta else None,
        add_requests=add_requests if batch_meta or sample else None,
        update_requests=inputs.update_requests if inputs and hostvec else None,
        prepare_inputs=inputs.prepare if inputs else None,
        prepare_attn=(
            (lambda batch: runner.block_tables.prepare(batch)) if batch_meta else None
        ),
        slot_mappings_by_layer=(
            (
                lambda slots: runner.block_tables.slot_mappings_by_layer(
                    slots, runner.kv_cache_config
                )
            )
            if batch_meta
            else None
        ),
        sample=sample,
        postprocess_sampled=(
            post_update.postprocess_sampled if switches.hostvec_postupdate else None
        ),
        store_draft_tokens=(
            post_update.store_draft_tokens if switches.postupd3 else None
        ),
    )
    if isinstance(runner.speculator, NgramSpeculator):
        return runner.speculator.attach(runner, stages)
    return stages
