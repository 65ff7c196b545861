# SPDX-License-Identifier: Apache-2.0
"""The vendor's SwiGLU in place of vLLM's. Not yet run on hardware."""

import torch
from vllm.model_executor.layers.activation import SiluAndMul

from vllm_kunlun.platform import vendor

_DTYPES = (torch.float16, torch.bfloat16)


@SiluAndMul.register_oot(name="SiluAndMul")
class KunlunSiluAndMul(SiluAndMul):
    """``[..., 2 * d]`` -> ``[..., d]``: silu of the first half, times the second."""

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        """Take the vendor's kernel for what it is made for, else torch."""
        kernel = vendor.find("silu_and_mul")
        if kernel is None or x.dtype not in _DTYPES or not x.is_contiguous():
            return self.forward_native(x)
        out = torch.empty(
            (*x.shape[:-1], x.shape[-1] // 2), dtype=x.dtype, device=x.device
        )
        kernel(x, axis=-1, turn=True, out=out)
        return out
