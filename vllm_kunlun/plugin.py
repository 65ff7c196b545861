# SPDX-License-Identifier: Apache-2.0
"""What vLLM finds through our entry points."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_kunlun.launch import KunlunKernels


def kernel_provider() -> "KunlunKernels | None":
    """Entry point of the group ``vllm.kernel_providers``.

    Returns None on platforms whose kernels are not ours (CUDA, ROCm, ...), which
    keep Triton.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return None

    from vllm_kunlun.launch import KunlunKernels

    return KunlunKernels()
