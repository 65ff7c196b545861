# SPDX-License-Identifier: Apache-2.0
"""DSpark on two ranks of a tensor-parallel target."""

from pathlib import Path
from typing import Any

import pytest
from engine import dspark, engine, run_script, tokens

# The first ones are drafted by a checkpoint; the model goes on repeating the others, so
# that their own tokens are drafts.
PROMPTS = [
    [1, 5, 9, 20, 33],
    list(range(40, 100)),
    *[(list(range(i, i + 9)) * 4)[: 20 + i] for i in range(4)],
]
MAX_TOKENS = 60
SCRIPT = """
import json, sys
if __name__ == "__main__":
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    import pytest
    from engine import engine, keep_async_scheduling, tokens
    if {is_async}:
        keep_async_scheduling(pytest.MonkeyPatch())
    options = {{"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}}
    with engine(Path({model!r}), speculative_config={speculative}, **options) as llm:
        found = {{"tokens": tokens(llm, {prompts}, {max_tokens})}}
        name = "vllm:spec_decode_num_accepted_tokens"
        found["accepted"] = sum(m.value for m in llm.get_metrics() if m.name == name)
        print("FOUND", json.dumps(found))
"""


@pytest.mark.parametrize("drafter", ["checkpoint", "own tokens, async"])
def test_two_ranks(
    drafter: str, bigram_model: Path, bigram_draft: Path, tmp_path: Path
) -> None:
    """Tokens are V1's on one rank, and drafts are accepted."""
    with engine(bigram_model, use_v2=False) as llm:
        expected = tokens(llm, PROMPTS, MAX_TOKENS)
    speculative: dict[str, Any] = {"method": "dspark", "num_speculative_tokens": 7}
    if drafter == "checkpoint":
        speculative = dspark(bigram_draft)
    found, _ = run_script(
        SCRIPT.format(
            tests=str(Path(__file__).parent),
            is_async=drafter.endswith("async"),
            model=str(bigram_model),
            speculative=speculative,
            prompts=PROMPTS,
            max_tokens=MAX_TOKENS,
        ),
        tmp_path,
        VLLM_WORKER_MULTIPROC_METHOD="spawn",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        OMP_NUM_THREADS="1",
    )
    assert found["tokens"] == expected
    assert found["accepted"] > 10
