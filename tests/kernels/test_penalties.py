# SPDX-License-Identifier: Apache-2.0
"""Penalties and the counts that they go by against upstream's kernels."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, compare, opcheck, run_both
from oracle.logits import make_logits

BLOCK = 2048  # two of the parts that ours works in; upstream has 8192
F32 = torch.float32


@dataclass(frozen=True)
class Penalise:
    """What decides a penalties case."""

    vocab: int
    drafts: tuple[int, ...]
    """For each request of the batch, in how many rows it has drafts before it."""
    penalties: tuple[tuple[float, float, float], ...]
    """Repetition, frequency and presence of each request of the batch."""
    seed: int = 0
    spare: int = 3

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        places = [place for n in self.drafts for place in range(n + 1)]
        rows, max_num_reqs = len(places), len(self.drafts) + 2
        words = -(-self.vocab // 32)
        order = torch.randperm(max_num_reqs, generator=g)[: len(self.drafts)]
        requests = [
            int(req)
            for req, n in zip(order, self.drafts, strict=True)
            for _ in range(n + 1)
        ]
        settings = torch.ones(max_num_reqs, 3)
        settings[order] = torch.tensor(self.penalties, dtype=F32).view(-1, 3)
        counts = torch.randint(-6, 4, (max_num_reqs, self.vocab), generator=g).clamp(0)
        mask = torch.randint(-(2**31), 2**31, (max_num_reqs, words), generator=g)
        logits = make_logits(arena, (rows, self.vocab), g, spare=self.spare)
        mask = arena.tensor("mask", mask)
        counts = arena.tensor("counts", counts)
        # Few different tokens, so that drafts repeat; -1 is a draft that is none.
        tokens = torch.randint(-1, min(self.vocab, 9), (rows,), generator=g)
        arguments = {
            "logits_ptr": logits,
            "logits_stride": logits.stride(0),
            "expanded_idx_mapping_ptr": arena.tensor("requests", requests),
            "token_ids_ptr": arena.tensor("tokens", tokens),
            "expanded_local_pos_ptr": arena.tensor("places", places),
            "repetition_penalty_ptr": arena.tensor("repetition", settings[:, 0], F32),
            "frequency_penalty_ptr": arena.tensor("frequency", settings[:, 1], F32),
            "presence_penalty_ptr": arena.tensor("presence", settings[:, 2], F32),
            "prompt_bin_mask_ptr": mask,
            "prompt_bin_mask_stride": mask.stride(0),
            "output_bin_counts_ptr": counts,
            "output_bin_counts_stride": counts.stride(0),
            "vocab_size": self.vocab,
            "BLOCK_SIZE": BLOCK,
        }
        grid = (rows, -(-self.vocab // BLOCK))
        return Case("sample.penalties", "_penalties_kernel", grid, arguments, arena)


@st.composite
def penalise(draw: st.DrawFn) -> Penalise:
    """Draw a case; some requests have no penalty."""
    drafts = draw(st.lists(st.integers(0, 3), max_size=3))
    repetition = st.sampled_from([1.0, 0.5, 1.1]) | st.floats(0.125, 2, width=32)
    other = st.sampled_from([0.0, -0.0, 0.5]) | st.floats(-2, 2, width=32)
    none = st.just((1.0, 0.0, 0.0))
    penalty = none | st.tuples(repetition, other, other)
    return Penalise(
        vocab=draw(st.integers(1, 100) | st.sampled_from([1023, 1056, 2051])),
        drafts=tuple(drafts),
        penalties=tuple(draw(penalty) for _ in drafts),
        seed=draw(st.integers(0, 2**31)),
    )


@given(penalise())
@example(Penalise(BLOCK + 33, (2, 0), ((1.3, 0.2, 0.1), (1.0, 0.0, 0.3))))
@example(Penalise(2 * BLOCK, (1,), ((0.7, -0.2, 0.0),)))
@example(Penalise(40, (0, 3), ((1.0, 0.0, 0.0), (1.0, 0.0, 0.0))))
@example(Penalise(31, (), ()))
def test_penalties(case: Penalise) -> None:
    """Each row is penalised to the bit, drafts before it included."""
    compare(case.make)


@dataclass(frozen=True)
class Count:
    """What decides a bincount case."""

    vocab: int
    lengths: tuple[tuple[int, int], ...]
    """Tokens of prompt and of earlier output of each new request."""
    outside: tuple[int, ...] = ()
    """Prompt tokens of the first request that are outside of the vocabulary."""
    seed: int = 0

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        max_num_reqs = len(self.lengths) + 2
        order = torch.randperm(max_num_reqs, generator=g)[: len(self.lengths)]
        prompt_len = torch.zeros(max_num_reqs, dtype=torch.int64)
        prefill_len = torch.zeros(max_num_reqs, dtype=torch.int64)
        for req, (prompt, output) in zip(order, self.lengths, strict=True):
            prompt_len[req], prefill_len[req] = prompt, prompt + output
        longest = int(prefill_len.max())
        tokens = torch.randint(self.vocab, (max_num_reqs, longest + 2), generator=g)
        if self.outside:
            tokens[order[0], : len(self.outside)] = torch.tensor(self.outside)
        words = -(-self.vocab // 32)
        mask = arena.blank("mask", (max_num_reqs, words))
        counts = arena.blank("counts", (max_num_reqs, self.vocab))
        # As the caller leaves them: only the rows of the new requests are zero.
        mask[order] = 0
        counts[order] = 0
        tokens = arena.tensor("tokens", tokens)
        arguments = {
            "expanded_idx_mapping_ptr": arena.tensor("order", order),
            "all_token_ids_ptr": tokens,
            "all_token_ids_stride": tokens.stride(0),
            "prompt_len_ptr": arena.tensor("prompt_len", prompt_len),
            "prefill_len_ptr": arena.tensor("prefill_len", prefill_len),
            "prompt_bin_mask_ptr": mask,
            "prompt_bin_mask_stride": mask.stride(0),
            "output_bin_counts_ptr": counts,
            "output_bin_counts_stride": counts.stride(0),
            "BLOCK_SIZE": 1024,
        }
        grid = (len(self.lengths), -(-longest // 1024))
        return Case("sample.penalties", "_bincount_kernel", grid, arguments, arena)


LENGTHS = st.tuples(st.integers(0, 60), st.just(0) | st.integers(0, 30))


@given(
    st.builds(
        Count,
        vocab=st.integers(1, 200),
        lengths=st.lists(LENGTHS, max_size=4).map(tuple),
        seed=st.integers(0, 2**31),
    )
)
@example(Count(500, ((1500, 900), (1024, 0), (1023, 2), (3, 1030))))
@example(Count(32, ((64, 0),)))
@example(Count(33, ((0, 7), (0, 0))))
@example(Count(5, ()))
def test_bincount(case: Count) -> None:
    """Prompts go to the mask, earlier output to the counts; other rows stay."""
    compare(case.make)


def test_token_outside_the_vocabulary_is_not_counted() -> None:
    """A deviation: upstream enters it into what lies behind the request's row."""
    outside = tuple(range(64, 96))
    theirs, ours = run_both(Count(64, ((32, 0),), outside).make)
    before = Count(64, ((32, 0),), outside).make().arena.buffers["mask"]
    assert torch.equal(ours.arena.buffers["mask"], before)
    assert not torch.equal(theirs.arena.buffers["mask"], before)


@pytest.mark.parametrize(
    "case",
    [
        Penalise(40, (1, 0), ((1.5, 0.5, 0.5),) * 2, spare=0),
        Count(40, ((5, 2), (3, 0))),
    ],
)
def test_opcheck(case: Penalise | Count) -> None:
    """The op keeps PyTorch's rules."""
    opcheck(case.make())


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("BLOCK_SIZE", 40, "BLOCK_SIZE must be a multiple of 32, but is 40"),
        ("vocab_size", 65, "logits_ptr must be of at least 65 columns"),
        ("output_bin_counts_stride", 7, "output_bin_counts_ptr must be of row stride"),
        (
            "prompt_bin_mask_ptr",
            torch.zeros(3, 1, dtype=torch.int32),
            "prompt_bin_mask_ptr must be of at least 2 columns",
        ),
        (
            "expanded_local_pos_ptr",
            torch.tensor([1, 0], dtype=torch.int32),
            r"expanded_local_pos_ptr\[0\] must be in \[0, 1\), but is 1",
        ),
        (
            "token_ids_ptr",
            torch.zeros(1, dtype=torch.int32),
            "token_ids_ptr must be of at least 2 elements, but is of 1",
        ),
    ],
)
def test_bad_penalties_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = Penalise(40, (1,), ((1.5, 0.5, 0.5),)).make().replace(argument, value)
    with pytest.raises(ValueError, match=f"penalties: {message}"):
        case.run_ours()


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("all_token_ids_stride", 3, "all_token_ids_ptr must be of row stride 3"),
        (
            "prompt_len_ptr",
            torch.full((3,), 8, dtype=torch.int32),
            r"prompt_len_ptr\[\d\] must be in \[0, 8\), but is 8",
        ),
        (
            "prefill_len_ptr",
            torch.full((3,), 10, dtype=torch.int32),
            r"prefill_len_ptr\[\d\] must be in \[0, 10\), but is 10",
        ),
        (
            "expanded_idx_mapping_ptr",
            torch.tensor([-1], dtype=torch.int32),
            r"expanded_idx_mapping_ptr\[0\] must be in \[0, 3\), but is -1",
        ),
    ],
)
def test_bad_bincount_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = Count(40, ((5, 2),)).make().replace(argument, value)
    with pytest.raises(ValueError, match=f"bincount: {message}"):
        case.run_ours()
