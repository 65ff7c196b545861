# SPDX-License-Identifier: Apache-2.0
"""An engine in a process of its own: orders come in as lines of JSON, answers go out.

An engine stays up between its turns, so that many can be measured in turn without
starting them again.
"""

import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from vllm_kunlun.bench.spec.prompts import RANDOM, TEXTS, random_tokens

MAX_MODEL_LEN = 1024


@dataclass
class Found:
    """What one run of an engine gave."""

    seconds: float
    """How long all places were taken, as `Engine.answers` counts it."""
    tokens: int
    """Tokens made in that time."""
    inter_token: float
    """Milliseconds between two tokens of a request; the median over requests of each
    one's mean."""
    drafts: int = 0
    """Drafts of any length that were verified."""
    drafted: int = 0
    accepted: int = 0
    accepted_at: list[int] = field(default_factory=list)
    """Accepted drafts by position."""
    outputs: list[list[int]] = field(default_factory=list)
    """Tokens of each request."""


def is_kept_busy(requests: int, at_once: int) -> bool:
    """Return whether there is a time that has neither a beginning nor an end in it."""
    return requests >= 3 * at_once


def lengths(requests: int, at_once: int, max_tokens: int) -> list[int]:
    """Return how many tokens each request is to make.

    Clients know nothing of each other, so that of a server's requests one has just
    begun while another one ends. Those that begin together and make the same number of
    tokens stay in step for ever where nothing is drafted, and have all their prompts
    read in one large step that no decoding waits for; drafts take them out of step, and
    that advantage away. So where there is a time to be counted that they are not in,
    the first of each place end evenly spread.
    """
    spread = at_once if is_kept_busy(requests, at_once) else 0
    first = [-(-max_tokens * (i + 1) // at_once) for i in range(spread)]
    return first + [max_tokens] * (requests - spread)


class Engine:
    """An engine in this process."""

    def __init__(self, options: dict[str, Any]) -> None:
        from vllm import LLM

        self.llm = LLM(
            max_model_len=MAX_MODEL_LEN,
            max_num_batched_tokens=2 * MAX_MODEL_LEN,
            enable_prefix_caching=False,
            disable_log_stats=False,
            **options,
        )

    def run(self, kind: str, requests: int, at_once: int, max_tokens: int) -> Found:
        """Answer so many prompts of a kind, at most `at_once` at a time.

        As one ends the next one begins, as clients keep a server busy: a batch that
        only shrinks would measure its slowest request. `lengths` has how long each is.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        prompts: list[Any] = [
            {"prompt_token_ids": self.prompt(kind, i)} for i in range(requests)
        ]
        sampling = [
            SamplingParams(
                temperature=0,
                max_tokens=length,
                ignore_eos=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            for length in lengths(requests, at_once, max_tokens)
        ]
        before = self.counters()
        outputs, seconds, made = self.answers(prompts, sampling, at_once)
        after = self.counters()
        tokens = [list(o.outputs[0].token_ids) for o in outputs]
        between = [
            (o.metrics.last_token_ts - o.metrics.first_token_ts) / (len(its) - 1)
            for o, its in zip(outputs, tokens, strict=True)
            if len(its) > 1
        ]
        return Found(
            seconds=seconds,
            tokens=made,
            inter_token=statistics.median(between) * 1e3,
            drafts=after["drafts"] - before["drafts"],
            drafted=after["draft_tokens"] - before["draft_tokens"],
            accepted=after["accepted_tokens"] - before["accepted_tokens"],
            accepted_at=[
                a - b
                for a, b in zip(
                    after["accepted_tokens_per_pos"],
                    before["accepted_tokens_per_pos"] or [0] * 99,
                    strict=False,
                )
            ],
            outputs=tokens,
        )

    def answers(
        self, prompts: list[Any], sampling: list[Any], at_once: int
    ) -> tuple[list[Any], float, int]:
        """Return the prompts' outputs, and seconds and tokens while all were busy.

        That is from when each place has been taken twice until the last request begins.
        After it places get empty, which says nothing of a server that is busy, and
        costs the most where requests take different numbers of steps. Before it they
        fill. With fewer than three requests for each place it is the time until the
        last begins, and where no request has to wait for a place all of the time, and
        all tokens.
        """
        warm = 2 * at_once if is_kept_busy(len(prompts), at_once) else 0
        begun = 0
        outputs: list[Any] = []

        def so_far() -> tuple[float, int]:
            return time.perf_counter(), self.generated()

        started: tuple[float, int] | None = None
        all_begun: tuple[float, int] | None = None
        while len(outputs) < len(prompts):
            free = at_once - (begun - len(outputs))
            if new := prompts[begun : begun + free]:
                params = sampling[begun : begun + free]
                self.llm.enqueue(new, params, use_tqdm=False)
                begun += len(new)
                if started is None and begun >= warm:
                    started = so_far()
                if begun == len(prompts) > at_once:
                    all_begun = so_far()
            outputs += self.llm.llm_engine.step()
        assert started is not None
        ended = all_begun or so_far()
        seconds, made = ended[0] - started[0], ended[1] - started[1]
        # They are numbered as they come in.
        outputs.sort(key=lambda output: int(output.request_id))
        return outputs, seconds, made

    def generated(self) -> int:
        """Return how many tokens all requests have got."""
        metrics = {metric.name: metric for metric in self.llm.get_metrics()}
        value: int = metrics["vllm:generation_tokens"].value
        return value

    def prompt(self, kind: str, number: int) -> list[int]:
        """Return the tokens of a prompt."""
        tokenizer: Any = self.llm.get_tokenizer()
        if kind == RANDOM:
            return random_tokens(number, len(tokenizer))
        message = [{"role": "user", "content": TEXTS[kind](number)}]
        text = tokenizer.apply_chat_template(
            message, tokenize=False, add_generation_prompt=True
        )
        return list(tokenizer.encode(text, add_special_tokens=False))

    def counters(self) -> dict[str, Any]:
        """Return upstream's metrics of speculation; zeros where there is none."""
        prefix = "vllm:spec_decode_num_"
        found: dict[str, Any] = {
            "drafts": 0,
            "draft_tokens": 0,
            "accepted_tokens": 0,
            "accepted_tokens_per_pos": [],
        }
        for metric in self.llm.get_metrics():
            if metric.name.startswith(prefix):
                value = getattr(metric, "value", None)
                if value is None:
                    value = metric.values
                found[metric.name.removeprefix(prefix)] = value
        return found

    def accept(self, rate: float) -> None:
        """Have each draft accepted with a probability, whatever it is."""

        def set_rates(worker: Any) -> None:
            # In place: the sampler, and whatever runs fused, holds this tensor.
            sampler = worker.model_runner.rejection_sampler
            sampler.synthetic_conditional_rates.fill_(rate)

        self.llm.collective_rpc(set_rates)


def serve_orders(orders: Any, answers: Any) -> None:
    """Start the engine of the first line; run what the others say."""

    def answer(what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    engine = Engine(json.loads(orders.readline()))
    answer("ready")
    for line in orders:
        order = json.loads(line)
        if "rate" in order:
            engine.accept(order.pop("rate"))
        answer(vars(engine.run(**order)))


def main() -> None:
    """Answer on what was stdout; whatever is printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    serve_orders(sys.stdin, answers)


if __name__ == "__main__":
    main()
