# SPDX-License-Identifier: Apache-2.0
"""The KUNLUN_* variables: what they are when unset, set, and set wrongly."""

import ast
from dataclasses import fields
from pathlib import Path

import pytest
import vllm

from vllm_kunlun.switches import ALL_OFF, Switches, read, table, variable


def test_a_part_follows_its_switch_unless_it_is_set() -> None:
    """A part alone is its switch off and itself on."""
    alone = read({"KUNLUN_SPEC_VEC": "0", "KUNLUN_REJ_XPU": "1"})
    assert alone.rej_xpu
    assert not alone.spec_vec
    assert not alone.gumbel_greedy
    assert not read({"KUNLUN_HOSTVEC_POSTUPDATE": "0"}).hostvec_postupdate
    assert read({"KUNLUN_HOSTVEC": " 1 ", "KUNLUN_LAZY_KV": ""}).postupd3


def test_all_zero_is_all_off() -> None:
    """No switch is left out of ALL_OFF."""
    assert read({variable(f.name): "0" for f in fields(Switches)}) == ALL_OFF


@pytest.mark.parametrize("value", ["on", "2", "true", "-1"])
def test_other_values_are_refused(value: str) -> None:
    """The message names the variable, the value and what is allowed."""
    with pytest.raises(ValueError, match=f"KUNLUN_MASK_FUSE is '{value}': set it to 1"):
        read({"KUNLUN_MASK_FUSE": value})


def test_v1_never_reads_a_switch() -> None:
    """Nothing of vLLM but ModelRunnerV2 asks the provider for stages."""
    root = Path(vllm.__file__).parent
    asking = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if any(
            (isinstance(node, ast.Attribute) and node.attr == "fused_stages")
            or (isinstance(node, ast.Constant) and "KUNLUN_" in str(node.value))
            for node in ast.walk(ast.parse(file.read_bytes()))
        )
    }
    assert asking == {"v1/worker/gpu/model_runner_v2.py"}


def test_the_table_names_every_switch() -> None:
    """What is logged at start shows values and, deeper, parts."""
    lines = table(read({"KUNLUN_HOSTVEC": "0"})).splitlines()
    assert len(lines) == len(fields(Switches))
    assert lines[0].split()[:2] == ["KUNLUN_HOSTVEC", "off"]
    assert lines[1].startswith("    KUNLUN_HOSTVEC_POSTUPDATE")
