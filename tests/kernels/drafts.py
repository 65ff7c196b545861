# SPDX-License-Identifier: Apache-2.0
"""A batch of requests with drafts, from which the rejection kernels' launches come."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from hypothesis import strategies as st
from oracle import Arena, Case

MODULE = "spec_decode.rejection_sampler_utils"
F32, I64 = torch.float32, torch.int64
EPSILON = 2.0**-23


def within(bound: float) -> Any:
    """Return a comparison that allows `bound` more or less, and NaN for NaN."""

    def close(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
        return torch.isclose(expected, found, rtol=0, atol=bound, equal_nan=True)

    return close


def within_ulp(ulp: int) -> Any:
    """Return a comparison that allows `ulp` units in the last place of an f32."""

    def close(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
        bound = ulp * EPSILON
        return torch.isclose(expected, found, rtol=bound, atol=0, equal_nan=True)

    return close


def is_decisive(make: Callable[[float], Case]) -> bool:
    """Whether a little more or less probability changes no decision."""
    decisions: list[list[int]] = []
    for shift in (-1e-5, 0, 1e-5):
        case = make(shift)
        case.run_ours()
        decisions.append(case.arguments["rejected_steps_ptr"].tolist())
    return all(decision == decisions[0] for decision in decisions)


@dataclass(frozen=True)
class Batch:
    """What decides a batch.

    Logits are sixteenths in [-4, 4), which every type holds as they are: many ties.
    """

    drafts: tuple[int, ...]
    """How many drafts each request has, up to `steps`."""
    greedy: tuple[bool, ...]
    steps: int = 3
    vocab: int = 40
    block: int = 16
    has_draft_logits: bool = True
    target_type: torch.dtype = F32
    draft_type: torch.dtype = F32
    index_type: torch.dtype = torch.int32
    negative: float = 0
    """The share of drafts that are -1."""
    seed: int = 0

    @property
    def num_reqs(self) -> int:
        """Requests in the batch."""
        return len(self.drafts)

    @property
    def num_states(self) -> int:
        """Rows of the state."""
        return self.num_reqs + 2

    @property
    def num_blocks(self) -> int:
        """Blocks of the vocabulary."""
        return -(-self.vocab // self.block)

    @property
    def padded_blocks(self) -> int:
        """num_blocks as a power of 2."""
        return 1 << (self.num_blocks - 1).bit_length()

    @property
    def ends(self) -> list[int]:
        """cu_num_logits."""
        rows = torch.tensor([0, *(n + 1 for n in self.drafts)])
        return [int(end) for end in rows.cumsum(0)]

    @property
    def num_logits(self) -> int:
        """Rows of logits."""
        return self.ends[-1]

    @cached_property
    def values(self) -> dict[str, torch.Tensor]:
        """All that is drawn, from the seed."""
        g = torch.Generator().manual_seed(self.seed)

        def sixteenths(*shape: int) -> torch.Tensor:
            return torch.randint(-64, 64, shape, generator=g) / 16

        rows, states = self.num_logits, self.num_states
        idx_mapping = torch.randperm(states, generator=g)[: self.num_reqs]
        counts = torch.tensor([n + 1 for n in self.drafts], dtype=I64)
        expanded = idx_mapping.repeat_interleave(counts)
        local = [torch.arange(n + 1) for n in self.drafts]
        local_pos = torch.cat([torch.zeros(0, dtype=I64), *local])
        target = sixteenths(rows, self.vocab)
        draft = sixteenths(states, self.steps, self.vocab)
        sampled = torch.randint(self.vocab, (rows,), generator=g)
        # Every other draft is one that the target likes.
        liked = torch.rand(rows, generator=g) < 0.6
        sampled[1:] = torch.where(liked[1:], target.argmax(1)[:-1], sampled[1:])
        sampled[torch.rand(rows, generator=g) < self.negative] = -1
        temp = torch.full((states,), -1.0)
        temp[idx_mapping] = 0.5 + torch.rand(self.num_reqs, generator=g)
        temp[idx_mapping[torch.tensor(self.greedy, dtype=torch.bool)]] = 0
        seeds = torch.randint(-(2**63), 2**63 - 1, (states,), generator=g)
        pos = torch.randint(2**31, (rows,), generator=g)
        if self.index_type == I64:
            pos = pos * 2**9
        names = "target draft drafts temp seeds pos idx_mapping expanded local_pos"
        return dict(
            zip(
                names.split(),
                (
                    target,
                    draft,
                    sampled,
                    temp,
                    seeds,
                    pos,
                    idx_mapping,
                    expanded,
                    local_pos,
                ),
                strict=True,
            )
        )

    def blocks(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits as [..., blocks, block], -inf after the end."""
        missing = self.num_blocks * self.block - self.vocab
        padded = torch.nn.functional.pad(logits, (0, missing), value=float("-inf"))
        return padded.unflatten(-1, (self.num_blocks, self.block))

    def draft_rows(self) -> torch.Tensor:
        """Return the draft logits of each row; for a bonus row, of any step."""
        v = self.values
        steps = v["local_pos"].clamp(max=self.steps - 1)
        return v["draft"][v["expanded"], steps]

    def target_logits(self, arena: Arena) -> dict[str, Any]:
        """Return the target's logits as arguments."""
        logits = arena.tensor("target_logits", self.values["target"], self.target_type)
        return {
            "target_logits_ptr": logits,
            "target_logits_stride": logits.stride(0),
        }

    def draft_logits(self, arena: Arena) -> dict[str, Any]:
        """Return the draft logits as arguments."""
        logits = None
        if self.has_draft_logits:
            logits = arena.tensor("draft_logits", self.values["draft"], self.draft_type)
        return {
            "draft_logits_ptr": logits,
            "draft_logits_stride_0": 0 if logits is None else logits.stride(0),
            "draft_logits_stride_1": 0 if logits is None else logits.stride(1),
        }

    def stats(self, arena: Arena) -> dict[str, Any]:
        """Return what compute_local_logits_stats finds, as arguments."""
        arguments: dict[str, Any] = {}
        rows = {"target": self.blocks(self.values["target"])}
        rows["draft"] = self.blocks(self.draft_rows())
        for side, logits in rows.items():
            largest = logits.amax(-1)
            sums = (logits - largest[..., None]).exp().sum(-1)
            found = {"max": largest, "sumexp": sums}
            for name, values in found.items():
                tensor = arena.tensor(f"{side}_{name}", values, F32)
                arguments[f"{side}_local_{name}_ptr"] = tensor
                arguments[f"{side}_local_{name}_stride"] = tensor.stride(0)
        return arguments

    def argmax(self, arena: Arena) -> dict[str, Any]:
        """Return the target's argmax by block as arguments."""
        first = torch.arange(self.num_blocks) * self.block
        argmax = self.blocks(self.values["target"]).argmax(-1) + first
        tensor = arena.tensor("target_argmax", argmax, I64)
        return {
            "target_local_argmax_ptr": tensor,
            "target_local_argmax_stride": tensor.stride(0),
        }

    def index(self, arena: Arena, name: str) -> torch.Tensor:
        """Return one of the drawn index tensors, whatever type upstream has it in."""
        types = {"drafts": self.index_type, "pos": self.index_type, "seeds": I64}
        return arena.tensor(name, self.values[name], types.get(name, torch.int32))

    def temp(self, arena: Arena) -> torch.Tensor:
        """Return the temperatures."""
        return arena.tensor("temp", self.values["temp"], F32)

    def ends_tensor(self, arena: Arena) -> torch.Tensor:
        """Return cu_num_logits as a tensor."""
        return arena.tensor("ends", self.ends)

    def case(self, kernel: str, arguments: dict[str, Any], arena: Arena) -> Case:
        """Return a launch over the requests."""
        return Case(MODULE, kernel, (self.num_reqs,), arguments, arena)


@st.composite
def batches(draw: st.DrawFn, negative: float = 0.1) -> Batch:
    """Draw a batch."""
    steps = draw(st.integers(1, 4))
    size = draw(st.integers(1, 3))
    types = st.sampled_from([F32, torch.bfloat16, torch.float16])
    return Batch(
        drafts=tuple(draw(st.integers(0, steps)) for _ in range(size)),
        greedy=tuple(draw(st.booleans()) for _ in range(size)),
        steps=steps,
        vocab=draw(st.integers(3, 70)),
        block=draw(st.sampled_from([16, 32])),
        has_draft_logits=draw(st.booleans()),
        target_type=draw(types),
        draft_type=draw(types),
        index_type=draw(st.sampled_from([torch.int32, I64])),
        negative=draw(st.sampled_from([0, negative])),
        seed=draw(st.integers(0, 2**31)),
    )


ONE = Batch(drafts=(2,), greedy=(False,))
"""One sampling request with two of its three drafts."""

MIXED = Batch(drafts=(3, 0, 1, 3), greedy=(True, False, False, False))
"""Greedy and sampling requests, with and without drafts."""
