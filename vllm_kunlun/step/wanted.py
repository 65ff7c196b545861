# SPDX-License-Identifier: Apache-2.0
"""What the requests of a batch ask of their logits, as the host knows it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import GrammarOutput
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.sample.sampler import Sampler


@dataclass(frozen=True)
class Wanted:
    """What the requests of a batch ask of their logits; known on the host."""

    bias: bool
    penalties: bool
    bad_words: bool
    scaled: bool
    """Some temperature is neither 0 nor 1, or some min_p is not 0."""
    greedy: bool
    """Every request is greedy."""
    top: bool
    """Some request has top-k or top-p."""
    logprobs: int
    """How many logprobs are asked for at most; NO_LOGPROBS if none."""
    token_ids: int
    """How many logprob_token_ids."""

    @property
    def masks(self) -> bool:
        """Whether the logits change before top-k and top-p, grammars aside."""
        return self.bias or self.penalties or self.bad_words or self.scaled


def wanted_by(sampler: "Sampler", requests: np.ndarray) -> Wanted:
    """Return what the requests with these state rows, shape [num_reqs], want."""
    states = sampler.sampling_states
    temperature = states.temperature.np[requests]
    is_greedy = temperature == 0.0
    scaled = not (is_greedy | (temperature == 1.0)).all()
    top_k = (states.top_k.np[requests] != states.vocab_size).any()
    return Wanted(
        bias=bool(sampler.logit_bias_state.use_logit_bias[requests].any()),
        penalties=bool(sampler.penalties_state.use_penalty[requests].any()),
        bad_words=bool(sampler.bad_words_state.num_bad_words.np[requests].any()),
        scaled=bool(scaled or states.min_p.np[requests].any()),
        greedy=bool(is_greedy.all()),
        top=bool(top_k or (states.top_p.np[requests] != 1.0).any()),
        logprobs=states.max_num_logprobs(requests),
        token_ids=sampler.logprob_token_ids_state.max_num_token_ids(requests),
    )


def mask_rows(
    input_batch: "InputBatch", grammar_output: "GrammarOutput"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the grammars' masks and the mask of each row of logits.

    Returns:
        int32 [num_masks, words], a bit for each token, and int32 [num_logits], the
        row's mask or -1.

    Raises:
        RuntimeError: there are not as many masks as their requests have rows.
    """
    masks = grammar_output.grammar_bitmask
    ends = input_batch.cu_num_logits_np
    place = {req_id: i for i, req_id in enumerate(input_batch.req_ids)}
    ids = grammar_output.structured_output_request_ids
    requests = np.fromiter((place[i] for i in ids), np.int64, len(ids))
    starts, counts = ends[requests], ends[requests + 1] - ends[requests]
    firsts = np.cumsum(counts) - counts
    numbers = np.arange(counts.sum(), dtype=np.int32)
    if len(numbers) != len(masks):
        raise RuntimeError(
            f"The scheduler sent {len(masks)} grammar masks for {len(numbers)} rows of "
            "logits: its drafts and the runner's differ."
        )
    rows = np.full(ends[len(place)], -1, dtype=np.int32)
    rows[np.repeat(starts - firsts, counts) + numbers] = numbers
    return masks, rows
