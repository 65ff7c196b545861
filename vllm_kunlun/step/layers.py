# SPDX-License-Identifier: Apache-2.0
"""The model's layers, run on a CPU in fewer launches (`KUNLUN_LAYER_FUSE`).

In eager mode on a CPU a norm is ten torch kernels, a SwiGLU two, and each attention
layer goes through torch's dispatcher into Python twice and writes its keys and values
twice. Models are upstream's: only what their modules do when they are called changes,
in the models of this runner, once they are loaded.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from vllm.config import CompilationMode
from vllm.logger import init_logger
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.platforms import current_platform
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

from vllm_kunlun import ops
from vllm_kunlun.step import linears
from vllm_kunlun.switches import ALL_ON, Switches

if TYPE_CHECKING:
    from vllm.v1.worker.gpu.model_runner_v2 import ModelRunnerV2

# Below "vllm", so that vLLM shows it.
logger = init_logger(f"vllm.{__name__}")

_DTYPES = (torch.float32, torch.bfloat16)


class CPUAttentionWritesCache(CPUAttentionBackend):
    """Upstream's backend, known to write a step's keys and values by itself.

    Its ``forward`` does so, and a layer writes them before it, too, unless told.
    """

    forward_includes_kv_cache_update = True


@dataclass(frozen=True)
class Change:
    """What a layer looks up when it is called, in upstream's form and in ours."""

    layer: nn.Module
    attribute: str
    upstream: Any
    ours: Any

    def make(self) -> None:
        """Have the layer run our form from its next call on."""
        setattr(self.layer, self.attribute, self.ours)

    def undo(self) -> None:
        """Have it run upstream's again."""
        setattr(self.layer, self.attribute, self.upstream)


def fusible(runner: "ModelRunnerV2", switches: Switches) -> bool:
    """Whether there is anything to change: compiled layers the compiler has fused."""
    if not current_platform.is_cpu():
        return False
    if not (switches.layer_fuse or switches.pad_weights or switches.bf16_linear):
        return False
    compilation = runner.vllm_config.compilation_config
    return bool(compilation.mode == CompilationMode.NONE)


def fuse(runner: "ModelRunnerV2", switches: Switches) -> None:
    """Have the layers of the runner's models run our forms, the draft model's, too."""
    for model in (runner.model, getattr(runner.speculator, "model", None)):
        if model is None:
            continue
        # One after the other: a layer's old weight goes before the next one's is made.
        counts: Counter[str] = Counter()
        for change in changes(model, switches):
            change.make()
            counts[change.attribute] += 1
        logger.info(
            "%s on a CPU: %d norms and activations in one launch, %d attention layers "
            "called directly, %d matrix products of ours (KUNLUN_LAYER_FUSE).",
            type(model).__name__,
            counts["_forward_method"],
            counts["use_direct_call"],
            counts["cpu_linear"],
        )


def changes(model: nn.Module, switches: Switches = ALL_ON) -> Iterator[Change]:
    """Yield what the switches change in a loaded model on the CPU.

    Layers of other types stay as they are, and those of subclasses, which have a
    forward of their own.
    """
    ops.load()
    for layer in model.modules():
        if switches.layer_fuse:
            yield from _fused(layer)
        if (linear := linears.of_layer(layer, switches)) is not None:
            yield Change(layer, "cpu_linear", linears.upstreams(layer), linear)


def _fused(layer: nn.Module) -> Iterator[Change]:
    if type(layer) is RMSNorm:
        if layer.variance_size_override is None and _fits(layer.weight):
            forward = rms_norm(layer)
            yield Change(layer, "_forward_method", layer.forward_cpu, forward)
    elif type(layer) is SiluAndMul:
        forward = silu_and_mul(layer)
        yield Change(layer, "_forward_method", layer.forward_cpu, forward)
    elif type(layer) is Attention:
        backend = layer.attn_backend
        if backend in (CPUAttentionBackend, CPUAttentionWritesCache):
            ours = CPUAttentionWritesCache
            yield Change(layer, "attn_backend", CPUAttentionBackend, ours)
            yield Change(layer, "use_direct_call", False, True)


def _fits(x: Tensor) -> bool:
    return x.dtype in _DTYPES and x.is_contiguous()


def rms_norm(layer: RMSNorm) -> Callable[..., Tensor | tuple[Tensor, Tensor]]:
    """Return the forward of `layer` in one launch.

    It takes ``[..., hidden]`` in the weight's dtype, and maybe a residual like it, and
    returns the norm, or the norm and the sum of both, which are written where they came
    from, as upstream's own kernels for accelerators do. The source is
    ``vllm/model_executor/layers/layernorm.py``.
    """
    op = torch.ops.vllm_kunlun.rms_norm.default
    epsilon = layer.variance_epsilon

    def forward(
        x: Tensor, residual: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        if x.dtype is not layer.weight.dtype:
            return layer.forward_native(x, residual)
        weight = layer.weight if layer.has_weight else None
        x = x.contiguous()
        if residual is None:
            out = torch.empty_like(x)
            op(out, x, None, weight, epsilon)
            return out
        residual = residual.contiguous()
        op(x, x, residual, weight, epsilon)
        return x, residual

    return forward


def silu_and_mul(layer: SiluAndMul) -> Callable[[Tensor], Tensor]:
    """Return the forward of `layer` in one launch.

    It takes ``[..., 2 * width]`` and returns ``[..., width]``. The source is
    ``vllm/model_executor/layers/activation.py``.
    """
    op = torch.ops.vllm_kunlun.silu_and_mul.default

    def forward(x: Tensor) -> Tensor:
        if not _fits(x):
            return layer.forward_native(x)
        out = x.new_empty((*x.shape[:-1], x.shape[-1] // 2))
        op(out, x)
        return out

    return forward
