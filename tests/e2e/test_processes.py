# SPDX-License-Identifier: Apache-2.0
"""The seam is there in every process of an engine, without anybody's help."""

import json
import os
import subprocess
import sys
from pathlib import Path

from engine import engine, tokens

PROMPTS = [[1, 5, 9, 20, 33], list(range(40, 100))]
SCRIPT = """
import json, sys
if __name__ == "__main__":
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from engine import dspark, engine, tokens
    speculative = dspark(Path({draft!r}))
    with engine(Path({model!r}), speculative_config=speculative) as llm:
        print("TOKENS", json.dumps(tokens(llm, {prompts})))
"""


def test_engine_core_in_a_spawned_process(
    model: Path, draft: Path, tmp_path: Path
) -> None:
    """As `vllm serve` runs it: the engine's core is another process."""
    with engine(model, use_v2=False) as llm:
        expected = tokens(llm, PROMPTS)
    script = tmp_path / "spawned.py"
    script.write_text(
        SCRIPT.format(
            tests=str(Path(__file__).parent),
            draft=str(draft),
            model=str(model),
            prompts=PROMPTS,
        )
    )
    environment = os.environ | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("TOKENS ")]
    assert json.loads(line.removeprefix("TOKENS ")) == expected
    assert "Model Runner V2 (CPUModelRunner) on cpu with kernels from vllm-kunlun" in (
        done.stdout + done.stderr
    )
