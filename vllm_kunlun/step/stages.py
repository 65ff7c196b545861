# SPDX-License-Identifier: Apache-2.0
"""Which stages of a step run fused."""

from typing import TYPE_CHECKING

from vllm_kunlun.switches import Switches

if TYPE_CHECKING:
    from vllm.v1.worker.gpu.model_runner_v2 import FusedStages, ModelRunnerV2


def make_stages(runner: "ModelRunnerV2", switches: Switches) -> "FusedStages":
    """Return the fused stages that `switches` turn on, bound to `runner`."""
    from vllm.v1.worker.gpu.model_runner_v2 import FusedStages

    return FusedStages()
