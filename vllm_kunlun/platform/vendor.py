# SPDX-License-Identifier: Apache-2.0
"""The vendor's kernels, `kunlun_ops`: the only place that knows how they are called.

The vendor documents no signatures. Those below are how the vendor's own plugin calls
the functions; they are checked before a function is used, and one that is missing or
takes other arguments is left alone: torch does its work, and the log and doctor say so.

``VLLM_KUNLUN_WITHOUT_VENDOR_OPS`` names functions to do without, separated by commas,
or says ``all``: the way to find the one that is to blame.
"""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from vllm.logger import init_logger

# Below "vllm", so that vLLM shows it.
logger = init_logger(f"vllm.{__name__}")

MODULE = "kunlun_ops"
WITHOUT = "VLLM_KUNLUN_WITHOUT_VENDOR_OPS"


@dataclass(frozen=True)
class VendorOp:
    """How we call one function of `kunlun_ops`.

    Attributes:
        work: what it does for the model.
        positional: how many arguments go by position.
        keywords: the arguments that go by name.
    """

    work: str
    positional: int
    keywords: tuple[str, ...]


OPS = {
    "reshape_and_cache_flash": VendorOp("KV cache writes", 5, ("BLHD_LAYOUT",)),
    "paged_attention": VendorOp(
        "decode attention",
        0,
        (
            "x",
            "k_cache",
            "v_cache",
            "block_tables",
            "context_lens_cpu",
            "context_lens_xpu",
            "is_context",
            "is_causal",
            "out",
            "vo_head_dim",
        ),
    ),
    "prefill_attention": VendorOp(
        "attention of prompts and drafts",
        0,
        (
            "q",
            "k",
            "v",
            "out",
            "is_causal",
            "is_prefix_cache",
            "alpha",
            "block_table",
            "context_qlen_lod_cpu",
            "context_qlen_lod_xpu",
            "context_kvlen_lod_cpu",
            "context_kvlen_lod_xpu",
            "alibi_slopes",
            "softmax_lse",
        ),
    ),
    "rmsnorm": VendorOp("RMS norm", 3, ("out",)),
    "add_rmsnorm": VendorOp("RMS norm with residual", 4, ("out",)),
    "silu_and_mul": VendorOp("SwiGLU", 1, ("axis", "turn", "out")),
}


def find(name: str) -> Callable[..., None] | None:
    """Return the function `name` of `kunlun_ops`, or None where it is not used."""
    return None if why_not(name) else _checked(name)


@cache
def why_not(name: str) -> str | None:
    """Return why torch does the work of the function `name`; None where it does not.

    Raises:
        ValueError: ``VLLM_KUNLUN_WITHOUT_VENDOR_OPS`` names an unknown function.
    """
    if name in _without():
        return f"left out by {WITHOUT}"
    module = _load()
    if isinstance(module, str):
        return module
    function = getattr(module, name, None)
    if function is None:
        return f"{MODULE} has no {name}"
    op = OPS[name]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return f"{MODULE}.{name} does not tell its arguments"
    try:
        signature.bind(*[None] * op.positional, **dict.fromkeys(op.keywords))
    except TypeError as error:
        return f"{MODULE}.{name} takes other arguments than expected ({error})"
    return None


def report_once() -> None:
    """Log which work the vendor's kernels do and which is left to torch."""
    reasons = {name: why_not(name) for name in OPS}
    used = [op.work for name, op in OPS.items() if reasons[name] is None]
    logger.info_once("%s does: %s.", MODULE, ", ".join(used) or "nothing")
    left: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason is not None:
            left.setdefault(reason, []).append(OPS[name].work)
    for reason, works in left.items():
        logger.warning_once("torch does: %s (%s).", ", ".join(works), reason)


@cache
def _load() -> ModuleType | str:
    """Return the module, or why there is none."""
    try:
        return import_module(MODULE)
    except (ImportError, OSError) as error:
        return f"{MODULE} cannot be imported: {error}"


@cache
def _checked(name: str) -> Callable[..., None]:
    """Make the function raise where it would return a code that nobody reads."""
    function = getattr(_load(), name)

    def call(*args: Any, **kwargs: Any) -> None:
        code = function(*args, **kwargs)
        if isinstance(code, int) and code != 0:
            raise RuntimeError(
                f"{MODULE}.{name} failed with code {code}: set {WITHOUT}={name} to "
                "have torch do its work."
            )

    return call


def _without() -> frozenset[str]:
    text = os.environ.get(WITHOUT, "")
    names = {name.strip() for name in text.split(",") if name.strip()}
    if names == {"all"}:
        return frozenset(OPS)
    if unknown := names - OPS.keys():
        raise ValueError(
            f"{WITHOUT} names {', '.join(sorted(unknown))}: choose of "
            f"{', '.join(OPS)}, or say all."
        )
    return frozenset(names)
