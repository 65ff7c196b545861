# SPDX-License-Identifier: Apache-2.0
"""Names of upstream that we use are found, and their changes told."""

from __future__ import annotations

import pytest
from fork import interfaces
from fork.interfaces import Use
from fork.symbols import Sources

UPSTREAM = {
    "vllm/__init__.py": (
        "import typing\n"
        "if typing.TYPE_CHECKING:\n    from .llm import LLM\n"
        "else:\n    def __getattr__(name): ...\n"
    ),
    "vllm/llm.py": "class LLM:\n    def __init__(self, model, *, seed=0): ...\n",
    "vllm/limits.py": "import os\nMAX = 4\n",
    "vllm/config/__init__.py": "from vllm.config.parts import Config as Config\n",
    "vllm/config/parts.py": "class Config:\n    size: int\n    name: str = 'x'\n",
    "vllm/base.py": (
        "class Base:\n"
        "    def inherited(self): return 1\n"
        "    def kept(self, a): return a\n"
    ),
    "vllm/runner.py": (
        "from vllm.base import Base\n"
        "class Runner(Base):\n"
        "    def step(self, batch, n=1, *rest, fast=False, **more) -> int:\n"
        '        """Step."""\n'
        "        return n\n"
        "    def _helper(self, x): return x\n"
        "    def unused(self): ...\n"
    ),
    "vllm/tools.py": "def tool(a: int, b=2): return a\n",
}
OURS = {
    "vllm_kunlun/runner.py": (
        "import vllm.limits as limits\n"
        "from vllm import LLM, tools\n"
        "from vllm.config import Config\n"
        "from vllm.runner import Runner\n"
        "from vllm.no_such import thing\n"
        "class Mine(Runner):\n"
        "    def step(self, batch):\n"
        "        super().kept(limits.MAX)\n"
        "        return self._helper(tools.tool(1)) + self.mine()\n"
        "    def inherited(self): ...\n"
        "    def mine(self): ...\n"
    )
}
SEEN = {
    ("vllm.limits", Use.IMPORTED),
    ("vllm.limits.MAX", Use.IMPORTED),
    ("vllm.LLM", Use.IMPORTED),
    ("vllm.tools", Use.IMPORTED),
    ("vllm.tools.tool", Use.IMPORTED),
    ("vllm.config.Config", Use.IMPORTED),
    ("vllm.runner.Runner", Use.IMPORTED),
    ("vllm.runner.Runner.step", Use.OVERRIDDEN),
    ("vllm.runner.Runner.inherited", Use.OVERRIDDEN),
    ("vllm.runner.Runner.kept", Use.CALLED),
    ("vllm.runner.Runner._helper", Use.CALLED),
}


def changes(old: str, new: str) -> list[str]:
    """Change upstream's text and return what is said of it, without our files."""
    before = Sources(UPSTREAM)
    assert any(old in text for text in UPSTREAM.values())
    after = Sources({p: text.replace(old, new) for p, text in UPSTREAM.items()})
    found = interfaces.compare(interfaces.uses(OURS, before), before, after)
    return [f"{change.name}: {change.what}" for change in found]


def test_every_use_is_seen_and_nothing_else() -> None:
    found = interfaces.uses(OURS, Sources(UPSTREAM))
    assert {(str(name), name.use) for name in found} == SEEN
    assert {*map(tuple, found.values())} == {("vllm_kunlun/runner.py",)}


def test_the_same_upstream_has_not_changed() -> None:
    assert changes("Step", "Another docstring") == []
    assert changes("(a: int, b=2)", "(a: float, b = 2)") == []
    assert changes("def unused(self)", "def unused(self, more)") == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("batch, n=1", "batch, k=1", ".step: without `n=1`, with `k=1`"),
        ("batch, n=1", "batch, n=1, k=2", ".step: with `k=2`"),
        ("batch, n=1, *rest", "batch, *, n=1", ".step: without `*rest`, with `*`"),
        ("return n\n", "return n + 1\n", ".step: body changed"),
        ("return 1\n", "return 2\n", ".inherited: body changed"),
        ("def kept(self, a)", "def kept(self, a, b)", ".kept: with `b`"),
        ("def _helper", "def _renamed", "._helper: gone"),
    ],
)
def test_changes_of_methods(old: str, new: str, said: str) -> None:
    assert f"vllm.runner.Runner{said}" in changes(old, new)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("MAX = 4", "MAX = 5", ["vllm.limits.MAX: without `4`, with `5`"]),
        ("MAX = 4", "", ["vllm.limits.MAX: gone"]),
        ("seed=0", "seed=0, more=1", []),
        ("model, *, seed", "model, more, *, seed", ["vllm.LLM: with `more`"]),
        (
            "size: int",
            "size: int = 1",
            ["vllm.config.Config: without `size`, with `size=1`"],
        ),
        ("(a: int, b=2)", "(b, a=2)", None),
        ("def tool", "def tools", ["vllm.tools.tool: gone"]),
    ],
)
def test_changes_of_what_is_imported(old: str, new: str, said: list[str]) -> None:
    found = changes(old, new)
    assert found == said if said is not None else len(found) == 1


def test_the_order_of_parameters_counts() -> None:
    assert changes("(self, model, *, seed=0)", "(model, self, *, seed=0)") == [
        "vllm.LLM: the parameters in another order"
    ]


def test_a_body_counts_only_where_it_is_overridden() -> None:
    assert changes("return x\n", "return x + 1\n") == []


def test_a_name_that_moved_is_found() -> None:
    before = Sources(UPSTREAM)
    moved = UPSTREAM | {
        "vllm/limits.py": "",
        "vllm/other.py": "MAX: int = 4\n",
    }
    found = interfaces.compare(interfaces.uses(OURS, before), before, Sources(moved))
    assert [change.what for change in found] == ["gone; vllm.other has one"]


def test_a_module_that_is_gone_is_told() -> None:
    before = Sources(UPSTREAM)
    left = {p: text for p, text in UPSTREAM.items() if p != "vllm/tools.py"}
    found = interfaces.compare(interfaces.uses(OURS, before), before, Sources(left))
    assert {str(change.name): change.what for change in found} == {
        "vllm.tools": "gone",
        "vllm.tools.tool": "gone",
    }
