# SPDX-License-Identifier: Apache-2.0
"""DSpark on two ranks of a tensor-parallel target."""

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
    options = {{"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}}
    speculative = dspark(Path({draft!r}))
    with engine(Path({model!r}), speculative_config=speculative, **options) as llm:
        print("TOKENS", json.dumps(tokens(llm, {prompts}, 24)))
        name = "vllm:spec_decode_num_accepted_tokens"
        found = [m.value for m in llm.get_metrics() if m.name == name]
        print("ACCEPTED", json.dumps(sum(found)))
"""


def test_two_ranks(bigram_model: Path, bigram_draft: Path, tmp_path: Path) -> None:
    """Tokens are V1's on one rank, and drafts are accepted."""
    with engine(bigram_model, use_v2=False) as llm:
        expected = tokens(llm, PROMPTS, 24)
    script = tmp_path / "ranks.py"
    script.write_text(
        SCRIPT.format(
            tests=str(Path(__file__).parent),
            draft=str(bigram_draft),
            model=str(bigram_model),
            prompts=PROMPTS,
        )
    )
    environment = os.environ | {
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
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
    printed = dict(
        line.split(maxsplit=1)
        for line in done.stdout.splitlines()
        if line.startswith(("TOKENS ", "ACCEPTED "))
    )
    assert json.loads(printed["TOKENS"]) == expected
    assert json.loads(printed["ACCEPTED"]) > 10
