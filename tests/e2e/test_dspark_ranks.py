# SPDX-License-Identifier: Apache-2.0
"""DSpark on two ranks of a tensor-parallel target."""

from pathlib import Path

from engine import engine, run_script, tokens

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
        found = {{"tokens": tokens(llm, {prompts}, 24)}}
        name = "vllm:spec_decode_num_accepted_tokens"
        found["accepted"] = sum(m.value for m in llm.get_metrics() if m.name == name)
        print("FOUND", json.dumps(found))
"""


def test_two_ranks(bigram_model: Path, bigram_draft: Path, tmp_path: Path) -> None:
    """Tokens are V1's on one rank, and drafts are accepted."""
    with engine(bigram_model, use_v2=False) as llm:
        expected = tokens(llm, PROMPTS, 24)
    found, _ = run_script(
        SCRIPT.format(
            tests=str(Path(__file__).parent),
            draft=str(bigram_draft),
            model=str(bigram_model),
            prompts=PROMPTS,
        ),
        tmp_path,
        VLLM_WORKER_MULTIPROC_METHOD="spawn",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        OMP_NUM_THREADS="1",
    )
    assert found["tokens"] == expected
    assert found["accepted"] > 10
