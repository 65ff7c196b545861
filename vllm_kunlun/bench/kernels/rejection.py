# SPDX-License-Identifier: Apache-2.0
"""Rejection sampling of drafts, with and without block verification.

No request is greedy, each has STEPS drafts, and the drafter's logits are there.
"""

from typing import Any

import torch

from vllm_kunlun.bench.kernels.batch import STEPS, VOCABULARY, Batch, logits, zeros
from vllm_kunlun.bench.kernels.case import Cell, Size, case
from vllm_kunlun.bench.kernels.sampling import BLOCK, SAMPLE_BLOCK, blocks_of

MODULE = "worker.gpu.spec_decode.rejection_sampler_utils"
F32 = torch.float32
SURE = 60.0
"""A difference of logits that no random number makes up for."""


def split(x: torch.Tensor, blocks: int, value: float = -torch.inf) -> torch.Tensor:
    """Return rows of a vocabulary as [..., blocks, BLOCK]."""
    missing = blocks * BLOCK - x.shape[-1]
    if missing:
        x = torch.nn.functional.pad(x, (0, missing), value=value)
    return x.unflatten(-1, (blocks, BLOCK))


def join(largest: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    """Return the logsumexp of rows from those of their blocks."""
    most = largest.amax(-1)
    return most + (sums * (largest - most[:, None]).exp()).sum(-1).log()


class Drafted:
    """A batch whose requests have STEPS drafts each, and what kernels are told of it.

    The state has a row per request of the batch, so that draft logits fit.
    """

    def __init__(self, requests: int, vocabulary: int, *, with_logits: bool) -> None:
        lengths = torch.full((requests,), STEPS + 1)
        self.batch = b = Batch(requests, lengths)
        self.requests, self.vocabulary = requests, vocabulary
        self.blocks = blocks_of(vocabulary, BLOCK)
        self.rows = torch.randperm(requests, generator=b.generator).int()
        self.expanded = self.rows.repeat_interleave(STEPS + 1)
        self.places = torch.arange(STEPS + 1).repeat(requests).int()
        self.temp = torch.ones(requests)
        self.seeds = b.longs(requests, high=2**62)
        self.pos = b.longs(b.tokens, high=4096)
        self.drafts = b.ints(b.tokens, high=vocabulary)
        if with_logits:
            self.target = logits(b.tokens, vocabulary)
            draft = logits(requests * STEPS, vocabulary).flip(0)
            self.draft = draft.view(requests, STEPS, vocabulary)
        else:
            self.target = zeros(b.tokens, vocabulary, dtype=F32)
            self.draft = zeros(requests, STEPS, vocabulary, dtype=F32)
        stats = {
            f"{side}_{name}": b.floats(b.tokens, self.blocks) * scale
            for side in ("target", "draft")
            for name, scale in (("max", 1.0), ("sumexp", 100.0))
        }
        self.stats = stats

    def logsumexps(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return each row's, of the target and of the drafter, as torch code does."""
        s = self.stats
        return (
            join(s["target_max"], s["target_sumexp"]),
            join(s["draft_max"], s["draft_sumexp"]),
        )

    def log_odds(self, step: int) -> torch.Tensor:
        """Return log p - log q of a step's drafts."""
        target, draft = self.logsumexps()
        row = self.batch.starts[:-1] + step
        token = self.drafts[row + 1]
        log_p = self.target[row, token] - target[row]
        return log_p - (self.draft[self.rows, step, token] - draft[row])

    def logits_arguments(self) -> dict[str, Any]:
        """Return the arguments for both sides' logits."""
        return {
            "target_logits_ptr": self.target,
            "target_logits_stride": self.target.stride(0),
            "draft_logits_ptr": self.draft,
            "draft_logits_stride_0": self.draft.stride(0),
            "draft_logits_stride_1": self.draft.stride(1),
            "HAS_DRAFT_LOGITS": True,
        }

    def stats_arguments(self) -> dict[str, Any]:
        """Return the arguments for the stats of blocks."""
        found: dict[str, Any] = {"vocab_num_blocks": self.blocks}
        for name, tensor in self.stats.items():
            side, what = name.split("_")
            found[f"{side}_local_{what}_ptr"] = tensor
            found[f"{side}_local_{what}_stride"] = tensor.stride(0)
        return found

    def request_arguments(self) -> dict[str, Any]:
        """Return the arguments for what is known of requests and rows."""
        return {
            "draft_sampled_ptr": self.drafts,
            "cu_num_logits_ptr": self.batch.starts,
            "idx_mapping_ptr": self.rows,
            "expanded_idx_mapping_ptr": self.expanded,
            "expanded_local_pos_ptr": self.places,
            "temp_ptr": self.temp,
            "seed_ptr": self.seeds,
            "pos_ptr": self.pos,
            "vocab_size": self.vocabulary,
            "num_speculative_steps": STEPS,
        }


@case(
    MODULE,
    "_compute_local_logits_stats_kernel",
    "amax, exp and sum over [rows, blocks, 8192], draft rows gathered",
    matrices=24,
)
def compute_local_logits_stats(size: Size) -> Cell:
    """Build the stats of all blocks, the bonus rows' left out."""
    assert size.vocabulary is not None
    d = Drafted(size.requests, size.vocabulary, with_logits=True)
    for tensor in d.stats.values():
        tensor.zero_()
    argmax = zeros(len(d.target), d.blocks, dtype=torch.int64)

    def baseline() -> None:
        rows = (d.places < STEPS).nonzero()[:, 0]
        sides = {
            "target": split(d.target, d.blocks),
            "draft": split(d.draft[d.expanded[rows], d.places[rows]], d.blocks),
        }
        for side, x in sides.items():
            largest = x.amax(-1)
            sums = (x - largest[..., None]).exp_().sum(-1)
            at = rows if side == "target" else slice(None)
            d.stats[f"{side}_max"][rows] = largest[at]
            d.stats[f"{side}_sumexp"][rows] = sums[at]

    arguments = d.logits_arguments() | d.stats_arguments() | d.request_arguments()
    arguments |= {
        "target_local_argmax_ptr": argmax,
        "target_local_argmax_stride": argmax.stride(0),
        "BLOCK_SIZE": BLOCK,
    }
    verified = d.target[: d.requests * STEPS]
    return Cell(
        (len(d.target), d.blocks),
        arguments,
        baseline,
        list(d.stats.values()),
        tolerance=1e-5,
        reads=[verified, d.draft],
    )


@case(
    MODULE,
    "_compute_cumulative_log_p_kernel",
    "a loop over steps, vectorised over requests",
)
def compute_cumulative_log_p(size: Size) -> Cell:
    """Build the running ratios of all drafts."""
    d = Drafted(size.requests, VOCABULARY, with_logits=False)
    out = zeros(d.batch.tokens, dtype=F32)
    ends = d.batch.starts[1:]

    def baseline() -> None:
        log_p = torch.zeros(d.requests)
        for step in range(int(d.batch.starts.diff().max()) - 1):
            row = d.batch.starts[:-1] + step
            there = row + 1 < ends
            log_p = (log_p + d.log_odds(step)).clamp(max=0)
            out[row[there]] = log_p[there]

    arguments = d.logits_arguments() | d.stats_arguments() | d.request_arguments()
    arguments["cumulative_log_p_ptr"] = out
    return Cell((d.requests,), arguments, baseline, [out], tolerance=1e-5)


@case(
    MODULE,
    "_compute_local_residual_mass_kernel",
    "two exp of gathered rows, clamp, sum over [rows, blocks, 8192]",
    matrices=24,
)
def compute_local_residual_mass(size: Size) -> Cell:
    """Build the masses of all blocks of the rows after the first."""
    assert size.vocabulary is not None
    d = Drafted(size.requests, size.vocabulary, with_logits=True)
    out = zeros(len(d.target), d.blocks, dtype=F32)
    log_p = -d.batch.floats(len(d.target))

    def baseline() -> None:
        rows = ((d.places > 0) & (d.places < STEPS)).nonzero()[:, 0]
        target, draft = d.logsumexps()
        p = (d.target[rows] - target[rows, None]).exp_()
        q = (d.draft[d.expanded[rows], d.places[rows]] - draft[rows, None]).exp_()
        p.mul_(log_p[rows - 1].exp()[:, None]).sub_(q).clamp_(min=0)
        out[rows] = split(p, d.blocks, value=0).sum(-1)

    arguments = d.logits_arguments() | d.stats_arguments() | d.request_arguments()
    arguments |= {
        "local_residual_mass_ptr": out,
        "local_residual_mass_stride": out.stride(0),
        "cumulative_log_p_ptr": log_p,
        "BLOCK_SIZE": BLOCK,
    }
    half = d.requests * (STEPS - 1)
    return Cell(
        (len(d.target), d.blocks),
        arguments,
        baseline,
        [out],
        tolerance=1e-4,
        reads=[d.target[:half], d.draft.view(-1, d.vocabulary)[:half]],
    )


@case(
    MODULE,
    "_rejection_kernel",
    "[requests, steps] gathers, one rand for all without seeds, cumprod",
)
def rejection(size: Size) -> Cell:
    """Build verification; of each request's drafts one at most is surely rejected."""
    d = Drafted(size.requests, VOCABULARY, with_logits=False)
    n = d.requests
    starts = d.batch.starts[:-1]
    for step in range(STEPS):
        row = starts + step
        wanted = torch.arange(n) % (STEPS + 1) != step
        d.target[row, d.drafts[row + 1]] = torch.where(wanted, SURE, -SURE)
    sampled = zeros(n, STEPS + 1, dtype=torch.int64)
    accepted = zeros(n)
    target_lse, draft_lse = zeros(n, dtype=F32), zeros(n, dtype=F32)

    def baseline() -> None:
        steps = torch.arange(STEPS)
        rows = d.batch.starts[:-1, None] + steps
        there = rows + 1 < d.batch.starts[1:, None]
        token = d.drafts[rows + 1]
        usable = token.clamp(min=0)
        target, draft = d.logsumexps()
        log_p = d.target[rows, usable] - target[rows]
        log_q = d.draft[d.rows[:, None], steps, usable] - draft[rows]
        chance = torch.rand(n, STEPS).clamp_(min=1e-10).log()
        takes = there & (token >= 0) & (log_p > chance + log_q)
        run = takes.cumprod(-1)
        number = run.sum(-1)
        looked_at = torch.nn.functional.pad(run[:, :-1], (1, 0), value=1).bool() & there
        sampled[:, :-1] = torch.where(looked_at, usable, sampled[:, :-1])
        last = looked_at.sum(-1, keepdim=True) - 1
        row = rows.gather(1, last.clamp(min=0))[:, 0]
        accepted[:] = number
        target_lse[:] = target[row]
        draft_lse[:] = draft[row]

    argmax = zeros(d.batch.tokens, d.blocks, dtype=torch.int64)
    arguments = d.logits_arguments() | d.stats_arguments() | d.request_arguments()
    arguments |= {
        "sampled_ptr": sampled,
        "sampled_stride": sampled.stride(0),
        "rejected_steps_ptr": accepted,
        "target_rejected_logsumexp_ptr": target_lse,
        "draft_rejected_logsumexp_ptr": draft_lse,
        "target_local_argmax_ptr": argmax,
        "target_local_argmax_stride": argmax.stride(0),
        "synthetic_conditional_rates_ptr": None,
        "cumulative_log_p_ptr": None,
        "local_residual_mass_ptr": None,
        "local_residual_mass_stride": 0,
        "SYNTHETIC_MODE": False,
        "USE_BLOCK_VERIFICATION": False,
    }
    writes = [sampled, accepted, target_lse, draft_lse]
    return Cell((n,), arguments, baseline, writes, tolerance=1e-5)


@case(
    MODULE,
    "_resample_kernel",
    "two exp of gathered rows over exponential noise of one draw, and argmax",
    matrices=16,
)
def resample(size: Size) -> Cell:
    """Build resampling after 0 to STEPS accepted drafts."""
    assert size.vocabulary is not None
    d = Drafted(size.requests, size.vocabulary, with_logits=True)
    b, n = d.batch, d.requests
    # One token has all the target's probability, so that any noise draws it.
    d.target[torch.arange(b.tokens), b.longs(b.tokens, high=d.vocabulary)] = SURE
    accepted = (torch.arange(n) % (STEPS + 1)).int()
    row = b.starts[:-1] + accepted
    step = accepted.clamp(max=STEPS - 1)
    target_lse = d.target[row].logsumexp(-1)
    draft_lse = d.draft[d.rows, step].logsumexp(-1)
    blocks = blocks_of(d.vocabulary, SAMPLE_BLOCK)
    winners = zeros(n, blocks, dtype=torch.int64)
    values = zeros(n, blocks, dtype=F32)
    tokens = zeros(n, 1, dtype=torch.int64)

    def finish() -> None:
        torch.gather(winners, 1, values.argmax(1, keepdim=True), out=tokens)

    def baseline() -> None:
        row = b.starts[:-1] + accepted
        is_bonus = row == b.starts[1:] - 1
        step = accepted.clamp(max=STEPS - 1)
        p = (d.target[row] - target_lse[:, None]).exp_()
        q = (d.draft[d.rows, step] - draft_lse[:, None]).exp_()
        q[is_bonus] = 0
        p.sub_(q).clamp_(min=0)
        tokens[:] = p.div_(q.exponential_()).argmax(-1, keepdim=True)

    arguments = d.logits_arguments() | d.request_arguments()
    arguments |= {
        "resampled_local_argmax_ptr": winners,
        "resampled_local_argmax_stride": winners.stride(0),
        "resampled_local_max_ptr": values,
        "resampled_local_max_stride": values.stride(0),
        "target_rejected_logsumexp_ptr": target_lse,
        "draft_rejected_logsumexp_ptr": draft_lse,
        "rejected_step_ptr": accepted,
        "cumulative_log_p_ptr": None,
        "BLOCK_SIZE": SAMPLE_BLOCK,
        "USE_FP64": False,
        "USE_BLOCK_VERIFICATION": False,
    }
    draft = d.draft.view(-1, d.vocabulary)[:n]
    reads = [d.target[:n], draft]
    return Cell((n, blocks), arguments, baseline, [tokens], finish=finish, reads=reads)


@case(MODULE, "_insert_resampled_kernel", "argmax, gather, one masked scatter")
def insert_resampled(size: Size) -> Cell:
    """Build the choice between the blocks of 1024 tokens."""
    n, blocks = size.requests, VOCABULARY // SAMPLE_BLOCK
    d = Drafted(n, 1, with_logits=False)
    sampled = zeros(n, STEPS + 1, dtype=torch.int64)
    number = (torch.arange(n) % (STEPS + 1)).int()
    winners = d.batch.longs(n, blocks)
    values = d.batch.floats(n, blocks)

    def baseline() -> None:
        best = values.argmax(-1, keepdim=True)
        token = winners.gather(1, best)[:, 0]
        row = d.batch.starts[:-1] + number
        is_bonus = row == d.batch.starts[1:] - 1
        chosen = ((d.temp[d.expanded[row]] != 0) | is_bonus).nonzero()[:, 0]
        sampled[chosen, number[chosen]] = token[chosen]
        number.add_(1)

    arguments = d.request_arguments() | {
        "sampled_ptr": sampled,
        "sampled_stride": sampled.stride(0),
        "num_sampled_ptr": number,
        "resampled_local_argmax_ptr": winners,
        "resampled_local_argmax_stride": winners.stride(0),
        "resampled_local_max_ptr": values,
        "resampled_local_max_stride": values.stride(0),
        "resample_num_blocks": blocks,
    }
    return Cell((n,), arguments, baseline, [sampled, number], restored=[number])


@case(
    "worker.gpu.spec_decode.rejection_sampler",
    "_flatten_sampled_kernel",
    "a mask by column, one masked gather and scatter",
)
def flatten_sampled(size: Size) -> Cell:
    """Build 1 to STEPS + 1 sampled tokens per request."""
    d = Drafted(size.requests, 1, with_logits=False)
    n = d.requests
    sampled = d.batch.longs(n, STEPS + 1)
    number = (torch.arange(n) % (STEPS + 1) + 1).int()
    flat = zeros(d.batch.tokens, dtype=torch.int64)

    def baseline() -> None:
        columns = torch.arange(STEPS + 1)
        there = columns < number[:, None]
        flat[(d.batch.starts[:-1, None] + columns)[there]] = sampled[there]

    arguments = {
        "flat_sampled_ptr": flat,
        "sampled_ptr": sampled,
        "sampled_stride": sampled.stride(0),
        "num_sampled_ptr": number,
        "cu_num_logits_ptr": d.batch.starts,
    }
    return Cell((n,), arguments, baseline, [flat])
