# SPDX-License-Identifier: Apache-2.0
"""The seam is there in every process of an engine, without anybody's help."""

from pathlib import Path

from engine import engine, run_script, tokens

PROMPTS = [[1, 5, 9, 20, 33], list(range(40, 100))]
SCRIPT = """
import json, sys
if __name__ == "__main__":
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from engine import dspark, engine, tokens
    speculative = dspark(Path({draft!r}))
    with engine(Path({model!r}), speculative_config=speculative) as llm:
        print("FOUND", json.dumps({{"tokens": tokens(llm, {prompts})}}))
"""


def test_engine_core_in_a_spawned_process(
    model: Path, draft: Path, tmp_path: Path
) -> None:
    """As `vllm serve` runs it: the engine's core is another process."""
    with engine(model, use_v2=False) as llm:
        expected = tokens(llm, PROMPTS)
    found, written = run_script(
        SCRIPT.format(
            tests=str(Path(__file__).parent),
            draft=str(draft),
            model=str(model),
            prompts=PROMPTS,
        ),
        tmp_path,
        VLLM_ENABLE_V1_MULTIPROCESSING="1",
        VLLM_WORKER_MULTIPROC_METHOD="spawn",
    )
    assert found["tokens"] == expected
    assert (
        "Model Runner V2 (CPUModelRunner) on cpu with kernels from vllm-kunlun"
        in written
    )
