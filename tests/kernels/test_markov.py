# SPDX-License-Identifier: Apache-2.0
"""The Markov head's fused argmax against the torch ops of upstream's loop."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracle import Arena

from vllm_kunlun import ops

ops.load()
kunlun = torch.ops.vllm_kunlun

BLOCK = 1024
"""kMarkovBlock."""


@dataclass(frozen=True)
class Markov:
    """A block of drafts.

    Weights and logits are small multiples of a power of 2, so that no order of
    accumulation rounds: the drafts are upstream's to the token, ties included.
    """

    num_reqs: int = 2
    num_steps: int = 3
    vocab: int = 70
    rank: int = 5
    dtype: torch.dtype = torch.float32
    reduced: bool = False
    """Whether the draft has a vocabulary of its own."""
    queries: int = 3
    scale: float = 1.0
    """How much the Markov head says, against the base logits."""
    seed: int = 0

    @property
    def target_vocab(self) -> int:
        """Size of the target's vocabulary."""
        return self.vocab + (30 if self.reduced else 0)

    def values(self) -> dict[str, Any]:
        """Return the inputs."""
        g = torch.Generator().manual_seed(self.seed)

        def drawn(*shape: int, high: int = 8) -> torch.Tensor:
            return torch.randint(-high, high, shape, generator=g).to(self.dtype)

        base = drawn(self.num_reqs, self.num_steps, self.vocab, high=16)
        w2 = drawn(self.vocab, self.rank) * self.scale
        d2t = None
        if self.reduced:
            targets = torch.randperm(self.target_vocab, generator=g)[: self.vocab]
            d2t = targets.sort().values - torch.arange(self.vocab)
        shape = (self.num_reqs * self.queries,)
        anchors = torch.randint(self.target_vocab, shape, generator=g)
        return {
            "base_logits": base,
            "w1": drawn(self.target_vocab, self.rank),
            "w2": w2,
            "w2_norms": w2.double().norm(dim=1).float().nextafter(torch.tensor(1e30)),
            "d2t": d2t,
            "anchors": anchors.to(torch.int32),
            "anchor_stride": self.queries,
        }

    def run(self, arena: Arena, **replaced: Any) -> None:
        """Launch the op."""
        blocks = -(-self.vocab // BLOCK)
        shape = (self.num_reqs + 1, self.num_steps + 1)
        call = {
            "draft_tokens": arena.blank("draft_tokens", shape, torch.int64),
            "block_max": torch.empty(blocks * self.num_reqs),
            "block_argmax": torch.empty(blocks * self.num_reqs, dtype=torch.int32),
            "block_products": arena.blank("block_products", (blocks, self.num_reqs)),
            **self.values(),
        }
        kunlun.markov_argmax(**{**call, **replaced})

    def run_torch(self, arena: Arena) -> None:
        """Do it step by step, as upstream's loop does."""
        v = self.values()
        shape = (self.num_reqs + 1, self.num_steps + 1)
        drafts = arena.blank("draft_tokens", shape, torch.int64)
        previous = v["anchors"][:: self.queries].long()
        for i in range(self.num_steps):
            bias = torch.nn.functional.linear(v["w1"][previous], v["w2"])
            chosen = (v["base_logits"][:, i] + bias).argmax(-1)
            previous = chosen if v["d2t"] is None else chosen + v["d2t"][chosen]
            drafts[: self.num_reqs, i] = previous


def assert_same(markov: Markov) -> None:
    """Compare all memory with torch's."""
    found, expected = Arena(), Arena()
    markov.run(found)
    markov.run_torch(expected)
    name = "draft_tokens"
    assert torch.equal(expected.buffers[name], found.buffers[name])


@given(
    st.builds(
        Markov,
        num_reqs=st.integers(1, 5),
        num_steps=st.integers(1, 7),
        vocab=st.one_of(st.integers(1, 200), st.integers(1000, 2100)),
        rank=st.integers(1, 70),
        dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
        reduced=st.booleans(),
        queries=st.integers(1, 8),
        scale=st.sampled_from([0.0, 0.015625, 1.0]),
        seed=st.integers(0, 2**31),
    )
)
@example(Markov(num_reqs=1, num_steps=1, vocab=1, rank=1, queries=1))
@example(Markov(vocab=BLOCK, rank=1024, dtype=torch.bfloat16))
@example(Markov(vocab=BLOCK + 1, reduced=True))
@example(Markov(vocab=3 * BLOCK + 65, scale=0.0))
def test_markov_argmax(markov: Markov) -> None:
    """Drafts are those of upstream's loop, the first of several best ones included."""
    assert_same(markov)


@given(
    rows=st.permutations(range(6)),
    num_reqs=st.integers(1, 5),
    padding=st.integers(0, 2),
    num_steps=st.integers(1, 4),
)
def test_drafts_by_row(
    rows: list[int], num_reqs: int, padding: int, num_steps: int
) -> None:
    """The table has each request's drafts in its row, and keeps the other rows."""
    arena = Arena()
    table = torch.arange(6 * 5).view(6, 5)
    expected = table.clone()
    mapping = rows[: num_reqs - min(padding, num_reqs)]
    mapping += [-1] * (num_reqs - len(mapping))
    markov = Markov(num_reqs=num_reqs, num_steps=num_steps)
    markov.run(arena, table=table, rows=torch.tensor(mapping, dtype=torch.int32))
    drafts = arena.buffers["draft_tokens"][64:-64].view(num_reqs + 1, num_steps + 1)
    for i, row in enumerate(mapping):
        if row >= 0:
            expected[row, :num_steps] = drafts[i, :num_steps]
    assert torch.equal(table, expected)


def test_many_blocks_on_threads() -> None:
    """A batch that is shared out to threads gives the same drafts."""
    assert_same(Markov(num_reqs=9, num_steps=2, vocab=40 * BLOCK + 7, rank=16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_drawn_weights(dtype: torch.dtype) -> None:
    """With any weights, a draft's logit is the largest but for rounding."""
    g = torch.Generator().manual_seed(1)
    markov = Markov(num_reqs=4, num_steps=5, vocab=3000, rank=64, queries=1)
    values = markov.values()
    for name, width in (("base_logits", 2.0), ("w1", 0.5), ("w2", 0.5)):
        drawn = torch.randn(values[name].shape, generator=g) * width
        values[name] = drawn.to(dtype)
    w2 = values["w2"].double()
    values["w2_norms"] = w2.norm(dim=1).float().nextafter(torch.tensor(1e30))
    arena = Arena()
    markov.run(arena, **values)
    drafts = arena.buffers["draft_tokens"][64:-64].view(5, 6)[:4, :5]
    previous = torch.cat([values["anchors"][:, None], drafts[:, :-1]], dim=1)
    bias = values["w1"][previous].double() @ w2.T
    logits = values["base_logits"].double() + bias
    missed = logits.amax(-1) - logits.gather(2, drafts[..., None])[..., 0]
    last_place = {torch.float32: 2**-20, torch.bfloat16: 2**-4, torch.float16: 2**-7}
    assert float(missed.max()) <= last_place[dtype]


@pytest.mark.parametrize(("scale", "least", "most"), [(0.0, 5, 25), (8.0, 5120, 5130)])
def test_products(scale: float, least: int, most: int) -> None:
    """Tokens that their norm rules out take no product; what they take is counted."""
    markov = Markov(num_reqs=1, num_steps=1, vocab=5 * BLOCK, rank=64, scale=scale)
    values = markov.values()
    values["base_logits"][0, 0] = torch.arange(5 * BLOCK) % 4001
    arena = Arena()
    markov.run(arena, base_logits=values["base_logits"])
    products = int(arena.buffers["block_products"][64:-64].sum())
    assert least <= products <= most


def test_nothing_above_minus_infinity() -> None:
    """NaN and -inf are no drafts: the token is 0, and others are not affected."""
    markov = Markov(num_reqs=3, num_steps=1)
    values = markov.values()
    values["base_logits"][0] = float("nan")
    values["base_logits"][1] = float("-inf")
    values["base_logits"][2, 0, :-1] = float("-inf")
    arena = Arena()
    markov.run(arena, base_logits=values["base_logits"])
    drafts = arena.buffers["draft_tokens"][64:-64].view(4, 2)
    assert drafts[:3, 0].tolist() == [0, 0, 69]


def test_first_of_equal_ones() -> None:
    """What the bias lifts to the best base logit, blocks before that one, wins."""
    markov = Markov(num_reqs=1, num_steps=1, vocab=3 * BLOCK, rank=1, queries=1)
    values = markov.values()
    base, w2 = torch.zeros(1, 1, markov.vocab), torch.zeros(markov.vocab, 1)
    base[0, 0, 2 * BLOCK + 5] = 4
    base[0, 0, BLOCK + 1] = 3
    w2[BLOCK + 1] = 1
    values |= {"base_logits": base, "w2": w2, "w2_norms": torch.ones(markov.vocab)}
    values["w1"].fill_(1)
    arena = Arena()
    markov.run(arena, **values)
    assert int(arena.buffers["draft_tokens"][64]) == BLOCK + 1


def test_no_requests() -> None:
    """Without requests nothing is written."""
    arena = Arena()
    Markov(num_reqs=0).run(arena)
    assert torch.equal(
        arena.buffers["draft_tokens"],
        torch.full_like(arena.buffers["draft_tokens"], -7_777_777_777),
    )


BY_ROW = {
    "table": torch.zeros(6, 4, dtype=torch.int64),
    "rows": torch.tensor([2, 0], dtype=torch.int32),
}


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("w1", torch.zeros(70, 1025), r"the rank of w1 must be in \[1, 1025\), but"),
        ("w2", torch.zeros(70, 4), r"the rank of w2 must be in \[5, 6\), but is 4"),
        ("w2", torch.zeros(69, 5), "w2 must be of at least 350 elements"),
        ("w2", torch.zeros(70, 5).half(), "w1 or w2 must be Float, but is Half"),
        ("w2_norms", torch.zeros(69), "w2_norms must be of at least 70 elements"),
        ("base_logits", torch.zeros(2, 70), "base_logits must be of 3 dim.* of 2"),
        ("anchor_stride", 0, "anchor_stride must be at least 1, but is 0"),
        ("rows", None, "rows must be given with table, but is None"),
        ("rows", torch.tensor([2], dtype=torch.int32), "rows must be of at least 2 el"),
        ("rows", torch.tensor([5, 0]), "rows must be Int, but is Long"),
        (
            "rows",
            torch.tensor([5, 6], dtype=torch.int32),
            r"rows\[1\] must be in \[-1, 6\), but is 6",
        ),
        (
            "anchors",
            torch.tensor([3, 0, 0, 70], dtype=torch.int32),
            r"anchors\[3\] must be in \[0, 70\), but is 70",
        ),
        ("d2t", torch.arange(70), r"d2t\[35\] must be in \[-35, 35\), but is 35"),
    ],
)
def test_bad_argument(argument: str, value: object, message: str) -> None:
    """A bad argument is refused by op, name and value."""
    with pytest.raises(ValueError, match=f"markov_argmax: .*{message}"):
        Markov().run(Arena(), **{**BY_ROW, argument: value})
