# SPDX-License-Identifier: Apache-2.0
"""The fused sample stage against upstream's, on made-up batches without a model."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import vllm.v1.worker.cpu.shm  # noqa: F401  what V2 needs of a device, on a CPU
from vllm import SamplingParams
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.sample.output import SamplerOutput
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
from vllm.v1.worker.gpu.states import RequestState
from vllm.v1.worker.gpu.structured_outputs import StructuredOutputsWorker

from vllm_kunlun.step import sampling
from vllm_kunlun.switches import ALL_OFF

VOCAB = 300
STEPS = 3
SEATS = 6
DEVICE = torch.device("cpu")
NAMES = ("mask_fuse", "gumbel_greedy", "rej_xpu")
SWITCHES = [
    replace(ALL_OFF, **dict(zip(NAMES, on, strict=True)))
    for on in product((False, True), repeat=3)
    if any(on)
]
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "temperature": {"temperature": 0.7},
    "one": {"temperature": 1.0},
    "top_k": {"temperature": 1.2, "top_k": 4},
    "top_p": {"temperature": 1.0, "top_p": 0.7},
    "min_p": {"temperature": 1.0, "min_p": 0.3},
    "penalties": {"temperature": 0, "repetition_penalty": 1.3, "presence_penalty": 1},
    "allowed": {"temperature": 1.0, "allowed_token_ids": [*range(20, 60)]},
    "logit_bias": {"temperature": 0, "logit_bias": {5: 4.0, 9: -4.0}},
    "min_tokens": {"temperature": 0, "min_tokens": 9, "stop_token_ids": [*range(99)]},
    "logprobs": {"temperature": 1.0, "logprobs": 3},
    "token_ids": {"temperature": 0, "logprob_token_ids": [3, 99]},
}


class Setup:
    """A runner with a batch of requests, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random = np.random.default_rng(seed)
        g = torch.Generator().manual_seed(seed)
        has_drafts = random.random() < 0.6
        kinds = list(KINDS)
        if random.random() < 0.3:
            kinds = [str(random.choice(kinds))]
        self.states = RequestState(SEATS, 64, 256, STEPS, VOCAB, DEVICE)
        self.sampler = Sampler(
            SEATS, VOCAB, DEVICE, self.states, num_speculative_tokens=STEPS
        )
        if random.random() < 0.2:
            self.sampler.logprobs_mode = "processed_logprobs"
        self.sampler.compute_nans = bool(random.random() < 0.2)
        self.sampler.use_fp64_gumbel = bool(random.random() < 0.2)
        for i in range(SEATS):
            # Few different tokens: they repeat, and end in bad words.
            tokens = random.integers(4, size=20).tolist()
            self.states.add_request(str(i), 12, tokens, 20, 40)
            req = self.states.req_id_to_index[str(i)]
            params = SamplingParams(
                max_tokens=40, seed=i, **KINDS[str(random.choice(kinds))]
            )
            if random.random() < 0.3:
                params._bad_words_token_ids = [[1, 2], [3], [0, 1, 5]]
            self.sampler.add_request(req, 12, params)
        self.states.apply_staged_writes()
        self.sampler.apply_staged_writes()
        self.verifier = self.make_verifier() if has_drafts else None
        if random.random() < 0.3:
            # A drafter may draft less than the scheduler believes.
            counts = random.integers(STEPS + 1, size=SEATS)
            self.states.num_drafts = torch.tensor(counts, dtype=torch.int32)
        self.batch = self.make_batch(has_drafts)
        self.draft_logits = None
        if random.random() < 0.5:
            self.draft_logits = torch.randn(SEATS, STEPS, VOCAB, generator=g) * 2
        rows = len(self.batch.logits_indices)
        dtype = (torch.float32, torch.bfloat16, torch.float16)[random.integers(3)]
        wide = (torch.randn(rows, VOCAB + 4, generator=g) * 2).to(dtype)
        self.logits = wide[:, :VOCAB]
        if self.sampler.compute_nans:
            self.logits[torch.rand(rows, VOCAB, generator=g) < 0.02] = float("nan")
        self.liked_drafts()
        self.grammar = self.make_grammar() if random.random() < 0.4 else None

    def make_verifier(self) -> RejectionSampler:
        method = ("standard", "block", "synthetic")[self.random.integers(3)]
        config: Any = SimpleNamespace(
            num_speculative_tokens=STEPS,
            rejection_sample_method=method,
            synthetic_acceptance_rates=[0.8, 0.5, 0.2],
        )
        return RejectionSampler(self.sampler, config, DEVICE)

    def make_batch(self, has_drafts: bool) -> Any:
        random = self.random
        n = int(random.integers(1, SEATS + 1))
        requests = random.permutation(SEATS)[:n].astype(np.int32)
        drafts = random.integers(STEPS + 1, size=n) * has_drafts
        rows = drafts + 1
        ends = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
        before = np.cumsum(random.integers(3, size=n))
        places = np.concatenate([np.arange(k) for k in rows])
        indices = np.arange(ends[-1]) + np.repeat(before, rows)
        num_tokens = int(indices[-1]) + 3
        # Some are in the middle of their prefill, which then have no drafts.
        seq_lens = random.integers(17, 25, size=n) + 4 * (drafts > 0)
        i32 = torch.int32
        return SimpleNamespace(
            req_ids=[self.states.index_to_req_id[int(r)] for r in requests],
            num_reqs=n,
            num_tokens=num_tokens,
            num_draft_tokens=int(drafts.sum()),
            num_draft_tokens_per_req=drafts if has_drafts else None,
            is_prefilling_np=random.random(n) < 0.2,
            idx_mapping_np=requests,
            idx_mapping=torch.tensor(requests),
            expanded_idx_mapping=torch.tensor(np.repeat(requests, rows)),
            expanded_local_pos=torch.tensor(places, dtype=i32),
            cu_num_logits_np=ends,
            cu_num_logits=torch.tensor(ends),
            logits_indices=torch.tensor(indices),
            seq_lens=torch.tensor(seq_lens, dtype=i32),
            input_ids=torch.tensor(random.integers(4, size=num_tokens), dtype=i32),
            positions=torch.tensor(random.integers(17, 25, size=num_tokens)),
        )

    def liked_drafts(self) -> None:
        """Let the target often want the next draft."""
        inputs = self.batch.input_ids[self.batch.logits_indices]
        for row in range(len(inputs) - 1):
            if self.random.random() < 0.7:
                self.logits[row, inputs[row + 1]] += 9

    def make_grammar(self) -> Any:
        random, ends = self.random, self.batch.cu_num_logits_np
        order = random.permutation(self.batch.num_reqs)[: random.integers(1, 4)]
        masks = sum(int(ends[i + 1] - ends[i]) for i in order)
        words = -(-VOCAB // 32)
        return SimpleNamespace(
            structured_output_request_ids=[self.batch.req_ids[i] for i in order],
            grammar_bitmask=random.integers(
                -(2**31), 2**31, size=(masks, words), dtype=np.int32
            ),
        )

    def runner(self) -> Any:
        """Return what a runner's sample stage sees of it."""
        logits = self.logits.clone()
        return SimpleNamespace(
            device=DEVICE,
            sampler=self.sampler,
            rejection_sampler=self.verifier,
            speculator=SimpleNamespace(draft_logits=self.draft_logits),
            structured_outputs_worker=StructuredOutputsWorker(64, VOCAB, DEVICE),
            model=SimpleNamespace(compute_logits=lambda hidden: logits),
        )


def seen(output: SamplerOutput) -> list[Any]:
    """Return all that others see of a sampler's output."""
    tokens, counts = output.sampled_token_ids, output.num_sampled
    assert tokens is not None and counts is not None  # noqa: PT018
    assert output.num_rejected is not None
    found = [
        (str(tokens.dtype), tokens.shape, str(counts.dtype)),
        [row[:n] for row, n in zip(tokens.tolist(), counts.tolist(), strict=True)],
        output.num_rejected.tolist(),
        None if output.num_nans is None else output.num_nans.tolist(),
    ]
    logprobs = output.logprobs_tensors
    if logprobs is not None:
        found += [
            logprobs.logprob_token_ids.tolist(),
            logprobs.logprobs.nan_to_num(7).tolist(),
            logprobs.selected_token_ranks.tolist(),
            logprobs.cu_num_generated_tokens,
        ]
    return found


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_same_as_upstreams_stage(first: int) -> None:
    """Tokens, counts, logprobs and counts of NaN, with each choice of switches."""
    for seed in range(first, first + 40):
        setup = Setup(seed)
        hidden = torch.zeros(64, 1)
        with torch.inference_mode():
            expected = GPUModelRunner.sample(
                setup.runner(), hidden, setup.batch, setup.grammar
            )
        for switches in SWITCHES:
            runner = setup.runner()
            stage = sampling.sample(runner, switches)
            assert stage is not None
            with torch.inference_mode():
                found = stage(hidden, setup.batch, setup.grammar)
            assert seen(found[0]) == seen(expected[0]), (seed, switches)
            assert found[1] is found[0].num_sampled
            assert found[2] is found[0].num_rejected
