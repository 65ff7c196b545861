# SPDX-License-Identifier: Apache-2.0
"""What vLLM finds through our entry points."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_kunlun.launch import KunlunKernels

KUNLUN_PLATFORM = "vllm_kunlun.platform.kunlun.KunlunPlatform"


def platform() -> str | None:
    """Entry point of the group ``vllm.platform_plugins``.

    Returns None where there is no Kunlun device, or no torch for it.
    """
    from vllm_kunlun.platform.detect import is_present

    return KUNLUN_PLATFORM if is_present() else None


def kernel_provider() -> "KunlunKernels | None":
    """Entry point of the group ``vllm.kernel_providers``.

    Returns None on platforms whose kernels are not ours (CUDA, ROCm, ...), which
    keep Triton. Whether Triton can be imported, or says that it works, is not asked:
    on Kunlun it may say so and fail at the first kernel.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm_kunlun.launch import KunlunKernels

        return KunlunKernels()
    if current_platform.is_out_of_tree():
        from vllm_kunlun.platform.kunlun import KunlunPlatform

        if isinstance(current_platform, KunlunPlatform):
            from vllm_kunlun.platform.kernels import XpuKernels

            return XpuKernels()
    return None
