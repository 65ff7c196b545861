# SPDX-License-Identifier: Apache-2.0
"""Scheduler outputs as an engine's would be: prompts first, then decoding with drafts.

Requests enter with most of their prompt computed, as after a hit of the prefix cache,
so that block tables have a realistic length from the first step on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm import SamplingParams
from vllm.v1.core.sched.output import (
    CachedRequestData,
    NewRequestData,
    SchedulerOutput,
)

from vllm_kunlun.bench.step.null_model import BLOCK_SIZE
from vllm_kunlun.bench.step.runner import MAX_MODEL_LEN, Shape

PROMPT = 512
SPREAD = 64
"""Prompts are PROMPT to PROMPT + SPREAD - 1 tokens long."""
UNCOMPUTED = 8
"""Tokens of a prompt that its first step computes."""
MOST_STEPS = (MAX_MODEL_LEN - PROMPT - SPREAD) // 17 - 2
"""Steps before a request could reach the model's limit, with 15 drafts accepted."""

# The column of torch code has no kernels for "masked".
SAMPLING: Mapping[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.8, "min_p": 0.05},
    "masked": {
        "temperature": 0.8,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.1,
        "logit_bias": {3: 0.5, 4: -0.5},
        "min_tokens": 8,
        "stop_token_ids": [5],
    },
}


@dataclass
class Request:
    """What a scheduler knows of a request."""

    name: str
    prompt: list[int]
    computed: int
    outputs: int = 0
    blocks: int = 0


class Workload:
    """Plays the scheduler for a fixed number of running requests."""

    def __init__(self, shape: Shape, sampling: str, turnover: int) -> None:
        """Make the requests.

        Args:
            shape: sizes of a step.
            sampling: a key of `SAMPLING`.
            turnover: requests that end, and are replaced, before each step.
        """
        self.shape = shape
        self.sampling = sampling
        self.turnover = min(turnover, shape.requests)
        self.made = 0
        self.next_block = 1
        self.running: list[Request] = []

    def first(self) -> SchedulerOutput:
        """Return the step in which all requests enter."""
        return self._step([self._new() for _ in range(self.shape.requests)], set())

    def next(self, sampled: Sequence[Sequence[int]], names: Sequence[str]) -> Any:
        """Return the step after one that gave the tokens `sampled` to `names`."""
        tokens = dict(zip(names, sampled, strict=True))
        for request in self.running:
            accepted = len(tokens[request.name])
            prompt_left = max(len(request.prompt) - request.computed, 0)
            # The last of the tokens is not computed yet.
            request.computed += max(prompt_left, 1) + accepted - 1
            request.outputs += accepted
        ended = self.running[: self.turnover]
        self.running = self.running[self.turnover :]
        return self._step([self._new() for _ in ended], {r.name for r in ended})

    def _step(self, entering: list[Request], ended: set[str]) -> SchedulerOutput:
        drafts = self.shape.drafts
        cached = CachedRequestData.make_empty()
        tokens: dict[str, int] = {}
        spec: dict[str, list[int]] = {}
        for request in self.running:
            tokens[request.name] = 1 + drafts
            if drafts:
                spec[request.name] = [-1] * drafts
            cached.req_ids.append(request.name)
            cached.num_computed_tokens.append(request.computed)
            cached.num_output_tokens.append(request.outputs)
            cached.new_block_ids.append(
                self._grow(request, request.computed + 1 + 2 * drafts)
            )
        for request in entering:
            tokens[request.name] = len(request.prompt) - request.computed
        step = SchedulerOutput.make_empty()
        step.scheduled_new_reqs = [self._enter(request) for request in entering]
        step.scheduled_cached_reqs = cached
        step.num_scheduled_tokens = tokens
        step.total_num_scheduled_tokens = sum(tokens.values())
        step.scheduled_spec_decode_tokens = spec
        step.num_common_prefix_blocks = [0] * self.shape.groups
        step.finished_req_ids = ended
        self.running += entering
        return step

    def _new(self) -> Request:
        number = self.made
        self.made += 1
        length = PROMPT + number * 7 % SPREAD
        vocabulary = self.shape.vocabulary
        prompt = [3 + (number + i) % (vocabulary - 3) for i in range(length)]
        return Request(f"request-{number}", prompt, length - UNCOMPUTED)

    def _enter(self, request: Request) -> NewRequestData:
        drafts = self.shape.drafts
        blocks = self._grow(request, len(request.prompt) + drafts)
        assert blocks is not None
        params = dict(SAMPLING[self.sampling])
        if params["temperature"]:
            params["seed"] = self.made
        sampling_params = SamplingParams(max_tokens=MAX_MODEL_LEN, **params)
        sampling_params.update_from_generation_config({}, eos_token_id=None)
        return NewRequestData(
            req_id=request.name,
            prompt_token_ids=request.prompt,
            prefill_token_ids=request.prompt,
            mm_features=[],
            sampling_params=sampling_params,
            pooling_params=None,
            block_ids=blocks,
            num_computed_tokens=request.computed,
            lora_request=None,
        )

    def _grow(self, request: Request, tokens: int) -> tuple[list[int], ...] | None:
        """Give a request blocks for so many tokens; return each group's new ones."""
        needed = -(-min(tokens, MAX_MODEL_LEN) // BLOCK_SIZE) - request.blocks
        if needed <= 0:
            return None
        request.blocks += needed
        ids = []
        for _ in range(self.shape.groups):
            ids.append(list(range(self.next_block, self.next_block + needed)))
            self.next_block += needed
        return tuple(ids)
