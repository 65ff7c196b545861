# SPDX-License-Identifier: Apache-2.0
"""What is installed, which kernels run, what is missing: ``vllm-kunlun doctor``."""

import ast
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vllm_kunlun import kernels, ops, switches
from vllm_kunlun.platform import findings as kunlun


def examine(console: Console) -> bool:
    """Print the findings and return whether Model Runner V2 can run here."""
    healthy = True
    table = Table("what", "finding", show_header=False)
    for package in ("vllm", "vllm-kunlun", "torch", "triton"):
        table.add_row(package, _version(package))

    import torch
    from vllm.kernel_provider import get_kernel_provider
    from vllm.platforms import current_platform

    table.add_row("platform", type(current_platform).__name__)
    table.add_row("CPU capability", torch.backends.cpu.get_cpu_capability())
    table.add_row("threads", str(torch.get_num_threads()))
    provider = get_kernel_provider()
    if provider is None:
        healthy = False
        table.add_row("kernel provider", "none: V2 takes Triton's kernels, if it can")
    else:
        table.add_row("kernel provider", provider.name)
    try:
        ops.load()
        table.add_row("kernel library", ops.LIBRARY.name)
    except ImportError as error:
        healthy = False
        table.add_row("kernel library", str(error))
    launched = v2_kernels()
    missing = [k for k in launched if k not in kernels.KERNELS]
    table.add_row("V2 kernels", f"{len(launched) - len(missing)} of {len(launched)}")
    for module, kernel in missing:
        table.add_row("", f"no op for {kernel} ({module})")
    try:
        for name, value, what in switches.current():
            table.add_row(name, f"{'on' if value else 'off'}: {what}")
    except ValueError as error:
        healthy = False
        table.add_row("switches", str(error))
    for finding in kunlun.examine():
        healthy &= finding.fine
        table.add_row(finding.what, finding.text)
    console.print(table)
    return healthy


def v2_kernels() -> list[tuple[str, str]]:
    """List the Triton kernels of the installed V2 as (module, kernel).

    By upstream's naming, what is launched ends in ``_kernel``; device functions
    that kernels call do not.
    """
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent / "v1" / "worker" / "gpu"
    found = []
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        module = ".".join(("vllm.v1.worker.gpu", *parts))
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"):
                found.append((module, node.name))
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
