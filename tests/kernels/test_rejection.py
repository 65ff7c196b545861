# SPDX-License-Identifier: Apache-2.0
"""Rejection sampling, without block verification, against upstream's kernels."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from drafts import (
    EPSILON,
    F32,
    I64,
    MIXED,
    ONE,
    Batch,
    batches,
    is_decisive,
    within,
    within_ulp,
)
from hypothesis import assume, example, given
from hypothesis import strategies as st
from oracle import Arena, Case, assert_same, compare, opcheck, run_both

EMPTY = Batch(drafts=(), greedy=())
WIDE = replace(MIXED, vocab=2065, block=2048)


def stats(batch: Batch) -> Case:
    """Build a compute_local_logits_stats launch."""
    arena = Arena()
    shape = (batch.num_logits, batch.num_blocks)
    names = ("target_local_argmax", "target_local_max", "target_local_sumexp")
    arguments: dict[str, Any] = {}
    for name in (*names, "draft_local_max", "draft_local_sumexp"):
        tensor = arena.blank(name, shape, I64 if "argmax" in name else F32)
        arguments |= {f"{name}_ptr": tensor, f"{name}_stride": tensor.stride(0)}
    arguments |= batch.target_logits(arena) | batch.draft_logits(arena)
    arguments |= {
        "expanded_idx_mapping_ptr": batch.index(arena, "expanded"),
        "expanded_local_pos_ptr": batch.index(arena, "local_pos"),
        "temp_ptr": batch.temp(arena),
        "vocab_size": batch.vocab,
        "num_speculative_steps": batch.steps,
        "BLOCK_SIZE": batch.block,
        "HAS_DRAFT_LOGITS": batch.has_draft_logits,
    }
    case = batch.case("_compute_local_logits_stats_kernel", arguments, arena)
    return replace(case, grid=shape)


def compare_stats(make: Callable[[], Case]) -> None:
    """Compare both sides of a compute_local_logits_stats launch.

    Upstream's exp is within 2.4 ulp, and its pairwise f32 sum of up to 2048 numbers
    within 3; our exp is within 2, and the sum is rounded once.
    """
    close = {f"{side}_local_sumexp": within_ulp(8) for side in ("target", "draft")}
    assert_same(*run_both(make), close)


@given(batches())
@example(EMPTY)
@example(MIXED)
@example(WIDE)
@example(replace(WIDE, target_type=torch.bfloat16, draft_type=torch.float16))
def test_compute_local_logits_stats(batch: Batch) -> None:
    """Largest logits and sums of exponentials, block by block."""
    compare_stats(lambda: stats(batch))


@pytest.mark.parametrize("greedy", [True, False])
def test_stats_of_masked_logits(greedy: bool) -> None:
    """A block of nothing but -inf has its first token as argmax, and sum 0."""
    batch = replace(ONE, greedy=(greedy,), vocab=80)

    def make() -> Case:
        case = stats(batch)
        logits = case.arguments["target_logits_ptr"]
        logits[0] = float("-inf")
        logits[0, 37] = 1.5
        logits[1, 3:] = float("-inf")
        case.arguments["draft_logits_ptr"][:, 0, 16:] = float("-inf")
        return case

    compare_stats(make)


def test_stats_of_one_row_for_all() -> None:
    """Target logits may be one row, expanded."""

    def make() -> Case:
        case = stats(MIXED)
        logits = case.arguments["target_logits_ptr"][:1].expand(MIXED.num_logits, -1)
        case = case.replace("target_logits_ptr", logits)
        return case.replace("target_logits_stride", logits.stride(0))

    compare_stats(make)


def test_stats_of_a_narrower_draft_vocabulary() -> None:
    """Tokens that the drafter does not know are not looked at."""

    def make() -> Case:
        return stats(MIXED).replace("vocab_size", MIXED.vocab - 5)

    compare_stats(make)


def rejection(batch: Batch, synthetic: bool = False, shift: float = 0) -> Case:
    """Build a rejection launch; `shift` moves the target's log probabilities."""
    arena = Arena()
    sampled = arena.blank("sampled", (batch.num_reqs, batch.steps + 1), I64)
    arguments = {
        "sampled_ptr": sampled,
        "sampled_stride": sampled.stride(0),
        "rejected_steps_ptr": arena.blank("rejected_steps", (batch.num_reqs,)),
        "target_rejected_logsumexp_ptr": arena.blank(
            "target_logsumexp", (batch.num_reqs,), F32
        ),
        "draft_rejected_logsumexp_ptr": arena.blank(
            "draft_logsumexp", (batch.num_reqs,), F32
        ),
    }
    arguments |= batch.target_logits(arena) | batch.argmax(arena) | batch.stats(arena)
    arguments["target_local_sumexp_ptr"] *= 1 - shift
    arguments |= batch.draft_logits(arena)
    rates = None
    if synthetic:
        rates = arena.tensor("rates", torch.linspace(0.9, 0.3, batch.steps), F32)
    arguments |= {
        "draft_sampled_ptr": batch.index(arena, "drafts"),
        "cu_num_logits_ptr": batch.ends_tensor(arena),
        "idx_mapping_ptr": batch.index(arena, "idx_mapping"),
        "temp_ptr": batch.temp(arena),
        "seed_ptr": batch.index(arena, "seeds"),
        "pos_ptr": batch.index(arena, "pos"),
        "synthetic_conditional_rates_ptr": rates,
        "cumulative_log_p_ptr": None,
        "local_residual_mass_ptr": None,
        "local_residual_mass_stride": 0,
        "vocab_num_blocks": batch.num_blocks,
        "PADDED_VOCAB_NUM_BLOCKS": batch.padded_blocks,
        "HAS_DRAFT_LOGITS": batch.has_draft_logits,
        "SYNTHETIC_MODE": synthetic,
        "USE_BLOCK_VERIFICATION": False,
    }
    return batch.case("_rejection_kernel", arguments, arena)


# Of values up to 8, taken apart as max + log(sum): upstream's log is within 4 ulp, the
# sum within 3, and both add up in f32; ours is rounded once.
LOGSUMEXP = within(8 * 8 * EPSILON)


@given(batches(negative=0.3), st.booleans())
@example(EMPTY, False)
@example(MIXED, True)
@example(replace(MIXED, greedy=(True,) * 4, negative=1), False)
@example(replace(MIXED, greedy=(True,) * 4, negative=1), True)
@example(replace(MIXED, negative=1), False)
@example(replace(ONE, drafts=(0,)), False)
def test_rejection(batch: Batch, synthetic: bool) -> None:
    """Drafts are accepted as upstream accepts them, placeholders never."""
    assume(is_decisive(lambda shift: rejection(batch, synthetic, shift)))
    close = {"target_logsumexp": LOGSUMEXP, "draft_logsumexp": LOGSUMEXP}
    assert_same(*run_both(lambda: rejection(batch, synthetic)), close)


@dataclass(frozen=True)
class Resampling:
    """What decides a resample launch."""

    batch: Batch
    use_fp64: bool = False
    use_block_verification: bool = False


def resample(resampling: Resampling) -> Case:
    """Build a resample launch, for any number of accepted drafts."""
    batch = resampling.batch
    g = torch.Generator().manual_seed(batch.seed + 1)
    arena = Arena()
    # A 32nd off the sixteenths that logits are: p / q keeps away from 1.
    target_lse = torch.randint(0, 64, (batch.num_reqs,), generator=g) / 16
    draft_lse = torch.randint(0, 64, (batch.num_reqs,), generator=g) / 16 + 1 / 32
    accepted = [int(torch.randint(n + 1, (), generator=g)) for n in batch.drafts]
    log_p = -torch.randint(0, 32, (batch.num_logits,), generator=g) / 16
    shape = (batch.num_reqs, batch.num_blocks)
    dtype = torch.float64 if resampling.use_fp64 else F32
    values = arena.blank("local_max", shape, dtype)
    argmax = arena.blank("local_argmax", shape, I64)
    arguments = {
        "resampled_local_argmax_ptr": argmax,
        "resampled_local_argmax_stride": argmax.stride(0),
        "resampled_local_max_ptr": values,
        "resampled_local_max_stride": values.stride(0),
    }
    arguments |= batch.target_logits(arena) | batch.draft_logits(arena)
    arguments |= {
        "target_rejected_logsumexp_ptr": arena.tensor("target_lse", target_lse, F32),
        "draft_rejected_logsumexp_ptr": arena.tensor("draft_lse", draft_lse, F32),
        "rejected_step_ptr": arena.tensor("accepted", accepted),
        "cu_num_logits_ptr": batch.ends_tensor(arena),
        "expanded_idx_mapping_ptr": batch.index(arena, "expanded"),
        "draft_sampled_ptr": batch.index(arena, "drafts"),
        "temp_ptr": batch.temp(arena),
        "seed_ptr": batch.index(arena, "seeds"),
        "pos_ptr": batch.index(arena, "pos"),
        "cumulative_log_p_ptr": (
            arena.tensor("log_p", log_p, F32)
            if resampling.use_block_verification
            else None
        ),
        "vocab_size": batch.vocab,
        "BLOCK_SIZE": batch.block,
        "HAS_DRAFT_LOGITS": batch.has_draft_logits,
        "USE_FP64": resampling.use_fp64,
        "USE_BLOCK_VERIFICATION": resampling.use_block_verification,
    }
    return replace(batch.case("_resample_kernel", arguments, arena), grid=shape)


def compare_winners(make: Callable[[], Case], bound: float) -> None:
    """Compare both sides, with values within `bound`.

    Where two tokens are that close either may win, which is rare: once at most.
    """
    theirs, ours = run_both(make)
    expected, found = (c.arena.buffers["local_argmax"] for c in (theirs, ours))
    values = (c.arena.buffers["local_max"] for c in (theirs, ours))
    tied = (expected != found) & torch.ne(*values)
    assert int(tied.sum()) <= 1
    found.copy_(torch.where(tied, expected, found))
    assert_same(theirs, ours, {"local_max": within(bound)})


# The noise is up to 21.5, where an ulp is 2^-19: upstream's log is within 4 ulp, ours
# is rounded once. With draft logits |log(p / q)| >= 1/32 keeps the error of
# log(1 - q / p) below 3 * 2^-24 / (1 - exp(-1/32)), about 2^-17: all there is in f64.
NOISE = 6 * 2.0**-19
NOISE_FP64 = 2.0**-17


@given(st.builds(Resampling, batches(), st.booleans(), st.booleans()))
@example(Resampling(EMPTY))
@example(Resampling(replace(MIXED, greedy=(True,) * 4)))
@example(Resampling(replace(WIDE, drafts=(1, 3), greedy=(False, False))))
@example(Resampling(replace(MIXED, has_draft_logits=False), use_fp64=True))
def test_resample(resampling: Resampling) -> None:
    """The token after the accepted drafts comes from what the drafter left over."""
    batch = replace(resampling.batch, negative=0)
    resampling = replace(resampling, batch=batch)
    bound = NOISE_FP64 if resampling.use_fp64 else NOISE
    compare_winners(lambda: resample(resampling), bound)


@given(st.integers(0, 2**31), st.booleans())
def test_resample_without_draft_logits_in_place_of_a_placeholder(
    seed: int, use_fp64: bool
) -> None:
    """Point-mass drafts: a placeholder masks nothing, as upstream has it."""
    batch = replace(ONE, vocab=29, block=32, has_draft_logits=False)
    batch = replace(batch, negative=1, seed=seed)
    bound = 1e-12 if use_fp64 else NOISE
    compare_winners(lambda: resample(Resampling(batch, use_fp64)), bound)


def test_resample_in_place_of_a_placeholder() -> None:
    """Upstream takes the drafter's leftovers of a draft that never was; we do not."""
    batch = replace(ONE, drafts=(1,), vocab=4, negative=1, seed=7)

    def make() -> Case:
        case = resample(Resampling(batch))
        case.arguments["rejected_step_ptr"][0] = 0
        # The target wants token 2; the draft logits of the row have it too.
        for name in ("target_logits_ptr", "draft_logits_ptr"):
            case.arguments[name].fill_(-30)
            case.arguments[name][..., 2] = 0
        case.arguments["target_rejected_logsumexp_ptr"].fill_(0)
        case.arguments["draft_rejected_logsumexp_ptr"].fill_(0)
        return case

    theirs, ours = make(), make()
    theirs.run_upstream()
    ours.run_ours()
    assert theirs.arguments["resampled_local_max_ptr"][0, 0] == float("-inf")
    assert ours.arguments["resampled_local_argmax_ptr"][0, 0] == 2


def insert(batch: Batch, blocks: int, use_fp64: bool) -> Case:
    """Build an insert_resampled launch."""
    g = torch.Generator().manual_seed(batch.seed + 2)
    arena = Arena()
    accepted = [int(torch.randint(n + 1, (), generator=g)) for n in batch.drafts]
    shape = (batch.num_reqs, blocks)
    # Few different values: ties.
    values = torch.randint(3, shape, generator=g) / 2
    values[torch.rand(shape, generator=g) < 0.2] = float("-inf")
    sampled = arena.blank("sampled", (batch.num_reqs, batch.steps + 1), I64)
    argmax = arena.tensor("argmax", torch.randint(99, shape, generator=g), I64)
    local_max = arena.tensor("max", values, torch.float64 if use_fp64 else F32)
    arguments = {
        "sampled_ptr": sampled,
        "sampled_stride": sampled.stride(0),
        "num_sampled_ptr": arena.tensor("num_sampled", accepted),
        "resampled_local_argmax_ptr": argmax,
        "resampled_local_argmax_stride": argmax.stride(0),
        "resampled_local_max_ptr": local_max,
        "resampled_local_max_stride": local_max.stride(0),
        "resample_num_blocks": blocks,
        "cu_num_logits_ptr": batch.ends_tensor(arena),
        "expanded_idx_mapping_ptr": batch.index(arena, "expanded"),
        "temp_ptr": batch.temp(arena),
        "PADDED_RESAMPLE_NUM_BLOCKS": 1 << (blocks - 1).bit_length(),
    }
    return batch.case("_insert_resampled_kernel", arguments, arena)


@given(batches(), st.integers(1, 70), st.booleans())
@example(EMPTY, 1, False)
@example(MIXED, 149, False)
def test_insert_resampled(batch: Batch, blocks: int, use_fp64: bool) -> None:
    """The best block's token follows the accepted drafts."""
    compare(lambda: insert(batch, blocks, use_fp64))


def flatten(batch: Batch) -> Case:
    """Build a flatten_sampled launch."""
    g = torch.Generator().manual_seed(batch.seed + 3)
    arena = Arena()
    shape = (batch.num_reqs, batch.steps + 1)
    sampled = arena.tensor("sampled", torch.randint(99, shape, generator=g), I64)
    counts = [int(torch.randint(n + 2, (), generator=g)) for n in batch.drafts]
    arguments = {
        "flat_sampled_ptr": arena.blank("flat", (batch.num_logits,), I64),
        "sampled_ptr": sampled,
        "sampled_stride": sampled.stride(0),
        "num_sampled_ptr": arena.tensor("num_sampled", counts),
        "cu_num_logits_ptr": batch.ends_tensor(arena),
    }
    case = batch.case("_flatten_sampled_kernel", arguments, arena)
    return replace(case, module="spec_decode.rejection_sampler")


@given(batches())
@example(EMPTY)
@example(MIXED)
def test_flatten_sampled(batch: Batch) -> None:
    """Sampled tokens go to the rows of their logits, the others stay."""
    compare(lambda: flatten(batch))


LAUNCHES: dict[str, Callable[[], Case]] = {
    "compute_local_logits_stats": lambda: stats(MIXED),
    "rejection": lambda: rejection(MIXED),
    "resample": lambda: resample(Resampling(MIXED)),
    "insert_resampled": lambda: insert(MIXED, 3, False),
    "flatten_sampled": lambda: flatten(MIXED),
}


@pytest.mark.parametrize("op", LAUNCHES)
def test_opcheck(op: str) -> None:
    """The ops keep PyTorch's rules."""
    opcheck(LAUNCHES[op]())


def test_opcheck_without_options() -> None:
    """Arguments that may be None may be None."""
    batch = replace(MIXED, has_draft_logits=False)
    opcheck(stats(batch))
    opcheck(rejection(batch))
    opcheck(resample(Resampling(batch)))


def i32(*values: int) -> torch.Tensor:
    """Return a tensor of indices."""
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("op", "argument", "value", "message"),
    [
        (
            "compute_local_logits_stats",
            "target_logits_ptr",
            torch.zeros(11, 40, dtype=torch.float64),
            "target_logits_ptr must be Float, Half or BFloat16, but is Double",
        ),
        (
            "compute_local_logits_stats",
            "vocab_size",
            41,
            r"target_logits_ptr must be of at least 41 columns, .* \[11, 40\]",
        ),
        (
            "compute_local_logits_stats",
            "draft_logits_ptr",
            None,
            "draft_logits_ptr must be a tensor, but is None",
        ),
        (
            "compute_local_logits_stats",
            "draft_logits_stride_1",
            39,
            "draft_logits_ptr must be of row stride 39 .* but is of row stride 40",
        ),
        (
            "compute_local_logits_stats",
            "expanded_idx_mapping_ptr",
            i32(*[-1] * 11),
            r"expanded_idx_mapping_ptr\[0\] must be in \[0, 6\), but is -1",
        ),
        (
            "rejection",
            "draft_sampled_ptr",
            torch.zeros(11, dtype=F32),
            "draft_sampled_ptr must be Int or Long, but is Float",
        ),
        (
            "rejection",
            "draft_sampled_ptr",
            i32(*[40] * 11),
            r"draft_sampled_ptr\[1\] must be in .* 40\), but is 40",
        ),
        (
            "rejection",
            "SYNTHETIC_MODE",
            True,
            "synthetic_conditional_rates_ptr must be a tensor, but is None",
        ),
        (
            "rejection",
            "USE_BLOCK_VERIFICATION",
            True,
            "cumulative_log_p_ptr must be a tensor, but is None",
        ),
        (
            "rejection",
            "vocab_num_blocks",
            4,
            "target_local_argmax_ptr must be of at least 4 columns",
        ),
        (
            "resample",
            "USE_FP64",
            True,
            "resampled_local_max_ptr must be Double, but is Float",
        ),
        (
            "resample",
            "rejected_step_ptr",
            i32(4, 0, 0, 0),
            r"rejected_step_ptr\[0\] must be in \[0, 4\), but is 4",
        ),
        (
            "insert_resampled",
            "resample_num_blocks",
            0,
            "resample_num_blocks must be at least 1, but is 0",
        ),
        (
            "insert_resampled",
            "num_sampled_ptr",
            i32(0, 1, 0, 0),
            r"num_sampled_ptr\[1\] must be in \[0, 1\), but is 1",
        ),
        (
            "flatten_sampled",
            "sampled_stride",
            5,
            "sampled_ptr must be of row stride 5 .* but is of row stride 4",
        ),
        (
            "flatten_sampled",
            "num_sampled_ptr",
            i32(5, 0, 0, 0),
            r"num_sampled_ptr\[0\] must be in \[0, 5\), but is 5",
        ),
    ],
)
def test_bad_argument(op: str, argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = LAUNCHES[op]().replace(argument, value)
    with pytest.raises(ValueError, match=f"{op}: .*{message}"):
        case.run_ours()
