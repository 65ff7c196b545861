# SPDX-License-Identifier: Apache-2.0
"""Rejection sampling with block verification against upstream's kernels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from drafts import EPSILON, F32, MIXED, ONE, Batch, batches, is_decisive, within
from hypothesis import assume, example, given
from oracle import Arena, Case, assert_same, compare, opcheck, run_both
from test_rejection import LOGSUMEXP, rejection

EMPTY = Batch(drafts=(), greedy=())
SAMPLING = replace(MIXED, greedy=(False,) * 4)
WIDE = replace(SAMPLING, vocab=2065, block=2048)


def cumulative(batch: Batch) -> Case:
    """Build a compute_cumulative_log_p launch."""
    arena = Arena()
    arguments: dict[str, Any] = {
        "cumulative_log_p_ptr": arena.blank("log_p", (batch.num_logits,), F32),
        "draft_sampled_ptr": batch.index(arena, "drafts"),
    }
    arguments |= batch.target_logits(arena) | batch.draft_logits(arena)
    arguments |= batch.stats(arena)
    arguments |= {
        "cu_num_logits_ptr": batch.ends_tensor(arena),
        "idx_mapping_ptr": batch.index(arena, "idx_mapping"),
        "temp_ptr": batch.temp(arena),
        "vocab_num_blocks": batch.num_blocks,
        "PADDED_VOCAB_NUM_BLOCKS": batch.padded_blocks,
        "HAS_DRAFT_LOGITS": batch.has_draft_logits,
    }
    return batch.case("_compute_cumulative_log_p_kernel", arguments, arena)


# Each of up to 4 steps adds two logsumexp, which are off by as much as in
# test_rejection.py at most, and rounds.
LOG_P = within(4 * 2 * (8 * 8 + 16) * EPSILON)


@given(batches(negative=0))
@example(EMPTY)
@example(MIXED)
@example(WIDE)
@example(replace(WIDE, has_draft_logits=False))
def test_compute_cumulative_log_p(batch: Batch) -> None:
    """The joint ratio of the drafts, at most 1 at every step."""
    assert_same(*run_both(lambda: cumulative(batch)), {"log_p": LOG_P})


def residual(batch: Batch) -> Case:
    """Build a compute_local_residual_mass launch."""
    g = torch.Generator().manual_seed(batch.seed + 4)
    arena = Arena()
    mass = arena.blank("mass", (batch.num_logits, batch.num_blocks), F32)
    log_p = -torch.randint(0, 32, (batch.num_logits,), generator=g) / 16
    log_p[torch.rand(batch.num_logits, generator=g) < 0.1] = float("-inf")
    arguments = {
        "local_residual_mass_ptr": mass,
        "local_residual_mass_stride": mass.stride(0),
        "cumulative_log_p_ptr": arena.tensor("log_p", log_p, F32),
    }
    arguments |= batch.target_logits(arena) | batch.draft_logits(arena)
    arguments |= batch.stats(arena)
    arguments |= {
        "expanded_idx_mapping_ptr": batch.index(arena, "expanded"),
        "expanded_local_pos_ptr": batch.index(arena, "local_pos"),
        "temp_ptr": batch.temp(arena),
        "vocab_size": batch.vocab,
        "num_speculative_steps": batch.steps,
        "vocab_num_blocks": batch.num_blocks,
        "BLOCK_SIZE": batch.block,
        "PADDED_VOCAB_NUM_BLOCKS": batch.padded_blocks,
    }
    case = batch.case("_compute_local_residual_mass_kernel", arguments, arena)
    return replace(case, grid=(batch.num_logits, batch.num_blocks))


# p and q sum up to 1 each. Both are off, relatively, by what logsumexp is off and by 5
# ulp for the exponentials on the two sides.
MASS = within(2 * (8 * 8 + 5) * EPSILON)


@given(batches(negative=0))
@example(EMPTY)
@example(MIXED)
@example(WIDE)
def test_compute_local_residual_mass(batch: Batch) -> None:
    """What the target has and the drafter has not, block by block."""
    batch = replace(batch, has_draft_logits=True)
    assert_same(*run_both(lambda: residual(batch)), {"mass": MASS})


def block_rejection(batch: Batch, shift: float = 0) -> Case:
    """Build a rejection launch; `shift` moves the ratios and the masses."""
    g = torch.Generator().manual_seed(batch.seed + 5)
    case = rejection(batch)
    log_p = -torch.randint(0, 24, (batch.num_logits,), generator=g) / 16
    mass = torch.randint(0, 3, (batch.num_logits, batch.num_blocks), generator=g) / 8
    arguments = {
        **case.arguments,
        "cumulative_log_p_ptr": case.arena.tensor("log_p", log_p + shift, F32),
        "USE_BLOCK_VERIFICATION": True,
    }
    if batch.has_draft_logits:
        tensor = case.arena.tensor("mass", mass * (1 + shift), F32)
        arguments["local_residual_mass_ptr"] = tensor
        arguments["local_residual_mass_stride"] = tensor.stride(0)
    return replace(case, arguments=arguments)


@given(batches(negative=0))
@example(EMPTY)
@example(MIXED)
@example(replace(SAMPLING, has_draft_logits=False))
@example(replace(MIXED, greedy=(True,) * 4))
def test_rejection(batch: Batch) -> None:
    """The last draft whose threshold the random number meets decides."""
    assume(is_decisive(lambda shift: block_rejection(batch, shift)))
    close = {"target_logsumexp": LOGSUMEXP, "draft_logsumexp": LOGSUMEXP}
    assert_same(*run_both(lambda: block_rejection(batch)), close)


def test_nothing_left_over_accepts() -> None:
    """Ratio 1 and no residual mass: upstream's 0 / 0 accepts, and so do we."""

    def make() -> Case:
        case = block_rejection(ONE)
        case.arguments["cumulative_log_p_ptr"].zero_()
        case.arguments["local_residual_mass_ptr"].zero_()
        return case

    compare(make)
    case = make()
    case.run_ours()
    assert case.arguments["rejected_steps_ptr"].tolist() == [2]


def likely(case: Case) -> Case:
    """Make the logit before each row's first nearly certain."""
    case.arguments["target_logits_ptr"].zero_()
    case.arguments["target_logits_ptr"][:, -1] = 60
    case.arguments["target_local_max_ptr"].fill_(60)
    case.arguments["target_local_sumexp_ptr"].fill_(
        1 / case.arguments["vocab_num_blocks"]
    )
    return case


def test_placeholder_is_accepted_upstream() -> None:
    """Upstream gives out token -1; we never accept it nor what follows it."""
    batch = replace(
        ONE, drafts=(1, 2, 3), greedy=(False,) * 3, negative=1, has_draft_logits=False
    )
    theirs, ours = run_both(lambda: likely(cumulative(batch)))
    log_p = theirs.arguments["cumulative_log_p_ptr"]
    rows = [2, 3, 5, 6, 7]  # those with drafts, but for the first: it reads the guard
    assert log_p[rows].tolist() == [0.0] * 5
    assert ours.arguments["cumulative_log_p_ptr"][rows].tolist() == [-torch.inf] * 5

    def make() -> Case:
        case = likely(block_rejection(batch))
        case.arguments["cumulative_log_p_ptr"].copy_(log_p)
        return case

    theirs, ours = run_both(make)
    assert theirs.arguments["rejected_steps_ptr"].tolist() == [0, 2, 3]
    assert theirs.arguments["sampled_ptr"][2, :3].tolist() == [-1, -1, -1]
    assert ours.arguments["rejected_steps_ptr"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("has_draft_logits", [False, True])
def test_drafts_before_a_placeholder(has_draft_logits: bool) -> None:
    """They are judged as if they were all that there is."""
    batch = replace(
        ONE, drafts=(3,) * 4, greedy=(False,) * 4, has_draft_logits=has_draft_logits
    )
    outcomes = set()
    for seed in range(40):
        cut = block_rejection(replace(batch, seed=seed))
        cut.arguments["draft_sampled_ptr"][2::4] = -1
        cut.run_ours()
        # The same requests with their first draft alone: rows 0 and 1 of each four.
        short = block_rejection(replace(batch, seed=seed))
        for i in range(4):
            ends = torch.tensor([4 * i, 4 * i + 2], dtype=torch.int32)
            one = replace(short, grid=(1,)).replace("cu_num_logits_ptr", ends)
            mapping = short.arguments["idx_mapping_ptr"][i : i + 1]
            one = one.replace("idx_mapping_ptr", mapping)
            one.run_ours()
            accepted = int(one.arguments["rejected_steps_ptr"][0])
            assert int(cut.arguments["rejected_steps_ptr"][i]) == accepted
            outcomes.add(accepted)
    assert outcomes == {0, 1}


LAUNCHES: dict[str, Callable[[], Case]] = {
    "compute_cumulative_log_p": lambda: cumulative(MIXED),
    "compute_local_residual_mass": lambda: residual(MIXED),
    "rejection": lambda: block_rejection(MIXED),
}


@pytest.mark.parametrize("op", LAUNCHES)
def test_opcheck(op: str) -> None:
    """The ops keep PyTorch's rules."""
    opcheck(LAUNCHES[op]())


@pytest.mark.parametrize(
    ("op", "argument", "value", "message"),
    [
        (
            "compute_cumulative_log_p",
            "cumulative_log_p_ptr",
            torch.zeros(10),
            "cumulative_log_p_ptr must be of at least 11 elements, but is of 10",
        ),
        (
            "compute_cumulative_log_p",
            "draft_sampled_ptr",
            torch.full((11,), 40),
            r"draft_sampled_ptr\[1\] must be in .* 40\), but is 40",
        ),
        (
            "compute_local_residual_mass",
            "draft_logits_ptr",
            None,
            "draft_logits_ptr must be a tensor, but is None",
        ),
        (
            "compute_local_residual_mass",
            "num_speculative_steps",
            4,
            r"num_speculative_steps must be in \[0, 4\), but is 4",
        ),
        (
            "rejection",
            "local_residual_mass_ptr",
            None,
            "local_residual_mass_ptr must be a tensor, but is None",
        ),
        (
            "rejection",
            "local_residual_mass_stride",
            5,
            "local_residual_mass_ptr must be of row stride 5 .* of row stride 3",
        ),
    ],
)
def test_bad_argument(op: str, argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = LAUNCHES[op]().replace(argument, value)
    with pytest.raises(ValueError, match=f"{op}: .*{message}"):
        case.run_ours()
