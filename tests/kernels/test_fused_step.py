# SPDX-License-Identifier: Apache-2.0
"""The fused launches of a step against the launches that they stand for.

The plan and the block tables are tested in tests/unit/test_step.py, where upstream's
classes are at hand.
"""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from vllm_kunlun import ops

ops.load()
kunlun = torch.ops.vllm_kunlun

ROWS = 6
MODEL_LEN = 40
STEPS = 4


@dataclass(frozen=True)
class Request:
    """One request of a batch."""

    prefill_len: int
    computed: int
    query_len: int
    num_logits: int


def _request(prefill_len: int, computed: int, query_len: int, drafts: int) -> Request:
    return Request(prefill_len, computed, query_len, 1 + min(drafts, query_len - 1))


requests = st.lists(
    st.builds(
        _request,
        prefill_len=st.integers(1, 20),
        computed=st.integers(0, 20),
        query_len=st.integers(1, 8),
        drafts=st.integers(0, STEPS),
    ),
    max_size=ROWS,
)


class Memory:
    """The tensors of a step, the same for the same batch."""

    def __init__(self, batch: list[Request], rows: list[int]) -> None:
        generator = torch.Generator().manual_seed(len(batch))

        def ids(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.randint(0, 99, shape, generator=generator, dtype=dtype)

        self.num_reqs = len(batch)
        self.input_ids = ids(64)
        self.positions = ids(64, dtype=torch.int64)
        self.seq_lens = ids(ROWS)
        self.logits_indices = ids(64, dtype=torch.int64)
        self.expanded_idx_mapping = ids(64)
        self.expanded_local_pos = ids(64)
        self.next_prefill_tokens = ids(ROWS)
        self.idx_mapping = torch.tensor(rows, dtype=torch.int32)
        self.query_start_loc = _sums([r.query_len for r in batch])
        self.cu_num_logits = _sums([r.num_logits for r in batch])
        self.all_token_ids = ids(ROWS, MODEL_LEN)
        self.prefill_len = torch.zeros(ROWS, dtype=torch.int32)
        self.num_computed_tokens = torch.zeros(ROWS, dtype=torch.int32)
        for request, row in zip(batch, rows, strict=False):
            self.prefill_len[row] = request.prefill_len
            self.num_computed_tokens[row] = request.computed
        self.last_sampled_tokens = ids(ROWS, 1, dtype=torch.int64)
        self.draft_tokens = ids(ROWS, STEPS, dtype=torch.int64)

    def fused(self) -> tuple[torch.Tensor | int, ...]:
        """Return the arguments of the fused launch."""
        tensors = [v for v in vars(self).values() if isinstance(v, torch.Tensor)]
        return (*tensors, 1, self.num_reqs)


def _sums(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


@given(batch=requests, rows=st.permutations(range(ROWS)))
@example(batch=[], rows=list(range(ROWS)))
def test_prepare_step(batch: list[Request], rows: list[int]) -> None:
    """One launch writes what the four launches of upstream's V2 write."""
    one, four = Memory(batch, rows), Memory(batch, rows)
    kunlun.prepare_step(*one.fused())
    n = four.num_reqs
    kunlun.prepare_prefill_inputs(
        four.input_ids,
        four.next_prefill_tokens,
        four.idx_mapping,
        four.query_start_loc,
        four.all_token_ids,
        MODEL_LEN,
        four.prefill_len,
        four.num_computed_tokens,
        n,
    )
    kunlun.prepare_pos_seq_lens(
        four.positions,
        four.seq_lens,
        four.idx_mapping,
        four.query_start_loc,
        four.num_computed_tokens,
        ROWS,
        n + 1,
    )
    kunlun.combine_sampled_and_draft_tokens(
        four.input_ids,
        four.idx_mapping,
        four.last_sampled_tokens,
        four.query_start_loc,
        four.seq_lens,
        four.prefill_len,
        four.draft_tokens,
        STEPS,
        four.cu_num_logits,
        four.logits_indices,
        1,
        n,
    )
    kunlun.expand_idx_mapping(
        four.idx_mapping,
        four.expanded_idx_mapping,
        four.expanded_local_pos,
        four.cu_num_logits,
        n,
    )
    for name, expected in vars(four).items():
        if isinstance(expected, torch.Tensor):
            assert torch.equal(getattr(one, name), expected), name


@given(
    rows=st.permutations(range(ROWS)),
    num_reqs=st.integers(0, ROWS),
    num_steps=st.integers(0, STEPS),
)
def test_store_drafts(rows: list[int], num_reqs: int, num_steps: int) -> None:
    """Drafts land in the rows of their requests, and nowhere else."""
    state = torch.arange(ROWS * STEPS).view(ROWS, STEPS)
    expected = state.clone()
    idx_mapping = torch.tensor(rows[:num_reqs], dtype=torch.int32)
    drafts = -1 - torch.arange(num_reqs * num_steps).view(num_reqs, num_steps)
    expected[idx_mapping.long(), :num_steps] = drafts
    kunlun.store_drafts(state, idx_mapping, drafts)
    assert torch.equal(state, expected)


def test_ops_keep_the_rules() -> None:
    """Schemas say what is written, and Meta implementations exist."""
    batch = [Request(5, 2, 3, 1), Request(5, 7, 4, 4)]
    torch.library.opcheck(kunlun.prepare_step, Memory(batch, [3, 1]).fused())
    torch.library.opcheck(
        kunlun.store_drafts,
        (
            torch.zeros(ROWS, STEPS, dtype=torch.int64),
            torch.tensor([2, 0], dtype=torch.int32),
            torch.ones(2, STEPS, dtype=torch.int64),
        ),
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("query_start_loc", torch.tensor([0, 9, 5], dtype=torch.int32), r"\[2\]"),
        ("cu_num_logits", torch.tensor([0, 9, 10], dtype=torch.int32), r"\[1\]"),
        ("idx_mapping", torch.tensor([0, ROWS], dtype=torch.int32), r"\[1\]"),
        ("positions", torch.zeros(64, dtype=torch.int32), "must be Long"),
        ("seq_lens", torch.zeros(1, dtype=torch.int32), "at least 2 elements"),
    ],
)
def test_wrong_arguments(name: str, value: torch.Tensor, message: str) -> None:
    """A wrong tensor or index is named with its value."""
    memory = Memory([Request(5, 2, 3, 1), Request(5, 7, 4, 4)], [3, 1])
    setattr(memory, name, value)
    with pytest.raises(ValueError, match=message):
        kunlun.prepare_step(*memory.fused())
