# SPDX-License-Identifier: Apache-2.0
"""Allowed ids, bias, min tokens, bad words and grammars against upstream's kernels."""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena, Case, compare, opcheck, run_both
from oracle.logits import make_logits, make_rows

F32 = torch.float32
BLOCK = 1024  # upstream has 8192, which only makes its interpreter slower


@dataclass(frozen=True)
class Ids:
    """How many ids of each kind a request has."""

    allowed: int = 0
    biased: int = 0
    stops: int = 0


@dataclass(frozen=True)
class Bias:
    """What decides a bias case."""

    vocab: int
    rows: int
    requests: tuple[Ids, ...]
    outside: int = 0
    """As many ids of each kind are outside of the vocabulary: at it or before 0."""
    seed: int = 0
    spare: int = 3

    def make(self) -> Case:
        """Build the launch; some rows are short of their min tokens, some not."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        n = len(self.requests)
        logits = make_logits(arena, (self.rows, self.vocab), g, spare=self.spare)

        def table(name: str, width: int, distinct: bool) -> torch.Tensor:
            ids = torch.stack(
                [
                    torch.randperm(self.vocab, generator=g)[:width]
                    if distinct
                    else torch.randint(self.vocab, (width,), generator=g)
                    for _ in range(n)
                ]
            )
            ids[:, : self.outside] = torch.tensor([self.vocab, -1])[: self.outside]
            return arena.tensor(name, ids)

        room = min(self.vocab, 16)
        allowed = table("allowed", 24, distinct=False)
        biased = table("biased", room, distinct=True)
        stops = table("stops", 8, distinct=False)
        bias = torch.randn((n, room), generator=g) * 50
        bias[:, 0] = 100
        bias = arena.tensor("bias", bias, F32)
        counts = torch.tensor(
            [[r.allowed, min(r.biased, room), r.stops] for r in self.requests]
        )
        arguments = {
            "logits_ptr": logits,
            "logits_stride": logits.stride(0),
            "vocab_size": self.vocab,
            "expanded_idx_mapping_ptr": arena.tensor(
                "requests", make_rows(self.rows, n, g)
            ),
            "num_allowed_token_ids_ptr": arena.tensor("num_allowed", counts[:, 0]),
            "allowed_token_ids_ptr": allowed,
            "allowed_token_ids_stride": allowed.stride(0),
            "num_logit_bias_ptr": arena.tensor("num_bias", counts[:, 1]),
            "bias_token_ids_ptr": biased,
            "bias_token_ids_stride": biased.stride(0),
            "bias_ptr": bias,
            "bias_stride": bias.stride(0),
            "pos_ptr": arena.tensor(
                "pos", torch.randint(3, (self.rows,), generator=g), torch.int64
            ),
            "min_lens_ptr": arena.tensor(
                "min_lens", torch.randint(5, (n,), generator=g)
            ),
            "num_stop_token_ids_ptr": arena.tensor("num_stops", counts[:, 2]),
            "stop_token_ids_ptr": stops,
            "stop_token_ids_stride": stops.stride(0),
            "BLOCK_SIZE": 32,
            "LOGITS_BLOCK_SIZE": BLOCK,
        }
        return Case("sample.logit_bias", "_bias_kernel", (self.rows,), arguments, arena)


def some(limit: int) -> st.SearchStrategy[int]:
    """Draw how many ids of a kind a request has: often none."""
    return st.just(0) | st.integers(1, limit)


@given(
    st.builds(
        Bias,
        vocab=st.integers(1, 90) | st.sampled_from([8191, 8192, 8193]),
        rows=st.integers(0, 5),
        requests=st.lists(
            st.builds(Ids, allowed=some(24), biased=some(16), stops=some(8)),
            min_size=1,
            max_size=4,
        ).map(tuple),
        seed=st.integers(0, 2**31),
    )
)
@example(Bias(BLOCK + 40, 6, (Ids(24, 16, 8),)))
@example(Bias(2 * BLOCK, 3, (Ids(0, 0, 8),)))
@example(Bias(1, 2, (Ids(24, 1, 8),)))
@example(Bias(40, 2, (Ids(),)))
@example(Bias(40, 0, (Ids(1, 1, 1),)))
def test_bias(case: Bias) -> None:
    """Allowed ids, then bias, then stop ids, each where its request asks for it."""
    compare(case.make)


def test_ids_outside_the_vocabulary_are_passed_over() -> None:
    """A deviation: upstream writes to what lies around the row."""
    case = Bias(40, 5, (Ids(24, 16, 8),) * 3, outside=2)
    theirs, ours = run_both(case.make)
    before = case.make().arguments["logits_ptr"]
    found = ours.arguments["logits_ptr"]
    a = ours.arguments
    for row, req in enumerate(a["expanded_idx_mapping_ptr"].tolist()):
        want = torch.full((40,), -math.inf)
        allowed = a["allowed_token_ids_ptr"][req, 2:].long()
        want[allowed] = before[row, allowed]
        want[a["bias_token_ids_ptr"][req, 2:].long()] += a["bias_ptr"][req, 2:]
        if a["pos_ptr"][row] + 1 < a["min_lens_ptr"][req]:
            want[a["stop_token_ids_ptr"][req, 2:].long()] = -math.inf
        assert torch.equal(found[row], want)
    spare = [
        side.arguments["logits_ptr"].as_strided((5,), (43,), 40 + 64)
        for side in (theirs, ours)
    ]
    assert (spare[0] != -7777.75).any()
    assert (spare[1] == -7777.75).all()


@dataclass(frozen=True)
class BadWords:
    """What decides a bad_words case; few different tokens, so that many words match."""

    vocab: int
    lengths: tuple[tuple[int, int, int], ...]
    """Tokens of prompt, of output and of drafts of each request of the batch."""
    words: tuple[tuple[int, ...], ...]
    """The lengths of each request's bad words."""
    tokens: int = 3
    seed: int = 0
    spare: int = 3

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        order = torch.randperm(len(self.lengths) + 2, generator=g)
        order = order[: len(self.lengths)].tolist()
        n = len(self.lengths) + 2

        def draw(*shape: int) -> torch.Tensor:
            return torch.randint(min(self.vocab, self.tokens), shape, generator=g)

        longest = max([sum(x[:2]) for x in self.lengths], default=0)
        all_tokens = draw(n, longest + 1)
        word_tokens = draw(n, max([sum(w) for w in self.words], default=0) + 1)
        max_words = max([len(w) for w in self.words], default=0)
        offsets = torch.zeros(n, max_words + 1, dtype=torch.int64)
        counts, prompt, total = (torch.zeros(n, dtype=torch.int64) for _ in range(3))
        requests: list[int] = []
        places: list[int] = []
        for req, lens, words in zip(order, self.lengths, self.words, strict=True):
            prompt[req], total[req], counts[req] = lens[0], sum(lens[:2]), len(words)
            ends = torch.tensor(words, dtype=torch.int64).cumsum(0)
            offsets[req, 1 : len(words) + 1] = ends
            requests += [req] * (lens[2] + 1)
            places += range(lens[2] + 1)
        inputs = draw(len(places))
        for row, (req, place) in enumerate(zip(requests, places, strict=True)):
            if place == 0 and total[req] > 0:
                inputs[row] = all_tokens[req, total[req] - 1]
        logits = make_logits(arena, (len(places), self.vocab), g, spare=self.spare)
        word_tokens = arena.tensor("word_tokens", word_tokens)
        offsets = arena.tensor("offsets", offsets)
        all_tokens = arena.tensor("all_tokens", all_tokens)
        arguments = {
            "logits_ptr": logits,
            "logits_stride": logits.stride(0),
            "expanded_idx_mapping_ptr": arena.tensor("requests", requests),
            "bad_word_token_ids_ptr": word_tokens,
            "bad_word_token_ids_stride": word_tokens.stride(0),
            "bad_word_offsets_ptr": offsets,
            "bad_word_offsets_stride": offsets.stride(0),
            "num_bad_words_ptr": arena.tensor("num_words", counts),
            "all_token_ids_ptr": all_tokens,
            "all_token_ids_stride": all_tokens.stride(0),
            "prompt_len_ptr": arena.tensor("prompt_len", prompt),
            "total_len_ptr": arena.tensor("total_len", total),
            "input_ids_ptr": arena.tensor("inputs", inputs),
            "expanded_local_pos_ptr": arena.tensor("places", places),
        }
        grid = (len(places), max_words)
        return Case("sample.bad_words", "_bad_words_kernel", grid, arguments, arena)


@st.composite
def bad_words(draw: st.DrawFn, max_drafts: int) -> BadWords:
    """Draw a case; requests may have no output yet, or no bad word."""
    length = st.tuples(st.integers(0, 5), st.integers(0, 8), st.integers(0, max_drafts))
    lengths = draw(st.lists(length, max_size=4))
    words = st.lists(st.integers(1, 4), max_size=5).map(tuple)
    return BadWords(
        vocab=draw(st.integers(1, 40)),
        lengths=tuple(lengths),
        words=tuple(draw(words) for _ in lengths),
        tokens=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 2**31)),
    )


@given(bad_words(max_drafts=0))
@example(BadWords(9, ((3, 0, 0), (0, 4, 0)), ((1, 2), ())))
@example(BadWords(9, ((3, 2, 0),), ((4, 3, 2, 1),), tokens=1))
@example(BadWords(9, (), ()))
def test_bad_words(case: BadWords) -> None:
    """The end of a bad word is masked where the output ends in its beginning."""
    compare(case.make)


def mask_as_v1(case: Case) -> torch.Tensor:
    """Return the logits as V1 masks them, by the tokens before each row."""
    from vllm.v1.sample.ops.bad_words import apply_bad_words_with_drafts

    a = case.arguments
    logits = a["logits_ptr"].clone()
    words, contexts = {}, []
    for row, req in enumerate(a["expanded_idx_mapping_ptr"].tolist()):
        place = int(a["expanded_local_pos_ptr"][row])
        output = slice(int(a["prompt_len_ptr"][req]), int(a["total_len_ptr"][req]))
        drafts = a["input_ids_ptr"][row - place + 1 : row + 1]
        output_tokens = a["all_token_ids_ptr"][req, output].tolist()
        contexts.append(output_tokens + drafts.tolist())
        ends = a["bad_word_offsets_ptr"][req].tolist()
        tokens = a["bad_word_token_ids_ptr"][req].tolist()
        words[row] = [
            tokens[ends[i] : ends[i + 1]] for i in range(a["num_bad_words_ptr"][req])
        ]
    apply_bad_words_with_drafts(logits, words, contexts, [1] * len(contexts))
    return logits


@given(bad_words(max_drafts=4))
@example(BadWords(9, ((3, 1, 3), (0, 4, 2)), ((1, 2, 3, 4), (2,)), tokens=2))
def test_bad_words_with_drafts(case: BadWords) -> None:
    """With drafts each row is masked as V1 does it, and nothing else is touched."""
    ours = case.make()
    want = mask_as_v1(ours)
    before = case.make()
    before.arguments["logits_ptr"].copy_(want)
    ours.run_ours()
    for name, expected in before.arena.buffers.items():
        assert torch.equal(expected, ours.arena.buffers[name]), name


def test_bad_words_are_masked_in_the_right_row() -> None:
    """A deviation: after a draft upstream masks the next row.

    Output [4], drafts 5 and 6, the bad word [5, 7]: 7 must not follow the 5.
    """
    shape = BadWords(9, ((2, 1, 2),), ((2,),))

    def make() -> Case:
        case = shape.make()
        a = case.arguments
        req = int(a["expanded_idx_mapping_ptr"][0])
        a["logits_ptr"].zero_()
        a["all_token_ids_ptr"][req, :3] = torch.tensor([1, 1, 4])
        a["bad_word_token_ids_ptr"][req, :2] = torch.tensor([5, 7])
        a["input_ids_ptr"].copy_(torch.tensor([4, 5, 6]))
        return case

    def masked(case: Case) -> list[list[int]]:
        return list(case.arguments["logits_ptr"].isneginf().nonzero().tolist())

    theirs, ours = run_both(make)
    assert masked(ours) == [[1, 7]]
    assert masked(theirs) == [[2, 7]]


def test_bad_word_outside_the_vocabulary_is_passed_over() -> None:
    """A deviation: upstream writes to what lies behind the row."""
    shape = BadWords(9, ((2, 1, 0),), ((1,),))

    def make() -> Case:
        case = shape.make()
        req = int(case.arguments["expanded_idx_mapping_ptr"][0])
        case.arguments["bad_word_token_ids_ptr"][req, 0] = 10
        return case

    theirs, ours = run_both(make)
    before = make().arena.buffers["logits"]
    assert torch.equal(ours.arena.buffers["logits"], before)
    assert not torch.equal(theirs.arena.buffers["logits"], before)


@dataclass(frozen=True)
class Grammar:
    """What decides an apply_grammar_bitmask case."""

    vocab: int
    masks: int
    rows: int
    dtype: torch.dtype = F32
    narrow: int = 0
    """Words that the bitmask lacks of the vocabulary."""
    free: bool = False
    """A mask that allows everything, another one nothing."""
    seed: int = 0
    spare: int = 3

    def make(self) -> Case:
        """Build the launch."""
        g = torch.Generator().manual_seed(self.seed)
        arena = Arena()
        words = max(-(-self.vocab // 32) - self.narrow, 1)
        bits = torch.randint(-(2**31), 2**31, (self.masks, words), generator=g)
        if self.free:
            bits[0::2] = -1
            bits[1::2] = 0
        logits = make_logits(
            arena, (self.rows, self.vocab), g, self.dtype, spare=self.spare
        )
        bitmask = arena.tensor("bitmask", bits)
        rows = torch.randperm(self.rows, generator=g)[: self.masks]
        arguments = {
            "logits_ptr": logits,
            "logits_stride": logits.stride(0),
            "logits_indices_ptr": arena.tensor("rows", rows),
            "bitmask_ptr": bitmask,
            "bitmask_stride": bitmask.stride(0),
            "vocab_size": self.vocab,
            "BLOCK_SIZE": BLOCK,
        }
        grid = (self.masks, -(-self.vocab // BLOCK))
        return Case(
            "structured_outputs",
            "_apply_grammar_bitmask_kernel",
            grid,
            arguments,
            arena,
        )


@st.composite
def grammars(draw: st.DrawFn) -> Grammar:
    """Draw a case; not every row of logits has a mask."""
    masks = draw(st.integers(0, 4))
    return Grammar(
        vocab=draw(st.integers(1, 130)),
        masks=masks,
        rows=masks + draw(st.integers(0, 2)),
        dtype=draw(st.sampled_from([F32, torch.float16, torch.bfloat16])),
        narrow=draw(st.sampled_from([0, 0, 1])),
        free=draw(st.booleans()),
        seed=draw(st.integers(0, 2**31)),
    )


@given(grammars())
@example(Grammar(BLOCK + 1, 2, 2))
@example(Grammar(BLOCK + 31, 2, 3, torch.bfloat16, free=True))
@example(Grammar(2 * BLOCK, 1, 1, torch.float16, narrow=1))
@example(Grammar(64, 0, 1))
def test_apply_grammar_bitmask(case: Grammar) -> None:
    """What a grammar does not allow becomes -inf, in any dtype; other rows stay."""
    compare(case.make)


GOOD: dict[str, Bias | BadWords | Grammar] = {
    "bias": Bias(40, 2, (Ids(3, 2, 1), Ids()), spare=0),
    "bad_words": BadWords(9, ((3, 1, 1),), ((1, 2),), spare=0),
    "apply_grammar_bitmask": Grammar(40, 2, 3, spare=0),
}


@pytest.mark.parametrize("op", GOOD)
def test_opcheck(op: str) -> None:
    """The op keeps PyTorch's rules."""
    opcheck(GOOD[op].make())


def ints(*values: int) -> torch.Tensor:
    """Return an i32 tensor."""
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("op", "argument", "value", "message"),
    [
        ("bias", "vocab_size", 41, "logits_ptr must be of at least 41 columns"),
        ("bias", "pos_ptr", ints(1, 2), "pos_ptr must be Long, but is Int"),
        ("bias", "num_stop_token_ids_ptr", ints(9, 9), r"_ptr\[\d\] must be in \[0, 9"),
        ("bias", "min_lens_ptr", ints(1), r"_mapping_ptr\[\d\] must be in \[0, 1\)"),
        ("bias", "bias_stride", 5, "bias_ptr must be of row stride 5"),
        (
            "bad_words",
            "num_bad_words_ptr",
            ints(3, 3, 3),
            r"_ptr\[\d\] must be in \[0, 3",
        ),
        ("bad_words", "total_len_ptr", ints(6, 6, 6), r"_ptr\[\d\] must be in \[0, 6"),
        ("bad_words", "prompt_len_ptr", ints(5, 5, 5), r"_ptr\[\d\] must be in \[0, 5"),
        (
            "bad_words",
            "expanded_local_pos_ptr",
            ints(0, 2),
            r"_pos_ptr\[1\] must be in",
        ),
        (
            "apply_grammar_bitmask",
            "logits_ptr",
            torch.zeros(3, 40).double(),
            "logits_ptr must be Float, Half or BFloat16, but is Double",
        ),
        (
            "apply_grammar_bitmask",
            "logits_indices_ptr",
            ints(0, 3),
            r"logits_indices_ptr\[1\] must be in \[0, 3\), but is 3",
        ),
        (
            "apply_grammar_bitmask",
            "bitmask_ptr",
            torch.zeros(1, 2, dtype=torch.int32),
            "bitmask_ptr must be of at least 2 rows, but is of 1",
        ),
    ],
)
def test_bad_argument(op: str, argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    case = GOOD[op].make().replace(argument, value)
    with pytest.raises(ValueError, match=f"{op}: .*{message}"):
        case.run_ours()
