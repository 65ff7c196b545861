# SPDX-License-Identifier: Apache-2.0
"""Finds the Triton kernels of a vLLM tree by reading it, without importing anything."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Model Runner V2, and what it reaches outside of its own package.
PLACES = (
    "vllm/v1/worker/gpu",
    "vllm/v1/worker/mamba_utils.py",
    "vllm/v1/worker/utils.py",
    "vllm/v1/sample/ops/topk_topp_triton.py",
)


@dataclass(frozen=True)
class Kernel:
    """One function under ``@triton.jit``.

    Attributes:
        module: full name of its module.
        name: its name.
        parameters: all parameter names, in order.
        constexprs: those of them that are ``tl.constexpr``.
        launched: whether its module or another launches it as ``name[grid]``; if
            not, it is a device function that kernels call.
        body: digest of what it does, blind to comments, docstring and layout.
    """

    module: str
    name: str
    parameters: tuple[str, ...]
    constexprs: tuple[str, ...]
    launched: bool
    body: str

    @property
    def key(self) -> tuple[str, str]:
        """Name the kernel among all."""
        return self.module, self.name


def scan(tree: Path) -> list[Kernel]:
    """List the kernels of the unpacked `tree`, sorted by module and name."""
    return scan_sources(
        {
            file.relative_to(tree).as_posix(): file.read_text("utf-8")
            for place in PLACES
            for file in _files(tree / place)
        }
    )


def scan_sources(files: Mapping[str, str]) -> list[Kernel]:
    """List the kernels of a tree given as texts by path; others than V2's are left."""
    sources = {
        module_name(path): text for path, text in files.items() if _is_place(path)
    }
    launched = {
        name
        for source in sources.values()
        for name in re.findall(r"\b(\w+)\[(?!\d)[^\]\n]*\]\(", source)
        + re.findall(r"^\s*(\w+)\[$", source, re.MULTILINE)
    }
    found = [
        _kernel(module, node, launched)
        for module, source in sources.items()
        if "triton.jit" in source
        for node in _jitted(ast.parse(source))
    ]
    return sorted(found, key=lambda kernel: kernel.key)


def _files(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(place.rglob("*.py"))
    return [place] if place.exists() else []


def _is_place(path: str) -> bool:
    return path.endswith(".py") and any(
        path == place or path.startswith(f"{place}/") for place in PLACES
    )


def module_name(path: str) -> str:
    """Return the module that a file of the tree is."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _jitted(module: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and any(
            ast.unparse(d.func if isinstance(d, ast.Call) else d) == "triton.jit"
            for d in node.decorator_list
        ):
            yield node


def _kernel(module: str, node: ast.FunctionDef, launched: set[str]) -> Kernel:
    arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    constexprs = [
        a.arg
        for a in arguments
        if a.annotation is not None and "constexpr" in ast.unparse(a.annotation)
    ]
    body = node.body[1:] if ast.get_docstring(node, clean=False) else node.body
    text = "\n".join(ast.unparse(statement) for statement in body)
    return Kernel(
        module,
        node.name,
        tuple(a.arg for a in arguments),
        tuple(constexprs),
        node.name in launched,
        hashlib.sha256(text.encode()).hexdigest(),
    )
