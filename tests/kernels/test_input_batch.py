# SPDX-License-Identifier: Apache-2.0
"""The batch's inputs and the request state against upstream's kernels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import GUARD, Arena, Case, assert_same, compare, opcheck, run_both

VOCAB = 50
SPARE = 3
"""What the persistent buffers have more than the batch needs."""


@dataclass(frozen=True)
class Request:
    """One request of a batch."""

    prefill_len: int
    computed: int
    query_len: int
    num_logits: int = 1
    num_sampled: int = 1
    row_is_dropped: bool = False


@dataclass(frozen=True)
class Batch:
    """What decides a case of any of these kernels."""

    requests: tuple[Request, ...]
    num_steps: int = 0
    new_tokens: int = 1
    counts: bool = True
    queries: bool = True
    seed: int = 0

    def launch(
        self, kernel: str, columns: int, build: Callable[["Memory"], dict[str, Any]]
    ) -> Callable[[], Case]:
        """Return a recipe for a launch over the batch and `columns` more."""

        def make() -> Case:
            memory = Memory(self)
            arguments = build(memory)
            grid = (len(self.requests) + columns,)
            return Case("input_batch", kernel, grid, arguments, memory.arena)

        return make


class Memory:
    """The tensors of a batch, made as they are asked for."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.arena = Arena()
        self.generator = torch.Generator().manual_seed(batch.seed)
        self.num_reqs = len(batch.requests)
        self.max_num_reqs = self.num_reqs + 2
        self.num_tokens = sum(r.query_len for r in batch.requests)
        self.num_logits = sum(r.num_logits for r in batch.requests)
        ends = [r.computed + r.query_len for r in batch.requests]
        lens = [r.prefill_len for r in batch.requests]
        self.max_model_len = max([1, *ends, *lens]) + 8
        order = torch.randperm(self.max_num_reqs, generator=self.generator)
        self.rows = order[: self.num_reqs]

    def per_request(self, name: str, field: Callable[[Request], int]) -> torch.Tensor:
        """One value per request, in the batch's order."""
        return self.arena.tensor(name, [field(r) for r in self.batch.requests])

    def state(
        self,
        name: str,
        field: Callable[[Request], int],
        dtype: torch.dtype = torch.int32,
        columns: tuple[int, ...] = (),
    ) -> torch.Tensor:
        """One value per row of the state; rows out of the batch hold sentinels."""
        tensor = self.arena.blank(name, (self.max_num_reqs, *columns), dtype)
        for row, request in zip(self.rows.tolist(), self.batch.requests, strict=True):
            tensor[row] = field(request)
        return tensor

    def order(self) -> torch.Tensor:
        """The rows of the requests, with -1 for those that are dropped."""
        dropped = torch.tensor([r.row_is_dropped for r in self.batch.requests])
        rows = torch.where(dropped, -1, self.rows) if self.num_reqs else self.rows
        return self.arena.tensor("order", rows)

    def sums(self, name: str, field: Callable[[Request], int]) -> torch.Tensor:
        """The running sum of a length, from 0."""
        lens = torch.tensor([0, *(field(r) for r in self.batch.requests)])
        return self.arena.tensor(name, lens.cumsum(0))

    def starts(self) -> torch.Tensor:
        """Where each request's tokens start."""
        return self.sums("starts", lambda r: r.query_len)

    def random(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.int32
    ) -> torch.Tensor:
        """Token ids."""
        ids = torch.randint(VOCAB, shape, generator=self.generator)
        return self.arena.tensor(name, ids, dtype)


def prefill(batch: Batch) -> Callable[[], Case]:
    """A launch of prepare_prefill_inputs."""

    def build(m: Memory) -> dict[str, Any]:
        tokens = m.random("tokens", (m.max_num_reqs, m.max_model_len))
        return {
            "input_ids_ptr": m.arena.blank("input_ids", (m.num_tokens + SPARE,)),
            "next_prefill_tokens_ptr": m.arena.blank("next", (m.max_num_reqs,)),
            "idx_mapping_ptr": m.order(),
            "query_start_loc_ptr": m.starts(),
            "all_token_ids_ptr": tokens,
            "all_token_ids_stride": tokens.stride(0),
            "prefill_lens_ptr": m.state("prefill_len", lambda r: r.prefill_len),
            "num_computed_tokens_ptr": m.state("computed", lambda r: r.computed),
            "BLOCK_SIZE": 1024,
        }

    return batch.launch("_prepare_prefill_inputs_kernel", 0, build)


def positions(batch: Batch) -> Callable[[], Case]:
    """A launch of prepare_pos_seq_lens."""

    def build(m: Memory) -> dict[str, Any]:
        pos = m.arena.blank("pos", (m.num_tokens + SPARE,), torch.int64)
        return {
            "pos_ptr": pos,
            "seq_lens_ptr": m.arena.blank("seq_lens", (m.max_num_reqs,)),
            "idx_mapping_ptr": m.order(),
            "query_start_loc_ptr": m.starts(),
            "num_computed_tokens_ptr": m.state("computed", lambda r: r.computed),
            "max_num_reqs": m.max_num_reqs,
            "BLOCK_SIZE": 1024,
        }

    return batch.launch("_prepare_pos_seq_lens_kernel", 1, build)


def combine(batch: Batch) -> Callable[[], Case]:
    """A launch of combine_sampled_and_draft_tokens."""

    def build(m: Memory) -> dict[str, Any]:
        shape = (m.max_num_reqs, batch.num_steps)
        drafts = m.random("drafts", shape, torch.int64)
        indices = m.arena.blank("indices", (m.num_logits + SPARE,), torch.int64)
        most = max(batch.num_steps + batch.new_tokens, 1)
        return {
            "input_ids_ptr": m.random("input_ids", (m.num_tokens + SPARE,)),
            "idx_mapping_ptr": m.order(),
            "last_sampled_tokens_ptr": m.random(
                "last", (m.max_num_reqs, 1), torch.int64
            ),
            "query_start_loc_ptr": m.starts(),
            "seq_lens_ptr": m.per_request(
                "seq_lens", lambda r: r.computed + r.query_len
            ),
            "prefill_len_ptr": m.state("prefill_len", lambda r: r.prefill_len),
            "draft_tokens_ptr": drafts,
            "draft_tokens_stride": drafts.stride(0),
            "cu_num_logits_ptr": m.sums("cu_num_logits", lambda r: r.num_logits),
            "logits_indices_ptr": indices,
            "BLOCK_SIZE": 1 << (most - 1).bit_length(),
            "NUM_NEW_SAMPLED_TOKENS": batch.new_tokens,
        }

    return batch.launch("_combine_sampled_and_draft_tokens_kernel", 0, build)


def sampled(batch: Batch) -> Callable[[], Case]:
    """A launch of get_num_sampled_and_rejected."""

    def build(m: Memory) -> dict[str, Any]:
        return {
            "num_sampled_ptr": m.per_request("num_sampled", lambda r: r.num_sampled),
            "num_rejected_ptr": m.arena.blank("num_rejected", (m.num_reqs,)),
            "seq_lens_ptr": m.per_request(
                "seq_lens", lambda r: r.computed + r.query_len
            ),
            "cu_num_logits_ptr": m.sums("cu_num_logits", lambda r: r.num_logits),
            "idx_mapping_ptr": m.order(),
            "prefill_len_ptr": m.state("prefill_len", lambda r: r.prefill_len),
        }

    return batch.launch("_get_num_sampled_and_rejected_kernel", 0, build)


def update(batch: Batch) -> Callable[[], Case]:
    """A launch of post_update."""

    def build(m: Memory) -> dict[str, Any]:
        # The known tokens end where the query does, so that the new ones have room.
        tokens = m.random("tokens", (m.max_num_reqs, m.max_model_len))
        new = m.random("sampled", (m.num_reqs, batch.num_steps + 1), torch.int64)
        counts = None
        if batch.counts:
            counts = m.random("counts", (m.max_num_reqs, VOCAB))
        return {
            "idx_mapping_ptr": m.order(),
            "num_computed_tokens_ptr": m.state("computed", lambda r: r.computed),
            "last_sampled_tokens_ptr": m.arena.blank(
                "last", (m.max_num_reqs, 1), torch.int64
            ),
            "output_bin_counts_ptr": counts,
            "output_bin_counts_stride": 0 if counts is None else counts.stride(0),
            "sampled_tokens_ptr": new,
            "sampled_tokens_stride": new.stride(0),
            "num_sampled_ptr": m.per_request("num_sampled", lambda r: r.num_sampled),
            "num_rejected_ptr": m.per_request(
                "num_rejected", lambda r: r.num_logits - r.num_sampled
            ),
            "query_start_loc_ptr": m.starts() if batch.queries else None,
            "all_token_ids_ptr": tokens,
            "all_token_ids_stride": tokens.stride(0),
            "total_len_ptr": m.state("total_len", lambda r: r.computed + r.query_len),
        }

    return batch.launch("_post_update_kernel", 0, build)


@st.composite
def batches(draw: st.DrawFn, *, drops: bool = False) -> Batch:
    """Draw a batch: prefills, chunks that end in it, and decodes with drafts."""
    num_steps = draw(st.integers(0, 4))
    new_tokens = draw(st.integers(0 if num_steps else 1, 1))
    requests = []
    for _ in range(draw(st.integers(0, 6))):
        query_len = draw(st.integers(1, 9))
        most = min(query_len, num_steps + new_tokens)
        num_logits = draw(st.integers(new_tokens, most))
        requests.append(
            Request(
                prefill_len=draw(st.integers(0, 20)),
                computed=draw(st.integers(0, 20)),
                query_len=query_len,
                num_logits=num_logits,
                num_sampled=draw(st.integers(0, num_logits)),
                row_is_dropped=drops and draw(st.booleans()),
            )
        )
    return Batch(
        requests=tuple(requests),
        num_steps=num_steps,
        new_tokens=new_tokens,
        counts=draw(st.booleans()),
        queries=draw(st.booleans()),
        seed=draw(st.integers(0, 2**31)),
    )


EMPTY = Batch(())
LONG_PREFILL = Batch((Request(2100, 10, 2050), Request(3, 2, 1), Request(8, 9, 1)))
DECODE = Batch(tuple(Request(4, 4 + i, 1) for i in range(6)))
DRAFTS = Batch(
    (
        Request(4, 9, 5, num_logits=5, num_sampled=3),
        Request(9, 6, 4, num_logits=4, num_sampled=1),  # the prompt ends in the drafts
        Request(9, 2, 3),
        Request(4, 7, 1),
    ),
    num_steps=4,
)


@given(batches())
@example(EMPTY)
@example(LONG_PREFILL)
@example(DECODE)
def test_prepare_prefill_inputs(batch: Batch) -> None:
    """Prefilling requests get their known tokens, and the token that follows."""
    compare(prefill(batch))


@given(batches())
@example(EMPTY)
@example(LONG_PREFILL)
@example(DECODE)
def test_prepare_pos_seq_lens(batch: Batch) -> None:
    """Positions go on where the request is, and padding has no length."""
    compare(positions(batch))


@given(batches())
@example(EMPTY)
@example(LONG_PREFILL)
@example(DECODE)
@example(DRAFTS)
def test_combine_sampled_and_draft_tokens(batch: Batch) -> None:
    """Decoding requests get their sampled and draft tokens, all get their logits."""
    compare(combine(batch))


@given(batches())
@example(EMPTY)
@example(LONG_PREFILL)
@example(DRAFTS)
def test_get_num_sampled_and_rejected(batch: Batch) -> None:
    """What was not sampled is rejected, unless the prefill goes on."""
    compare(sampled(batch))


@given(batches(drops=True))
@example(EMPTY)
@example(DECODE)
@example(DRAFTS)
def test_post_update(batch: Batch) -> None:
    """The step's outcome is in the state, but for dropped rows."""
    compare(update(batch))


def test_negative_tokens_are_not_counted() -> None:
    """Upstream counts a token -1 in front of the request's row, ours nowhere."""

    def make() -> Case:
        case = update(DECODE)()
        case.arguments["sampled_tokens_ptr"].fill_(-1)
        return case

    before = make().arena.buffers["counts"]
    theirs, ours = run_both(make)
    changed = theirs.arena.buffers["counts"] - before
    assert int(changed.sum()) == len(DECODE.requests)
    rows = theirs.arguments["idx_mapping_ptr"]
    assert bool((changed[GUARD + rows * VOCAB - 1] == 1).all())
    theirs.arena.buffers["counts"].copy_(before)
    assert_same(theirs, ours)


LAUNCHES = [prefill, positions, combine, sampled, update]


@pytest.mark.parametrize("launch", LAUNCHES)
def test_opcheck(launch: Callable[[Batch], Callable[[], Case]]) -> None:
    """The op keeps PyTorch's rules."""
    opcheck(launch(DRAFTS)())


def ints(*values: int) -> torch.Tensor:
    """An i32 tensor."""
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("launch", "argument", "value", "message"),
    [
        (
            prefill,
            "input_ids_ptr",
            torch.zeros(20, dtype=torch.int64),
            "prepare_prefill_inputs: input_ids_ptr must be Int, but is Long",
        ),
        (
            prefill,
            "num_computed_tokens_ptr",
            ints(0, 0, 0, 0),
            r"idx_mapping_ptr\[\d\] must be in \[0, 4\), but is [45]",
        ),
        (
            positions,
            "max_num_reqs",
            9,
            "seq_lens_ptr must be of at least 9 elements, but is of 6",
        ),
        (
            positions,
            "query_start_loc_ptr",
            ints(0, 5, 9, 12, 99),
            r"query_start_loc_ptr\[4\] must be in \[12, 17\), but is 99",
        ),
        (
            combine,
            "NUM_NEW_SAMPLED_TOKENS",
            2,
            r"NUM_NEW_SAMPLED_TOKENS must be in \[0, 2\), but is 2",
        ),
        (
            combine,
            "cu_num_logits_ptr",
            ints(0, 6, 9, 10, 11),
            r"cu_num_logits_ptr\[1\] must be in \[0, 6\), but is 6",
        ),
        (
            sampled,
            "num_rejected_ptr",
            torch.zeros(8, dtype=torch.int32)[::2],
            r"num_rejected_ptr must be contiguous, but is of shape \[4\] with "
            r"strides \[2\]",
        ),
        (
            update,
            "num_sampled_ptr",
            ints(6, 0, 0, 0),
            r"post_update: num_sampled_ptr\[0\] must be in \[0, 6\), but is 6",
        ),
        (
            update,
            "all_token_ids_stride",
            4,
            "all_token_ids_ptr must be of row stride 4 .* but is of row stride 22",
        ),
    ],
)
def test_bad_argument(
    launch: Callable[[Batch], Callable[[], Case]],
    argument: str,
    value: object,
    message: str,
) -> None:
    """A bad argument is refused by op, name and value."""
    with pytest.raises(ValueError, match=message):
        launch(DRAFTS)().replace(argument, value).run_ours()
