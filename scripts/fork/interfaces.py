# SPDX-License-Identifier: Apache-2.0
"""Which names of upstream our sources use, and which of them a release changes.

Read from the sources, never by importing them: what is imported from `vllm`, what is
used of an imported module, and for classes that derive from upstream's the methods
that they override or call on themselves. What is called on other objects is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from fork.symbols import Sources, Symbol

_PACKAGE = "vllm"


class Use(str, Enum):
    """How a name of upstream is used."""

    IMPORTED = "imported"
    OVERRIDDEN = "overridden"
    CALLED = "called"


@dataclass(frozen=True, order=True)
class Name:
    """A name of upstream that we depend on; `owner` is the class of a method."""

    module: str
    owner: str
    name: str
    use: Use

    def __str__(self) -> str:
        return ".".join(part for part in (self.module, self.owner, self.name) if part)


@dataclass(frozen=True)
class Change:
    """A name that is not what it was, and the files of ours that use it."""

    name: Name
    what: str
    users: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({self.name.use.value} by {self.users[0]}): {self.what}"


def uses(ours: Mapping[str, str], upstream: Sources) -> dict[Name, list[str]]:
    """Map the names that exist in `upstream` and are used to the files using them."""
    found: dict[Name, list[str]] = {}
    exists: dict[Name, bool] = {}
    for path, text in ours.items():
        for name in sorted({*_names(ast.parse(text), upstream)}):
            if name not in exists:
                exists[name] = _look_up(name, upstream) is not None
            if exists[name]:
                found.setdefault(name, []).append(path)
    return found


def compare(used: Mapping[Name, list[str]], old: Sources, new: Sources) -> list[Change]:
    """Say which of the names are gone or changed."""
    return [
        Change(name, what, tuple(users))
        for name, users in sorted(used.items())
        if (what := _difference(name, old, new))
    ]


def _difference(name: Name, old: Sources, new: Sources) -> str:
    before, after = _look_up(name, old), _look_up(name, new)
    assert before is not None  # `uses` has found it
    if after is None:
        at_top = bool(name.name) and not name.owner
        place = new.defined_elsewhere(name.name) if at_top else None
        return f"gone; {place} has one" if place else "gone"
    if what := _signature(before, after, overridden=name.use is Use.OVERRIDDEN):
        return what
    if name.use is Use.OVERRIDDEN and before.body != after.body:
        return "body changed"
    return ""


def _signature(before: Symbol, after: Symbol, *, overridden: bool) -> str:
    """Say how parameters differ; optional new ones concern overrides alone."""
    lost = [part for part in before.signature if part not in after.signature]
    new = [part for part in after.signature if part not in before.signature]
    if not lost and not overridden:
        new = [part for part in new if "=" not in part and part[:5] != "base "]
    parts = [f"without `{_short(part)}`" for part in lost]
    parts += [f"with `{_short(part)}`" for part in new]
    same = [part for part in before.signature if part in after.signature]
    if same != [part for part in after.signature if part in before.signature]:
        parts.append("the parameters in another order")
    return ", ".join(parts)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _look_up(name: Name, sources: Sources) -> Symbol | None:
    if name.owner:
        return sources.method(name.module, name.owner, name.name)
    if not name.name:
        exists = sources.has_module(name.module)
        return Symbol(name.module, ("module",)) if exists else None
    return sources.find(name.module, name.name)


def _names(tree: ast.Module, upstream: Sources) -> Iterator[Name]:
    imported: dict[str, tuple[str, str]] = {}
    modules: dict[str, str] = {}
    nodes = [*ast.walk(tree)]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and _is_upstream(node.module):
            for alias in node.names:
                module = str(node.module)
                local = alias.asname or alias.name
                if upstream.has_module(f"{module}.{alias.name}"):
                    modules[local] = f"{module}.{alias.name}"
                    yield Name(modules[local], "", "", Use.IMPORTED)
                else:
                    imported[local] = module, alias.name
                    yield Name(module, "", alias.name, Use.IMPORTED)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_upstream(alias.name):
                    if alias.asname:
                        modules[alias.asname] = alias.name
                    yield Name(alias.name, "", "", Use.IMPORTED)
    for node in nodes:
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and (module := modules.get(node.value.id, ""))
        ):
            yield Name(module, "", node.attr, Use.IMPORTED)
        elif isinstance(node, ast.ClassDef):
            for base in node.bases:
                if isinstance(base, ast.Name) and base.id in imported:
                    yield from _methods(node, *imported[base.id])


def _methods(node: ast.ClassDef, module: str, owner: str) -> Iterator[Name]:
    own = {
        item.name
        for item in node.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for name in own:
        yield Name(module, owner, name, Use.OVERRIDDEN)
    for item in ast.walk(node):
        if isinstance(item, ast.Attribute) and item.attr not in own:
            receiver = item.value
            on_super = (
                isinstance(receiver, ast.Call)
                and isinstance(receiver.func, ast.Name)
                and receiver.func.id == "super"
            )
            if on_super or (isinstance(receiver, ast.Name) and receiver.id == "self"):
                yield Name(module, owner, item.attr, Use.CALLED)


def _is_upstream(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] == _PACKAGE
