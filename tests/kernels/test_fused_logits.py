# SPDX-License-Identifier: Apache-2.0
"""All that changes logits in one launch, against the single kernels one by one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, same_bits_or_nan
from oracle.logits import make_logits

from vllm_kunlun import ops

F32 = torch.float32
PART = 4096  # tokens that the host's kernel works on at a time
GROUPS = {
    "grammar": ("bitmask", "bitmask_rows"),
    "bias": (
        "num_allowed_token_ids",
        "allowed_token_ids",
        "num_logit_bias",
        "bias_token_ids",
        "logit_bias",
        "min_lens",
        "num_stop_token_ids",
        "stop_token_ids",
    ),
    "penalties": (
        "repetition_penalty",
        "frequency_penalty",
        "presence_penalty",
        "prompt_bin_mask",
        "output_bin_counts",
    ),
    "bad_words": (
        "bad_word_token_ids",
        "bad_word_offsets",
        "num_bad_words",
        "all_token_ids",
        "prompt_len",
        "total_len",
    ),
}


@dataclass(frozen=True)
class Fused:
    """What decides a launch; each request asks for a random part of it all."""

    vocab: int
    drafts: tuple[int, ...]
    """For each request of the batch, in how many rows it has drafts before it."""
    groups: frozenset[str] = frozenset(GROUPS)
    dtype: torch.dtype = F32
    in_place: bool = False
    scaled: bool = True
    """Whether there are temperatures and min_p."""
    nan: bool = False
    seed: int = 0
    spare: int = 3

    def make(self) -> tuple[Arena, dict[str, Any]]:
        """Build the arguments."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        n, vocab = len(self.drafts), self.vocab
        states = n + 2
        places = [place for k in self.drafts for place in range(k + 1)]
        rows = len(places)
        order = torch.randperm(states, generator=g)[:n]
        counts = torch.tensor(self.drafts, dtype=torch.int64) + 1
        # A prefill's input stands before a request's rows of logits.
        before = torch.randint(3, (n,), generator=g)
        ends = (counts + before).cumsum(0)
        indices = [
            end - k - 1 + place
            for end, k in zip(ends.tolist(), self.drafts, strict=True)
            for place in range(k + 1)
        ]
        num_tokens = int(ends[-1]) if n else 0
        few = min(vocab, 5)

        def draw(low: int, high: int, *shape: int) -> torch.Tensor:
            return torch.randint(low, high, shape, generator=g)

        def some(values: torch.Tensor, none: float, share: float = 0.5) -> torch.Tensor:
            values = values.to(F32)
            return values.masked_fill(
                torch.rand(values.shape, generator=g) > share, none
            )

        logits = make_logits(arena, (rows, vocab), g, self.dtype, spare=self.spare)
        if self.nan:
            logits[torch.rand(logits.shape, generator=g) < 0.1] = float("nan")
        out = logits
        if not self.in_place:
            wide = arena.blank("out", (rows, vocab + self.spare), F32)
            out = wide[:, :vocab]
        words = -(-vocab // 32)
        ids = min(vocab, 9)
        offsets = torch.tensor([0, 1, 3, 6]).repeat(states, 1)
        prompt_len = draw(0, 4, states)
        values: dict[str, Any] = {
            "bitmask": draw(-(2**31), 2**31, max(rows, 1), words),
            "bitmask_rows": torch.randperm(max(rows, 1), generator=g)[:rows],
            "num_allowed_token_ids": some(draw(1, 10, states), 0),
            "allowed_token_ids": draw(-1, vocab + 1, states, 9),
            "num_logit_bias": some(draw(1, ids + 1, states), 0),
            "bias_token_ids": torch.stack(
                [torch.randperm(vocab, generator=g)[:ids] for _ in range(states)]
            ),
            "logit_bias": torch.randn(states, ids, generator=g) * 50,
            "min_lens": draw(0, 5, states),
            "num_stop_token_ids": some(draw(1, 5, states), 0),
            "stop_token_ids": draw(-1, vocab + 1, states, 4),
            "repetition_penalty": some(0.5 + torch.rand(states, generator=g), 1),
            "frequency_penalty": some(torch.randn(states, generator=g), 0),
            "presence_penalty": some(torch.randn(states, generator=g), 0),
            "prompt_bin_mask": draw(-(2**31), 2**31, states, words),
            "output_bin_counts": draw(-6, 4, states, vocab).clamp(0),
            "bad_word_token_ids": draw(0, few, states, 6),
            "bad_word_offsets": offsets,
            "num_bad_words": some(draw(1, 4, states), 0),
            "all_token_ids": draw(0, few, states, 12),
            "prompt_len": prompt_len,
            "total_len": prompt_len + draw(0, 6, states),
        }
        hidden = torch.rand(rows, generator=g) < 0.4
        values["bitmask_rows"] = values["bitmask_rows"].masked_fill(hidden, -1)
        temperature = some(0.3 + torch.rand(states, generator=g), 1)
        temperature[torch.rand(states, generator=g) < 0.2] = 0  # greedy
        min_p = some(0.3 * torch.rand(states, generator=g), 0)
        if not self.scaled:
            temperature, min_p = torch.ones(states), torch.zeros(states)
        floats = ("logit_bias", *GROUPS["penalties"][:3])
        expanded = order.repeat_interleave(counts)
        return arena, {
            "out": out,
            "logits": None if self.in_place else logits,
            "expanded_idx_mapping": arena.tensor("requests", expanded),
            "expanded_local_pos": arena.tensor("places", places),
            "logits_indices": arena.tensor("indices", indices, torch.int64),
            "input_ids": arena.tensor("inputs", draw(-1, few, num_tokens)),
            "positions": arena.tensor("pos", draw(0, 4, num_tokens), torch.int64),
            "temperature": arena.tensor("temperature", temperature, F32),
            "min_p": arena.tensor("min_p", min_p, F32),
        } | {
            name: arena.tensor(
                name, values[name], F32 if name in floats else torch.int32
            )
            for group in GROUPS
            if group in self.groups
            for name in GROUPS[group]
        }


def run_fused(arguments: Mapping[str, Any]) -> None:
    """Launch the fused op."""
    ops.load()
    torch.ops.vllm_kunlun.fused_logits(**arguments)


def run_singly(a: Mapping[str, Any], groups: frozenset[str], scaled: bool) -> None:
    """Launch the single ops, in upstream's order."""
    single = torch.ops.vllm_kunlun
    raw = a["out"] if a["logits"] is None else a["logits"].clone()
    rows, vocab = raw.shape
    requests, places = a["expanded_idx_mapping"], a["expanded_local_pos"]
    pos = a["positions"][a["logits_indices"]]
    inputs = a["input_ids"][a["logits_indices"]]
    if "grammar" in groups:
        masked = (a["bitmask_rows"] >= 0).nonzero().view(-1).to(torch.int32)
        masks = a["bitmask"][a["bitmask_rows"][masked].long()].contiguous()
        single.apply_grammar_bitmask(
            raw, raw.stride(0), masked, masks, masks.stride(0), vocab, len(masked)
        )
    if a["logits"] is not None:
        a["out"].copy_(raw)
    out = a["out"]

    def tables(*names: str) -> list[Any]:
        """Return tables, each followed by its stride."""
        return [x for name in names for x in (a[name], a[name].stride(0))]

    if "bias" in groups:
        single.bias(
            out,
            out.stride(0),
            vocab,
            requests,
            a["num_allowed_token_ids"],
            *tables("allowed_token_ids"),
            a["num_logit_bias"],
            *tables("bias_token_ids", "logit_bias"),
            pos,
            a["min_lens"],
            a["num_stop_token_ids"],
            *tables("stop_token_ids"),
            rows,
        )
    if "penalties" in groups:
        single.penalties(
            out,
            out.stride(0),
            requests,
            inputs,
            places,
            *(a[name] for name in GROUPS["penalties"][:3]),
            *tables("prompt_bin_mask", "output_bin_counts"),
            vocab,
            8192,
            rows,
            -(-vocab // 8192),
        )
    if "bad_words" in groups:
        single.bad_words(
            out,
            out.stride(0),
            requests,
            *tables("bad_word_token_ids", "bad_word_offsets"),
            a["num_bad_words"],
            *tables("all_token_ids"),
            a["prompt_len"],
            a["total_len"],
            inputs,
            places,
            rows,
            3,
        )
    if scaled:
        blocks = -(-vocab // 8192)
        stride = out.stride(0)
        single.temperature(
            out, stride, requests, a["temperature"], vocab, 8192, rows, blocks
        )
        single.min_p(out, stride, requests, a["min_p"], vocab, rows)


@st.composite
def launches(draw: st.DrawFn) -> Fused:
    """Draw a launch."""
    dtype = draw(st.sampled_from([F32, torch.bfloat16, torch.float16]))
    return Fused(
        vocab=draw(st.integers(1, 90) | st.sampled_from([1055, 4095, 4097, 8500])),
        drafts=tuple(draw(st.lists(st.integers(0, 3), max_size=3))),
        groups=frozenset(draw(st.sets(st.sampled_from(sorted(GROUPS))))),
        dtype=dtype,
        in_place=dtype == F32 and draw(st.booleans()),
        scaled=draw(st.booleans()),
        nan=draw(st.booleans()),
        seed=draw(st.integers(0, 2**31)),
    )


@given(launches())
@example(Fused(40, ()))
@example(Fused(2 * PART, (0, 3)))
@example(Fused(PART + 33, (2, 1), dtype=torch.bfloat16))
@example(Fused(3 * PART + 7, (0,), groups=frozenset(), in_place=True))
# Of two f16 NaNs in one row, torch makes f32 NaNs of different bits.
@example(Fused(1055, (0,), frozenset(), torch.float16, scaled=False, nan=True, seed=0))
def test_fused_logits(case: Fused) -> None:
    """One launch writes what the single kernels write, to the bit."""
    arena, arguments = case.make()
    expected_arena, expected_arguments = case.make()
    run_fused(arguments)
    run_singly(expected_arguments, case.groups, case.scaled)
    for name, expected in expected_arena.buffers.items():
        found = arena.buffers[name]
        assert same_bits_or_nan(expected, found).all(), name


@pytest.mark.parametrize("rising", [True, False])
def test_min_p_over_many_parts(rising: bool) -> None:
    """A row's largest logit may stand anywhere: in the first part, or in the last."""
    case = Fused(300 * PART + 5, (0,), frozenset(), in_place=True, spare=0)
    results = []
    for run in (run_fused, lambda a: run_singly(a, frozenset(), True)):
        _, arguments = case.make()
        arguments["min_p"].fill_(0.1)
        arguments["temperature"].fill_(1)
        logits = torch.linspace(0, 9, case.vocab)
        arguments["out"][0] = logits if rising else logits.flip(0)
        run(arguments)
        results.append(arguments["out"].clone())
    assert torch.equal(*results)
    assert 0 < results[0].isfinite().sum() < case.vocab / 2


def test_rows_that_want_nothing_are_copied() -> None:
    """Float32 rows stay as they are in place; others arrive as float32."""
    case = Fused(70, (1, 0), frozenset(), scaled=False, nan=True, dtype=torch.bfloat16)
    _, arguments = case.make()
    run_fused(arguments)
    same = torch.equal(
        arguments["out"].nan_to_num(99), arguments["logits"].float().nan_to_num(99)
    )
    assert same


def test_opcheck() -> None:
    """The op keeps PyTorch's rules."""
    _, arguments = Fused(40, (1, 0), spare=0).make()
    arguments["out"].zero_()
    ops.load()
    torch.library.opcheck(torch.ops.vllm_kunlun.fused_logits, (), arguments)


def ints(*values: int) -> torch.Tensor:
    """Return an i32 tensor."""
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("out", torch.zeros(3, 40).half(), "out must be Float, but is Half"),
        ("logits", torch.zeros(3, 39), "logits must be of at least 40 columns"),
        ("logits", torch.zeros(2, 40), "logits must be of at least 3 rows"),
        (
            "logits_indices",
            torch.tensor([99, 99, 99]),
            r"logits_indices\[0\] must be in",
        ),
        (
            "logits_indices",
            torch.tensor([0, 0, 0]),
            r"logits_indices\[1\] must be in \[1",
        ),
        (
            "expanded_local_pos",
            ints(1, 1, 0),
            r"expanded_local_pos\[0\] must be in \[0",
        ),
        ("bitmask_rows", ints(0, 3, 1), r"bitmask_rows\[1\] must be in \[-1, 3\)"),
        ("bitmask_rows", None, "bitmask_rows must be a tensor, but is None"),
        ("min_lens", None, "min_lens must be a tensor, but is None"),
        ("stop_token_ids", torch.zeros(4, 4), "stop_token_ids must be Int"),
        ("num_stop_token_ids", ints(9, 9, 9, 9), r"num_stop_token_ids\[\d\] must be"),
        ("prompt_bin_mask", None, "prompt_bin_mask must be a tensor, but is None"),
        ("frequency_penalty", torch.ones(1), "frequency_penalty must be of at least 4"),
        ("num_bad_words", ints(4, 4, 4, 4), r"num_bad_words\[\d\] must be in \[0, 4\)"),
        ("total_len", ints(13, 13, 13, 13), r"total_len\[\d\] must be in \[0, 13\)"),
        ("min_p", torch.ones(1), "min_p must be of at least 4 elements, but is of 1"),
    ],
)
def test_bad_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    _, arguments = Fused(40, (1, 0), spare=0).make()
    with pytest.raises(ValueError, match=f"fused_logits: {message}"):
        run_fused({**arguments, argument: value})
