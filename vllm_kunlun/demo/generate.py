# SPDX-License-Identifier: Apache-2.0
"""One way to generate, in a process of its own (``python -m``): JSON on a file."""

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vllm_kunlun.environment import IN_PROCESS

MAX_TOKENS = 48
QUESTIONS = (
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "Write a short poem about the sea.",
    "Repeat this sentence three times: The ship sailed north until the ice closed in.",
)


@dataclass(frozen=True)
class Generation:
    """What one run gave.

    Attributes:
        runner: class of the model runner that the worker built.
        token_ids: one list per question.
        text: one answer per question.
        tokens_per_second: output tokens of all requests over wall-clock time.
        drafted: draft tokens that were verified; None without speculation.
        accepted: those of them that the target agreed with.
    """

    runner: str
    token_ids: list[list[int]]
    text: list[str]
    tokens_per_second: float
    drafted: int | None
    accepted: int | None


def generate(model: Path, num_draft_tokens: int, draft: Path | None) -> Generation:
    """Answer `QUESTIONS` greedily in float32 with the runner the environment chose.

    Args:
        model: folder of the target.
        num_draft_tokens: per request and step; 0 for no speculation.
        draft: a DSpark checkpoint; None to draft from the request's own tokens.
    """
    from vllm import LLM, SamplingParams

    speculative: dict[str, Any] | None = None
    if num_draft_tokens > 0:
        speculative = {
            "method": "dspark",
            "num_speculative_tokens": num_draft_tokens,
        }
        if draft is not None:
            speculative["model"] = str(draft)
    llm = LLM(
        str(model),
        dtype="float32",
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=len(QUESTIONS),
        max_num_batched_tokens=512,
        kv_cache_memory_bytes=1 << 28,
        speculative_config=speculative,
        disable_log_stats=False,
    )
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS)
    chats: list[Any] = [[{"role": "user", "content": q}] for q in QUESTIONS]
    started = time.perf_counter()
    outputs = [r.outputs[0] for r in llm.chat(chats, params, use_tqdm=False)]
    elapsed = time.perf_counter() - started
    counters = {m.name: getattr(m, "value", None) for m in llm.get_metrics()}
    return Generation(
        runner=llm.collective_rpc(runner_class)[0],
        token_ids=[list(o.token_ids) for o in outputs],
        text=[o.text for o in outputs],
        tokens_per_second=sum(len(o.token_ids) for o in outputs) / elapsed,
        drafted=counters.get("vllm:spec_decode_num_draft_tokens"),
        accepted=counters.get("vllm:spec_decode_num_accepted_tokens"),
    )


def runner_class(worker: Any) -> str:
    """Name the class of `worker`'s model runner and where it is from."""
    runner = type(worker.model_runner)
    return f"{runner.__module__}.{runner.__name__}"


def main() -> None:
    """Run one way and write its `Generation` as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--num-draft-tokens", type=int, default=0)
    parser.add_argument("--draft", type=Path)
    arguments = parser.parse_args()
    os.environ.update(IN_PROCESS)
    result = generate(arguments.model, arguments.num_draft_tokens, arguments.draft)
    arguments.result.write_text(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
