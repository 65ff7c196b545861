# SPDX-License-Identifier: Apache-2.0
"""An engine on the Kunlun platform, with the CPU doing the work of the made-up device.

All of the platform runs: it is found, configures the engine, has the GPU worker build
the runner, and gives attention, norms, buffers and kernels. None of it is the device's
own work, which is what stays unknown.
"""

from pathlib import Path
from typing import Any

import pytest
from engine import dspark, engine, run_script, tokens

TESTS = Path(__file__).parents[1]
PROMPTS = [[1, 5, 9, 20, 33], list(range(40, 100))]
# Enough steps for their times to be looked at.
MAX_TOKENS = 40
SCRIPT = """
import json, sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {tests!r} + "/e2e"]
import pytest
from fake_xpu import install, run_on_cpu
from fake_xpu.kunlun_ops import make_module
patch = pytest.MonkeyPatch()
install(patch, Path({dev!r}))
calls = []
if {vendor}:
    sys.modules["kunlun_ops"], calls = make_module()
run_on_cpu(patch)
from engine import engine, runner, tokens
with engine(Path({model!r}), **{options}) as llm:
    found = {{"tokens": tokens(llm, {prompts}, {max_tokens})}}
    found["runner"] = runner(llm).__name__
from vllm.platforms import current_platform
found["platform"] = type(current_platform).__name__
found["calls"] = sorted({{name for name, _ in calls}})
print("FOUND", json.dumps(found))
"""


def run(
    model: Path,
    dev: Path,
    *,
    vendor: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Run an engine on the made-up machine, in a process of its own."""
    script = SCRIPT.format(
        tests=str(TESTS),
        dev=str(dev),
        vendor=vendor,
        options=options,
        model=str(model),
        prompts=PROMPTS,
        max_tokens=MAX_TOKENS,
    )
    found, _ = run_script(script, dev)
    return found


@pytest.fixture(scope="module")
def expected(model: Path) -> list[list[int]]:
    """Return what V1 says on the CPU."""
    with engine(model, use_v2=False) as llm:
        return tokens(llm, PROMPTS, MAX_TOKENS)


@pytest.mark.parametrize("drafter", ["none", "checkpoint", "own tokens"])
def test_the_tokens_are_the_cpus(
    drafter: str,
    model: Path,
    draft: Path,
    tmp_path: Path,
    expected: list[list[int]],
) -> None:
    """Of a model that takes V2 when asked, and with dspark by itself."""
    options: dict[str, Any] = {"use_v2": True}
    if drafter == "checkpoint":
        options = {"speculative_config": dspark(draft)}
    elif drafter == "own tokens":
        config = {"method": "dspark", "num_speculative_tokens": 7}
        options = {"speculative_config": config}
    found = run(model, tmp_path, **options)
    assert found["platform"] == "KunlunPlatform"
    assert found["runner"] == "ModelRunnerV2"
    assert found["tokens"] == expected


def test_the_vendors_kernels_do_their_part(
    model: Path, tmp_path: Path, expected: list[list[int]]
) -> None:
    """In bfloat16, which they are for; without drafts, decodes have one token."""
    found = run(model, tmp_path, use_v2=True, vendor=True, dtype="bfloat16")
    assert found["calls"] == [
        "add_rmsnorm",
        "paged_attention",
        "prefill_attention",
        "reshape_and_cache_flash",
        "rmsnorm",
        "silu_and_mul",
    ]
    assert [len(answer) for answer in found["tokens"]] == [MAX_TOKENS, MAX_TOKENS]
    # Rounding may part the answers further on.
    assert [answer[0] for answer in found["tokens"]] == [a[0] for a in expected]
