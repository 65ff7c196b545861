# SPDX-License-Identifier: Apache-2.0
"""vLLM's GPU worker on Kunlun. Not yet run on hardware.

That dspark takes Model Runner V2, and which class that is, is the GPU worker's own
choice and stays there.
"""

from contextlib import AbstractContextManager, nullcontext

from vllm.utils.torch_utils import set_random_seed
from vllm.v1.worker.gpu.warmup import warmup_kernels
from vllm.v1.worker.gpu_worker import Worker
from vllm.v1.worker.worker_base import CompilationTimes

from vllm_kunlun.platform import activation, buffers  # noqa: F401


class KunlunWorker(Worker):
    """The GPU worker without what is CUDA's alone."""

    def init_device(self) -> None:
        """Open the device, and make the runner with buffers that it can read."""
        buffers.install()
        super().init_device()

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Run a step, so that what is missing is missed before the first request.

        The GPU worker would warm up kernels of CUDA's, whose modules do not even
        import here, and capture graphs.
        """
        warmup_kernels(self.model_runner, self.execute_model, self.sample_tokens)
        set_random_seed(self.model_config.seed)
        return CompilationTimes(language_model=0.0, encoder=0.0)

    def _maybe_get_memory_pool_context(self, tag: str) -> AbstractContextManager[None]:
        # The pools serve sleep mode, which this platform does not offer.
        return nullcontext()
