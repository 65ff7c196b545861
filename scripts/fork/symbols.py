# SPDX-License-Identifier: Apache-2.0
"""Finds a name in a tree of Python sources by reading them, and says what it is."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fork.triton_kernels import module_name

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEPTH = 10


@dataclass(frozen=True)
class Symbol:
    """What a name stands for.

    Attributes:
        module: the module that defines it, whichever it was imported from.
        signature: parameters without annotations, one by one; of a class its bases
            and its constructor's parameters or its fields; of a value its text.
        body: digest of a function's body, blind to comments and layout.
    """

    module: str
    signature: tuple[str, ...]
    body: str = ""


class Sources:
    """The Python files of one tree, parsed when they are asked for."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = {module_name(p): t for p, t in files.items() if p[-3:] == ".py"}
        self._packages = {
            module_name(path) for path in files if path.endswith("/__init__.py")
        }
        self._names: dict[str, dict[str, ast.stmt]] = {}

    def has_module(self, module: str) -> bool:
        """Whether there is such a file or package."""
        return module in self._files

    def find(self, module: str, name: str) -> Symbol | None:
        """Describe what `from module import name` gives."""
        if self.has_module(f"{module}.{name}"):
            return Symbol(f"{module}.{name}", ("module",))
        found = self._definition(module, name)
        if found is None:
            return None
        where, node = found
        if isinstance(node, _Function):
            return Symbol(where, _parameters(node), _body(node))
        if isinstance(node, ast.ClassDef):
            return Symbol(where, self._class(where, node))
        return Symbol(where, (_value(node),))

    def method(self, module: str, owner: str, name: str) -> Symbol | None:
        """Describe a method of a class, looked for in its bases too."""
        for where, node in self._bases(module, owner):
            for item in node.body:
                if isinstance(item, _Function) and item.name == name:
                    return Symbol(where, _parameters(item), _body(item))
        return None

    def defined_elsewhere(self, name: str) -> str | None:
        """Name a module that has `name` at its top, where it has gone from its own."""
        pattern = re.compile(
            rf"^(?:class|(?:async )?def) {name}\b|^{name}\b\s*[:=]", re.MULTILINE
        )
        return next(
            (m for m, t in self._files.items() if name in t and pattern.search(t)), None
        )

    def _definition(
        self, module: str, name: str, depth: int = 0
    ) -> tuple[str, ast.stmt] | None:
        node = self._top(module).get(name)
        if node is None or depth > _DEPTH:
            return None
        if isinstance(node, ast.ImportFrom):
            source = self._absolute(module, node)
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return self._definition(source, alias.name, depth + 1)
        return module, node

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        up = node.level - (module in self._packages)
        parts = parts[: len(parts) - up]
        return ".".join([*parts, node.module] if node.module else parts)

    def _top(self, module: str) -> dict[str, ast.stmt]:
        """Map the names at a module's top to the statements that bind them."""
        if module not in self._names:
            names: dict[str, ast.stmt] = {}
            for node in _flat(ast.parse(self._files.get(module, "")).body):
                for name in _bound(node):
                    # The first counts: what `else` and `except` bind is a fallback.
                    names.setdefault(name, node)
            self._names[module] = names
        return self._names[module]

    def _bases(
        self, module: str, owner: str, depth: int = 0
    ) -> Iterator[tuple[str, ast.ClassDef]]:
        found = self._definition(module, owner)
        if found is None or not isinstance(found[1], ast.ClassDef) or depth > _DEPTH:
            return
        where, node = found[0], found[1]
        yield where, node
        for base in node.bases:
            if isinstance(base, ast.Subscript):
                base = base.value
            if isinstance(base, ast.Name):
                yield from self._bases(where, base.id, depth + 1)

    def _class(self, module: str, node: ast.ClassDef) -> tuple[str, ...]:
        bases = tuple(f"base {ast.unparse(base)}" for base in node.bases)
        made = self.method(module, node.name, "__init__")
        if made is not None:
            return bases + made.signature
        fields = [
            item
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        ]
        return bases + tuple(_written(f.target, f.value) for f in fields)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield a module's statements, those under `if`, `try` and `with` too."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _flat(node.body + node.orelse)
        elif isinstance(node, ast.Try):
            handlers = [item for handler in node.handlers for item in handler.body]
            yield from _flat(node.body + node.orelse + handlers + node.finalbody)
        elif isinstance(node, ast.With):
            yield from _flat(node.body)
        else:
            yield node


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, _Function | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import):
        return [(a.asname or a.name).partition(".")[0] for a in node.names]
    if isinstance(node, ast.ImportFrom):
        return [a.asname or a.name for a in node.names]
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [t.id for t in targets if isinstance(t, ast.Name)]


def _parameters(node: _Function) -> tuple[str, ...]:
    """Write the parameters as a call sees them: no annotations."""
    a = node.args
    plain = a.posonlyargs + a.args
    defaults = [*[None] * (len(plain) - len(a.defaults)), *a.defaults]
    found = list(map(_parameter, plain, defaults))
    if a.vararg:
        found.append(f"*{a.vararg.arg}")
    elif a.kwonlyargs:
        found.append("*")
    found += map(_parameter, a.kwonlyargs, a.kw_defaults)
    return tuple([*found, f"**{a.kwarg.arg}"] if a.kwarg else found)


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    return _written(ast.Name(argument.arg), default)


def _written(name: ast.expr, default: ast.expr | None) -> str:
    text = ast.unparse(name)
    return f"{text}={ast.unparse(default)}" if default else text


def _body(node: _Function) -> str:
    body = node.body[1:] if ast.get_docstring(node, clean=False) else node.body
    text = "\n".join(ast.unparse(statement) for statement in body)
    return hashlib.sha256(text.encode()).hexdigest()


def _value(node: ast.stmt) -> str:
    value = getattr(node, "value", None)
    return ast.unparse(value) if isinstance(value, ast.expr) else ast.unparse(node)
