# SPDX-License-Identifier: Apache-2.0
"""Our ops on Kunlun tensors: the XPU's kernels, and the host's for the rest.

Not yet run on hardware.
"""

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import torch
from vllm.logger import init_logger

from vllm_kunlun import ops
from vllm_kunlun.launch import KunlunKernels, Launcher

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.worker.gpu.model_runner_v2 import FusedStages, ModelRunnerV2
    from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

# Below "vllm", so that vLLM shows it.
logger = init_logger(f"vllm.{__name__}")

Backend = Literal["XPU", "host, through copies", "none"]

# The vendor's torch has Kunlun tensors dispatch as CUDA's.
DISPATCH_KEY = "CUDA"
_NAMESPACE = "vllm_kunlun"
# Ops that follow addresses of the device's memory: the host cannot do their work.
FOLLOW_ADDRESSES = frozenset(
    {
        "apply_write.MULTI_GROUP",
        "compute_slot_mappings",
        "gather_block_tables",
        "postprocess_mamba_fused",
        "precopy_mamba_align_fused",
        "prepare_block_tables",
        "preprocess_mamba_align_fused",
        "zero_kv_blocks",
    }
)
# Of these, the ones that only hybrid models (with Mamba layers) need.
HYBRID_ONLY = frozenset(
    {
        "postprocess_mamba_fused",
        "precopy_mamba_align_fused",
        "preprocess_mamba_align_fused",
        "zero_kv_blocks",
    }
)


class XpuKernels(KunlunKernels):
    """The kernel provider on Kunlun."""

    def bind(
        self, module: str, kernel: str, parameters: tuple[str, ...]
    ) -> Launcher | None:
        """Return the launcher of `kernel`, or None where we have no op for it."""
        load()
        return super().bind(module, kernel, parameters)

    def fused_stages(self, runner: "ModelRunnerV2") -> "FusedStages":
        """Return the stages of `runner`'s step that the switches let us run."""
        load()
        return super().fused_stages(runner)

    def speculator(
        self, vllm_config: "VllmConfig", device: torch.device
    ) -> "BaseSpeculator | None":
        """Return our drafter for `vllm_config`, or None for upstream's."""
        load()
        return super().speculator(vllm_config, device)


@cache
def load() -> tuple[dict[str, Backend], torch.library.Library]:
    """Give every op something to do with the device's tensors.

    Returns what does the work of each op, by its name, and what keeps it so.

    Raises:
        ImportError: a library of kernels does not load.
    """
    ops.load()
    library = torch.library.Library(_NAMESPACE, "IMPL")
    backends: dict[str, Backend] = {}
    for name, op in _all_ops().items():
        backends[name] = backend_of(name)
        if backends[name] == "host, through copies":
            library.impl(name, ThroughHost(op), DISPATCH_KEY)
        elif backends[name] == "none":
            library.impl(name, Missing(name), DISPATCH_KEY)
    counts = Counter(backends.values())
    if counts["XPU"] < len(backends):
        logger.warning(
            "%d of %d kernels are built for the XPU: the host does the work of %d, "
            "through copies, and %d cannot run (vllm-kunlun doctor lists them).",
            counts["XPU"],
            len(backends),
            counts["host, through copies"],
            counts["none"],
        )
    return backends, library


def backend_of(name: str) -> Backend:
    """Say what does the work of the op `name` where nothing is added to it."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(
        f"{_NAMESPACE}::{name}", DISPATCH_KEY
    ):
        return "XPU"
    return "none" if name in FOLLOW_ADDRESSES else "host, through copies"


class ThroughHost:
    """An op whose host kernel works on copies of the device's tensors."""

    def __init__(self, op: Any) -> None:
        self._op = op
        self._written = [
            i
            for i, argument in enumerate(op._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]

    def __call__(self, *arguments: Any) -> None:
        """Copy in, run, and copy back what the op writes."""
        on_host = [copy_to_host(x) for x in arguments]
        self._op(*on_host)
        for i in self._written:
            _copy_back(on_host[i], arguments[i])


def copy_to_host(value: Any) -> Any:
    """Copy a tensor, or a list of them, with all strides kept.

    An op is told strides apart from its tensors. What is no tensor stays as it is.
    """
    if isinstance(value, (list, tuple)):
        return [copy_to_host(v) for v in value]
    if not isinstance(value, torch.Tensor):
        return value
    copy = torch.empty_strided(
        value.size(), value.stride(), dtype=value.dtype, device="cpu"
    )
    return copy.copy_(value)


def _copy_back(source: Any, target: Any) -> None:
    if isinstance(target, (list, tuple)):
        for s, t in zip(source, target, strict=True):
            _copy_back(s, t)
    elif target is not None:
        target.copy_(source)


class Missing:
    """An op that nothing here can run, which is said when it is needed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any) -> None:
        """Say what is missing.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"{_NAMESPACE}::{self._name} needs its XPU kernel, which "
            f"{ops.XPU_LIBRARY.name} does not have here: build vllm-kunlun where XTDK "
            "and XRE are installed (docs/kunlun.md)."
        )


def _all_ops() -> dict[str, Any]:
    """Return every overload of our ops that works on tensors, by its name."""
    prefix = f"{_NAMESPACE}::"
    found = {}
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        if full.startswith(prefix):
            name = full.removeprefix(prefix)
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.vllm_kunlun, packet), overload or "default")
            if any("Tensor" in str(a.type) for a in op._schema.arguments):
                found[name] = op
    return found
