# SPDX-License-Identifier: Apache-2.0
"""Sampling and verification in one launch, against the single kernels one by one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from drafts import F32, I64, MIXED, ONE, Batch, batches
from hypothesis import assume, example, given
from hypothesis import strategies as st
from oracle import Arena

from vllm_kunlun import ops

BLOCK = 8192  # of the vocabulary, where upstream looks for stats
RESAMPLE_BLOCK = 1024


@dataclass(frozen=True)
class Verify:
    """What decides a launch: a batch, and how its drafts are verified."""

    batch: Batch
    method: str = "standard"
    """Or "block", or "synthetic"."""
    use_fp64: bool = False
    narrow: int = 0
    """Tokens of the target's vocabulary that the drafter lacks."""
    nan: bool = False
    threads: int = 1

    @property
    def vocab(self) -> int:
        """Tokens that are looked at."""
        return self.batch.vocab - (self.narrow if self.batch.has_draft_logits else 0)

    def make(self) -> tuple[Arena, dict[str, Any]]:
        """Build the arguments of rejection_sample, and what the single ops need."""
        ops.load()
        b = self.batch
        g = torch.Generator().manual_seed(b.seed + 5)
        arena = Arena()
        rows, n = b.num_logits, b.num_reqs
        logits = b.target_logits(arena)["target_logits_ptr"]
        if self.nan:
            logits[torch.rand(logits.shape, generator=g) < 0.2] = float("nan")
            logits[torch.rand(rows, generator=g) < 0.2] = float("-inf")
        draft_logits = None
        if b.has_draft_logits:
            draft = b.values["draft"][..., : self.vocab]
            draft_logits = arena.tensor("draft_logits", draft, b.draft_type)
        drafts = b.values["drafts"].clamp(max=self.vocab - 1)
        # The rows' inputs stand behind those of a prefill, request by request.
        firsts = torch.repeat_interleave(
            torch.tensor([3 * i + 2 for i in range(n)], dtype=I64),
            torch.tensor([k + 1 for k in b.drafts], dtype=I64),
        )
        indices = torch.arange(rows) + firsts
        num_tokens = rows + 3 * n + 2
        inputs = torch.full((num_tokens,), 7).scatter_(0, indices, drafts)
        positions = torch.full((num_tokens,), 7).scatter_(0, indices, b.values["pos"])
        # Some requests are in the middle of their prefill.
        prefill_len = torch.randint(9, (b.num_states,), generator=g)
        seq_lens = torch.randint(2, 18, (n,), generator=g)
        rates = None
        if self.method == "synthetic":
            rates = arena.tensor("rates", torch.rand(b.steps, generator=g), F32)
        size = torch.ops.vllm_kunlun.rejection_sample_workspace(rows, n, b.vocab)
        return arena, {
            "sampled": arena.blank("sampled", (n, b.steps + 1), I64),
            "num_sampled": arena.blank("num_sampled", (n,)),
            "num_rejected": arena.blank("num_rejected", (n,)),
            "workspace": torch.empty(size, dtype=torch.uint8),
            "logits": logits,
            "draft_logits": draft_logits,
            "input_ids": arena.tensor("inputs", inputs),
            "positions": arena.tensor("positions", positions, I64),
            "logits_indices": arena.tensor("indices", indices, I64),
            "cu_num_logits": b.ends_tensor(arena),
            "idx_mapping": b.index(arena, "idx_mapping"),
            "expanded_idx_mapping": b.index(arena, "expanded"),
            "expanded_local_pos": b.index(arena, "local_pos"),
            "seq_lens": arena.tensor("seq_lens", seq_lens),
            "prefill_len": arena.tensor("prefill_len", prefill_len),
            "temperature": b.temp(arena),
            "seeds": b.index(arena, "seeds"),
            "synthetic_conditional_rates": rates,
            "num_speculative_steps": b.steps,
            "use_fp64": self.use_fp64,
            "use_block_verification": self.method == "block",
        }


def run_fused(a: Mapping[str, Any], threads: int = 1) -> None:
    """Launch rejection_sample; with more threads than requests it goes by phases."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.ops.vllm_kunlun.rejection_sample(**a)
    finally:
        torch.set_num_threads(before)


GREEDY_ARGUMENTS = [
    "sampled",
    "num_sampled",
    "num_rejected",
    "logits",
    "input_ids",
    "logits_indices",
    "cu_num_logits",
    "idx_mapping",
    "seq_lens",
    "prefill_len",
]


DRAWN_ARGUMENTS = [*GREEDY_ARGUMENTS, "positions", "temperature", "seeds"]


def run_greedy(a: Mapping[str, Any], vocab: int) -> None:
    """Launch verify_greedy."""
    torch.ops.vllm_kunlun.verify_greedy(
        **{name: a[name] for name in GREEDY_ARGUMENTS}, vocab_size=vocab
    )


def draw(a: Mapping[str, Any], vocab: int, use_fp64: bool) -> torch.Tensor:
    """Launch gumbel_sample for all rows; return their tokens."""
    rows, blocks = len(a["logits_indices"]), -(-vocab // RESAMPLE_BLOCK)
    local_argmax = torch.zeros(rows, blocks, dtype=I64)
    local_max = torch.zeros(rows, blocks, dtype=torch.float64 if use_fp64 else F32)
    torch.ops.vllm_kunlun.gumbel_sample(
        local_argmax,
        blocks,
        local_max,
        blocks,
        None,
        0,
        None,
        a["logits"],
        a["logits"].stride(0),
        a["expanded_idx_mapping"],
        a["seeds"],
        a["positions"][a["logits_indices"]],
        a["temperature"],
        vocab,
        RESAMPLE_BLOCK,
        False,
        use_fp64,
        False,
        rows,
        blocks,
    )
    return local_argmax.gather(1, local_max.argmax(1, keepdim=True))[:, 0]


def run_singly(a: Mapping[str, Any], vocab: int) -> None:
    """Launch the single ops as upstream's rejection_sample does."""
    single = torch.ops.vllm_kunlun
    n, rows = len(a["num_sampled"]), len(a["logits_indices"])
    blocks, resample_blocks = -(-vocab // BLOCK), -(-vocab // RESAMPLE_BLOCK)
    steps, is_block = a["num_speculative_steps"], a["use_block_verification"]
    rates, draft_logits = a["synthetic_conditional_rates"], a["draft_logits"]
    drafts = a["input_ids"][a["logits_indices"]]
    pos = a["positions"][a["logits_indices"]]
    has_draft_logits = draft_logits is not None
    target = (a["logits"], a["logits"].stride(0))
    draft = (draft_logits, 0, 0)
    if has_draft_logits:
        draft = (draft_logits, draft_logits.stride(0), draft_logits.stride(1))

    def blank(*shape: int, dtype: torch.dtype = F32) -> tuple[torch.Tensor, int]:
        return torch.zeros(shape, dtype=dtype), shape[-1]

    argmax = blank(rows, blocks, dtype=I64)
    target_stats = (*blank(rows, blocks), *blank(rows, blocks))
    draft_stats = (*blank(rows, blocks), *blank(rows, blocks))
    expanded, places = a["expanded_idx_mapping"], a["expanded_local_pos"]
    temp, seeds, ends = a["temperature"], a["seeds"], a["cu_num_logits"]
    grid = (rows, blocks)
    single.compute_local_logits_stats(
        *argmax,
        *target_stats,
        *draft_stats,
        *target,
        *draft,
        expanded,
        places,
        temp,
        vocab,
        steps,
        BLOCK,
        has_draft_logits,
        *grid,
    )
    log_p, residual = None, (None, 0)
    if is_block:
        log_p = torch.zeros(rows)
        single.compute_cumulative_log_p(
            log_p,
            *target,
            *target_stats,
            drafts,
            *draft,
            *draft_stats,
            ends,
            a["idx_mapping"],
            temp,
            blocks,
            has_draft_logits,
            n,
        )
    if is_block and has_draft_logits:
        residual = blank(rows, blocks)
        single.compute_local_residual_mass(
            *residual,
            log_p,
            *target,
            *target_stats,
            *draft,
            *draft_stats,
            expanded,
            places,
            temp,
            vocab,
            steps,
            blocks,
            BLOCK,
            *grid,
        )
    target_lse, draft_lse = torch.zeros(n), torch.zeros(n)
    sampled = (a["sampled"], a["sampled"].stride(0))
    single.rejection(
        *sampled,
        a["num_sampled"],
        target_lse,
        draft_lse,
        *target,
        *argmax,
        *target_stats,
        drafts,
        *draft,
        *draft_stats,
        ends,
        a["idx_mapping"],
        temp,
        seeds,
        pos,
        rates,
        log_p,
        *residual,
        blocks,
        has_draft_logits,
        rates is not None,
        is_block,
        n,
    )
    float_type = torch.float64 if a["use_fp64"] else F32
    resampled = (
        *blank(n, resample_blocks, dtype=I64),
        *blank(n, resample_blocks, dtype=float_type),
    )
    single.resample(
        *resampled,
        *target,
        target_lse,
        *draft,
        draft_lse,
        a["num_sampled"],
        ends,
        expanded,
        drafts,
        temp,
        seeds,
        pos,
        log_p,
        vocab,
        RESAMPLE_BLOCK,
        has_draft_logits,
        a["use_fp64"],
        is_block,
        n,
        resample_blocks,
    )
    single.insert_resampled(
        *sampled, a["num_sampled"], *resampled, resample_blocks, ends, expanded, temp, n
    )
    single.get_num_sampled_and_rejected(
        a["num_sampled"],
        a["num_rejected"],
        a["seq_lens"],
        ends,
        a["idx_mapping"],
        a["prefill_len"],
        n,
    )


def assert_same(expected: Arena, found: Arena) -> None:
    """Compare all memory, guards included."""
    for name, buffer in expected.buffers.items():
        same = torch.equal(
            buffer.view(torch.uint8), found.buffers[name].view(torch.uint8)
        )
        assert same, name


@st.composite
def verifies(draw: st.DrawFn) -> Verify:
    """Draw a launch."""
    batch = draw(batches())
    vocab = draw(st.just(batch.vocab) | st.sampled_from([1030, 8200]))
    return Verify(
        replace(batch, vocab=vocab),
        method=draw(st.sampled_from(["standard", "block", "synthetic"])),
        use_fp64=draw(st.booleans()),
        narrow=draw(st.integers(0, 2)),
        threads=draw(st.sampled_from([1, 4])),
    )


EMPTY = Batch(drafts=(), greedy=())
NO_DRAFTS = Batch(drafts=(0, 0, 0), greedy=(True, False, False), has_draft_logits=False)


@given(verifies())
@example(Verify(EMPTY))
@example(Verify(EMPTY, threads=4))
@example(Verify(MIXED, threads=2))
@example(Verify(replace(MIXED, vocab=20000), "block", threads=8))
@example(Verify(replace(MIXED, vocab=20000), "block"))
@example(Verify(replace(MIXED, has_draft_logits=False), "block"))
@example(Verify(replace(MIXED, negative=1), "synthetic"))
def test_rejection_sample(case: Verify) -> None:
    """One launch leaves what the single kernels leave, to the bit."""
    arena, arguments = case.make()
    expected, singly = case.make()
    run_fused(arguments, case.threads)
    run_singly(singly, case.vocab)
    assert_same(expected, arena)


@given(
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.sampled_from([F32, torch.bfloat16, torch.float16]),
    st.sampled_from([1, 40, 1030, 2048, 20000]),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_rejection_sample_without_drafts(
    greedy: list[bool], dtype: torch.dtype, vocab: int, use_fp64: bool, seed: int
) -> None:
    """Without drafts the tokens are gumbel_sample's, as upstream's wrapper has them."""
    batch = Batch(
        drafts=(0,) * len(greedy),
        greedy=tuple(greedy),
        vocab=vocab,
        has_draft_logits=False,
        target_type=dtype,
        seed=seed,
    )
    _, a = Verify(batch, use_fp64=use_fp64).make()
    a["sampled"] = a["sampled"][:, :1].contiguous()
    a["num_speculative_steps"] = 0
    run_fused(a)

    expected = draw(a, vocab, use_fp64).unsqueeze(1)
    assert torch.equal(a["sampled"], expected)
    in_prefill = a["seq_lens"] < a["prefill_len"][a["idx_mapping"].long()]
    assert torch.equal(a["num_sampled"], 1 - in_prefill.int())
    assert not a["num_rejected"].any()


@given(batches(), st.sampled_from([0, 1030, 20000]), st.integers(0, 2), st.booleans())
@example(EMPTY, 0, 0, False)
@example(replace(MIXED, vocab=3), 0, 0, True)
@example(NO_DRAFTS, 0, 0, False)
def test_verify_greedy(batch: Batch, vocab: int, narrow: int, nan: bool) -> None:
    """Greedy requests get what the single kernels give, ties and NaN included."""
    batch = replace(batch, greedy=(True,) * batch.num_reqs, vocab=vocab or batch.vocab)
    case = Verify(batch, narrow=narrow, nan=nan)
    assume(case.vocab > 0)
    _, arguments = case.make()
    _, singly = case.make()
    run_greedy(arguments, case.vocab)
    run_singly(singly, case.vocab)
    assert torch.equal(arguments["num_sampled"], singly["num_sampled"])
    assert torch.equal(arguments["num_rejected"], singly["num_rejected"])
    assert torch.equal(arguments["sampled"], singly["sampled"])


def test_verify_greedy_takes_the_lowest_of_equal_logits() -> None:
    """Within a block and across blocks; without any, it is the first token."""
    _, a = Verify(replace(ONE, drafts=(0,), greedy=(True,), vocab=9000)).make()
    for tokens, expected in (([8999, 8192], 8192), ([8191, 1024, 8192], 1024)):
        a["logits"].fill_(0.5)
        a["logits"][0, tokens] += 1
        run_greedy(a, 9000)
        assert a["sampled"][0, 0] == expected
    a["logits"].fill_(float("-inf"))
    run_greedy(a, 9000)
    assert a["sampled"][0, 0] == 0


@given(batches(), st.sampled_from([0, 1030, 20000]), st.booleans(), st.booleans())
@example(EMPTY, 0, False, False)
@example(replace(MIXED, vocab=9000), 0, False, True)
@example(NO_DRAFTS, 0, True, False)
def test_verify_drawn(batch: Batch, vocab: int, nan: bool, use_fp64: bool) -> None:
    """Rows' tokens are gumbel_sample's; drafts are accepted while they are these."""
    batch = replace(batch, vocab=vocab or batch.vocab, has_draft_logits=False)
    _, a = Verify(batch, nan=nan).make()
    drawn = draw(a, batch.vocab, use_fp64)
    g = torch.Generator().manual_seed(batch.seed)
    # Most drafts are right.
    followed = a["logits_indices"][1:]
    right = torch.rand(len(followed), generator=g) < 0.7
    a["input_ids"][followed[right]] = drawn[:-1][right].int()
    torch.ops.vllm_kunlun.verify_drawn(
        **{name: a[name] for name in DRAWN_ARGUMENTS},
        vocab_size=batch.vocab,
        use_fp64=use_fp64,
    )
    ends = a["cu_num_logits"].tolist()
    drafts = a["input_ids"][a["logits_indices"]].tolist()
    in_prefill = (a["seq_lens"] < a["prefill_len"][a["idx_mapping"].long()]).tolist()
    for i, (start, end) in enumerate(pairwise(ends)):
        row = start
        while row + 1 < end and drafts[row + 1] == drawn[row]:
            row += 1
        n = row + 1 - start
        assert torch.equal(a["sampled"][i, :n], drawn[start : row + 1])
        counts = (0, 0) if in_prefill[i] else (n, end - start - n)
        assert (a["num_sampled"][i], a["num_rejected"][i]) == counts


@pytest.mark.parametrize("method", ["standard", "block"])
def test_opcheck(method: str) -> None:
    """The ops keep PyTorch's rules."""
    _, a = Verify(MIXED, method).make()
    for name in ("sampled", "num_sampled", "num_rejected", "workspace"):
        a[name].zero_()
    library = torch.ops.vllm_kunlun
    torch.library.opcheck(library.rejection_sample, tuple(a.values()))
    greedy = tuple(a[name] for name in GREEDY_ARGUMENTS)
    torch.library.opcheck(library.verify_greedy, (*greedy, 40))
    drawn = {name: a[name] for name in DRAWN_ARGUMENTS}
    drawn |= {"vocab_size": 40, "use_fp64": False}
    torch.library.opcheck(library.verify_drawn, (), drawn)


def i32(*values: int) -> torch.Tensor:
    """Return a tensor of indices."""
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("logits", torch.zeros(9, 40), "logits must be of at least 11 rows"),
        (
            "logits",
            torch.zeros(11, 40).double(),
            "logits must be Float, Half or BFloat16",
        ),
        ("sampled", torch.zeros(4, 3, dtype=I64), r"sampled must be .* 4 columns"),
        (
            "workspace",
            torch.zeros(8, dtype=torch.uint8),
            "workspace must be of at least",
        ),
        (
            "draft_logits",
            torch.zeros(6, 40),
            "draft_logits must be of 3 dimensions",
        ),
        ("draft_logits", torch.zeros(6, 2, 40), "draft_logits must be .* 3 steps"),
        ("positions", torch.zeros(3, dtype=I64), r"logits_indices\[1\] must be in"),
        ("idx_mapping", i32(0, 1, 6, 2), r"idx_mapping\[2\] must be in \[0, 6\)"),
        ("cu_num_logits", i32(0, 5, 6, 7, 11), r"cu_num_logits_ptr\[1\] must be in"),
        ("synthetic_conditional_rates", torch.ones(2), "rates must be of at least 3"),
        ("seeds", i32(1, 2, 3, 4, 5, 6), "seeds must be Long, but is Int"),
    ],
)
def test_bad_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    _, arguments = Verify(MIXED).make()
    with pytest.raises(ValueError, match=f"rejection_sample: .*{message}"):
        run_fused({**arguments, argument: value})


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("vocab_size", 0, "vocab_size must be at least 1, but is 0"),
        ("positions", torch.zeros(3, dtype=I64), r"logits_indices\[1\] must be in"),
        ("temperature", torch.ones(2), r"idx_mapping\[.\] must be in \[0, 2\)"),
    ],
)
def test_bad_argument_of_verify_drawn(
    argument: str, value: object, message: str
) -> None:
    """What is not verify_greedy's is checked, too."""
    _, a = Verify(MIXED).make()
    arguments = {name: a[name] for name in DRAWN_ARGUMENTS}
    arguments |= {"vocab_size": 40, "use_fp64": False, argument: value}
    with pytest.raises(ValueError, match=f"verify_drawn: .*{message}"):
        torch.ops.vllm_kunlun.verify_drawn(**arguments)


def test_block_verification_refuses_synthetic_rates() -> None:
    """They exclude each other."""
    _, a = Verify(MIXED, "synthetic").make()
    with pytest.raises(ValueError, match="must be None with block verification"):
        run_fused({**a, "use_block_verification": True})
