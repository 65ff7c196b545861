# SPDX-License-Identifier: Apache-2.0
"""Texts to learn from: prompts and the target's own greedy answers."""

import json
import os
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_kunlun.environment import IN_PROCESS
from vllm_kunlun.files import write_json
from vllm_kunlun.train.prompts import chat_tokens, made_prompts, opening_tokens

SHARD = 128
"""Texts in a file."""
INVENTED = 2 / 3
"""The share of the prompts that the target writes itself."""
PROMPT_TOKENS = 96
MAX_MODEL_LEN = 1024
MIN_PROMPT_TOKENS = 3
REQUESTS = 128
SEED_STRIDE = 1_000_003
"""Between the seeds of two files."""

_ENVIRONMENT = IN_PROCESS | {
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


@dataclass(frozen=True)
class Text:
    """A prompt and its answer, in tokens."""

    prompt: list[int]
    answer: list[int]


def shard(folder: Path, number: int) -> Path:
    """Return where the texts of a shard are."""
    return folder / f"texts-{number:03}.json"


def read_shard(path: Path) -> list[Text]:
    """Return the texts of a shard."""
    return [Text(**text) for text in json.loads(path.read_text())]


def num_shards(num_prompts: int) -> int:
    """Return how many files so many texts fill."""
    return -(-num_prompts // SHARD)


def write_texts(
    target: Path, folder: Path, num_prompts: int, max_tokens: int, seed: int
) -> Iterator[str]:
    """Have the target answer, shard by shard; what is there already stays.

    Args:
        target: folder of the target.
        folder: where the files go.
        num_prompts: how many prompts.
        max_tokens: of an answer.
        seed: of the prompts; the answers are greedy.

    Yields:
        After each piece of work what was done.
    """
    shards = [shard(folder, i) for i in range(num_shards(num_prompts))]
    if all(path.exists() for path in shards):
        return
    writer = _Writer(target, max_tokens)
    seen: set[tuple[int, ...]] = set()
    try:
        for i, path in enumerate(shards):
            if not path.exists():
                number = min(SHARD, num_prompts - i * SHARD)
                prompts = writer.prompts(number, seed + i * SEED_STRIDE, seen)
                texts = writer.answers(prompts)
                write_json(path, [vars(text) for text in texts])
                yield f"texts {i + 1} of {len(shards)}"
            seen.update(tuple(text.prompt) for text in read_shard(path))
    finally:
        writer.close()


class _Writer:
    """An engine that writes prompts and answers."""

    def __init__(self, target: Path, max_tokens: int) -> None:
        # Before vllm is imported, which reads them then.
        os.environ.update(_ENVIRONMENT)
        from vllm import LLM

        config = json.loads((target / "config.json").read_text())
        max_model_len = min(MAX_MODEL_LEN, config["max_position_embeddings"])
        self._max_tokens = max_tokens
        self._longest_prompt = max_model_len - max_tokens
        self._llm = LLM(
            str(target),
            dtype="bfloat16",
            enforce_eager=True,
            max_model_len=max_model_len,
            max_num_seqs=REQUESTS,
            max_num_batched_tokens=MAX_MODEL_LEN,
            kv_cache_memory_bytes=1 << 30,
        )
        self._tokenizer: Any = self._llm.get_tokenizer()

    def close(self) -> None:
        """End the engine."""
        self._llm.llm_engine.engine_core.shutdown()

    def prompts(
        self, number: int, seed: int, seen: Set[tuple[int, ...]]
    ) -> list[list[int]]:
        """Return prompts in tokens, which are not among those `seen`.

        Raises:
            ValueError: too few of them leave room for an answer.
        """
        num_invented = round(number * INVENTED)
        invented = self._in_tokens(self._invented(num_invented, seed))
        made = self._in_tokens(made_prompts(4 * number, seed))
        new = [p for p in invented[:num_invented] + made if tuple(p) not in seen]
        if len(new) < number:
            raise ValueError(
                f"Only {len(new)} prompts of {number} leave room for an answer of "
                f"{self._max_tokens} tokens: lower --tokens."
            )
        return new[:number]

    def _in_tokens(self, prompts: Iterable[str]) -> list[list[int]]:
        tokens = [chat_tokens(self._tokenizer, prompt) for prompt in prompts]
        return [t for t in tokens if len(t) <= self._longest_prompt]

    def _invented(self, number: int, seed: int) -> list[str]:
        from vllm import SamplingParams

        opening: Any = {"prompt_token_ids": opening_tokens(self._tokenizer)}
        # More than needed: some are too long, some come twice.
        sampling = [
            SamplingParams(temperature=1.0, seed=seed + i, max_tokens=PROMPT_TOKENS)
            for i in range(number * 5 // 4)
        ]
        outputs = self._llm.generate(
            [opening] * len(sampling), sampling, use_tqdm=False
        )
        found: dict[str, None] = {}
        for output in outputs:
            best = output.outputs[0]
            if best.finish_reason == "stop" and len(best.token_ids) > MIN_PROMPT_TOKENS:
                found[best.text.strip()] = None
        return list(found)

    def answers(self, prompts: list[list[int]]) -> list[Text]:
        """Return the texts of some prompts."""
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=0, max_tokens=self._max_tokens)
        requests: list[Any] = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self._llm.generate(requests, sampling, use_tqdm=False)
        return [
            Text(prompt, list(output.outputs[0].token_ids))
            for prompt, output in zip(prompts, outputs, strict=True)
        ]
