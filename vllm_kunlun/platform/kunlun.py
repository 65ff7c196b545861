# SPDX-License-Identifier: Apache-2.0
"""What vLLM asks of a platform, answered for Kunlun XPUs. Not yet run on hardware.

The vendor's torch passes Kunlun XPUs off as CUDA: tensors say device ``cuda``,
kernels have the dispatch key ``CUDA``, ``torch.cuda`` counts devices and memory, and
the process group ``nccl`` is the vendor's BKCL. The platform is none of CUDA's kin all
the same (`is_cuda_alike` is false): what vLLM keeps for those are CUDA kernels and
Triton.
"""

import os
from typing import TYPE_CHECKING, ClassVar

import torch
from vllm.logger import init_logger
from vllm.platforms.interface import Platform, PlatformEnum

from vllm_kunlun.platform import native_ops, vendor

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.config.kernel import IrOpPriorityConfig
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig

# Below "vllm", so that vLLM shows it.
logger = init_logger(f"vllm.{__name__}")

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class KunlunPlatform(Platform):
    """Kunlun XPUs behind the vendor's torch."""

    _enum = PlatformEnum.OOT
    # vLLM makes devices of an out-of-tree platform from its name.
    device_name = "cuda"
    device_type = "cuda"
    dispatch_key = "CUDA"
    dist_backend = "nccl"
    ray_device_key = "GPU"
    device_control_env_var = "CUDA_VISIBLE_DEVICES"
    ray_noset_device_env_vars: ClassVar[list[str]] = [
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
    ]
    # Inductor's code is Triton's.
    simple_compile_backend = "eager"

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        """The first is what ``--dtype auto`` falls back to."""
        return list(_DTYPES)

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        """Refuse types that the device does not compute in.

        Raises:
            ValueError: `dtype` is not one of them.
        """
        if dtype not in _DTYPES:
            raise ValueError(
                f"dtype {dtype} is not supported on Kunlun: choose bfloat16, float16 "
                "or float32 with --dtype."
            )

    @classmethod
    def verify_quantization(cls, quant: str) -> None:
        """Refuse quantized weights: their kernels are CUDA's or the vendor's own.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            f"Quantization {quant!r} is not supported on Kunlun by vllm-kunlun: take "
            "a checkpoint of the model that is not quantized."
        )

    # --- devices and memory --------------------------------------------------------

    @classmethod
    def device_count(cls) -> int:
        """Return how many devices this process may use."""
        return int(torch.cuda.device_count())

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        """Make `device` the current one."""
        torch.cuda.set_device(device)

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        """Seed the generators of all devices."""
        torch.cuda.manual_seed_all(seed)

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """Return the device's name as torch knows it."""
        return str(torch.cuda.get_device_name(device_id))

    @classmethod
    def get_device_uuid(cls, device_id: int = 0) -> str:
        """Return what tells the device from all others."""
        return str(torch.cuda.get_device_properties(device_id).uuid)

    # get_device_capability stays None: torch names a compute capability of CUDA's,
    # which says nothing about this device and would switch on what is made for CUDA.

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """Return the size of the device's memory in bytes."""
        return int(torch.cuda.get_device_properties(device_id).total_memory)

    @classmethod
    def get_current_memory_usage(
        cls, device: torch.types.Device | None = None
    ) -> float:
        """Return the bytes that torch holds, and start the peak anew."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return float(torch.cuda.max_memory_allocated(device))

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        """Return the number of clusters, as torch counts them."""
        return int(torch.cuda.get_device_properties(device_id).multi_processor_count)

    # --- kernels -------------------------------------------------------------------

    @classmethod
    def import_kernels(cls) -> None:
        """Stand in for vLLM's compiled kernels, which this build does not have."""
        native_ops.register()

    @classmethod
    def import_ir_kernels(cls) -> None:
        """Register the vendor's norms with vLLM's IR ops."""
        from vllm_kunlun.platform import norms  # noqa: F401

    @classmethod
    def get_default_ir_op_priority(
        cls, vllm_config: "VllmConfig"
    ) -> "IrOpPriorityConfig":
        """Prefer the vendor's norms where the installed ones are as expected."""
        from vllm.config.kernel import IrOpPriorityConfig

        from vllm_kunlun.platform import norms

        return IrOpPriorityConfig(
            **{
                op: [norms.PROVIDER, "native"] if usable else ["native"]
                for op, usable in norms.usable().items()
            }
        )

    @classmethod
    def get_attn_backend_cls(
        cls,
        selected_backend: "AttentionBackendEnum | None",
        attn_selector_config: "AttentionSelectorConfig",
        num_heads: int | None = None,
    ) -> str:
        """Return our backend, the only one here.

        Raises:
            ValueError: the model needs of attention what the backend does not do.
        """
        from vllm_kunlun.platform.attention import KunlunAttentionBackend

        if selected_backend is not None and selected_backend.name != "CUSTOM":
            logger.warning_once(
                "Attention backend %s is not available on Kunlun: using its own.",
                selected_backend.name,
            )
        reasons = KunlunAttentionBackend.validate_configuration(
            device_capability=None, **attn_selector_config._asdict()
        )
        if reasons:
            raise ValueError(
                f"This model's attention cannot run on Kunlun ({', '.join(reasons)}): "
                "choose another model or --kv-cache-dtype."
            )
        return f"{KunlunAttentionBackend.__module__}.{KunlunAttentionBackend.__name__}"

    # --- the engine's configuration ------------------------------------------------

    @classmethod
    def check_and_update_config(cls, vllm_config: "VllmConfig") -> None:
        """Choose worker and graph mode, and refuse what cannot run.

        Raises:
            ValueError: the configuration asks for something that is not here.
        """
        from vllm.config import CompilationMode, CUDAGraphMode

        _refuse_unsupported(vllm_config)
        compilation = vllm_config.compilation_config
        if compilation.cudagraph_mode not in (None, CUDAGraphMode.NONE):
            logger.info_once(
                "Kunlun runs eagerly: no graphs (cudagraph_mode was %s) and no "
                "torch.compile.",
                compilation.cudagraph_mode.name,
            )
        # The vendor's torch.compile does nothing, and says nothing, by default.
        compilation.mode = CompilationMode.NONE
        compilation.cudagraph_mode = CUDAGraphMode.NONE
        compilation.cudagraph_capture_sizes = []
        compilation.ir_enable_torch_wrap = False
        if vllm_config.model_config is not None:
            vllm_config.model_config.disable_cascade_attn = True

        parallel = vllm_config.parallel_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = "vllm_kunlun.platform.worker.KunlunWorker"
        parallel.disable_custom_all_reduce = True
        # A device that a process has opened cannot be used by what it forks.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        vendor.report_once()

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        """KV caches of several kinds are a matter of V2's kernels, which are ours."""
        return True


def _refuse_unsupported(vllm_config: "VllmConfig") -> None:
    model = vllm_config.model_config
    parallel = vllm_config.parallel_config
    wanted = {
        "LoRA": vllm_config.lora_config is not None,
        "an encoder-decoder model": model is not None and model.is_encoder_decoder,
        "MLA": model is not None and model.use_mla,
        "dual-batch overlap": parallel.enable_dbo,
        "decode context parallelism": parallel.decode_context_parallel_size > 1,
    }
    for feature, asked in wanted.items():
        if asked:
            raise ValueError(
                f"vllm-kunlun does not support {feature} on Kunlun yet: choose another "
                "model or leave the option out."
            )
    # V1 prepares its steps with Triton kernels that only CUDA and ROCm can run.
    if model is not None and not vllm_config.use_v2_model_runner:
        raise ValueError(
            f"{', '.join(model.architectures)} would run on Model Runner V1, which "
            "Kunlun has no kernels for: set VLLM_USE_V2_MODEL_RUNNER=1."
        )
