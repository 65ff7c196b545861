# SPDX-License-Identifier: Apache-2.0
"""The layout of a batch: who is in it, in which order, with how many tokens."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from typing import TYPE_CHECKING

import numpy as np
import torch

from vllm_kunlun.step.packed import VIEWS, PackedArrays

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.worker.gpu.states import RequestState


@dataclass(slots=True)
class Plan:
    """One step's layout, on the host, in the batch's order.

    ``idx_mapping`` is i32 ``[num_reqs]``, ``cu_num_logits`` i32 ``[num_reqs + 1]``,
    ``query_start_loc`` i32 ``[max_num_reqs + 1]``; the other arrays are per request,
    and ``seq_len_bound`` is padded with zeros to the batch's padded size.
    """

    req_ids: list[str]
    idx_mapping: np.ndarray
    cu_num_logits: np.ndarray
    query_start_loc: np.ndarray
    num_tokens: np.ndarray
    num_drafts: np.ndarray | None
    prefill_len: np.ndarray
    computed_prefill: np.ndarray
    computed: np.ndarray
    seq_len_bound: torch.Tensor
    is_prefilling: np.ndarray
    max_num_tokens: int
    max_seq_len: int
    any_prefilling: bool


AS_IN_STATE = -1
"""For the computed tokens of a request that is new: its state has them."""


class FusedPlanner:
    """Plans a step in one call of ours, from the state before the scheduler's news.

    It also takes over what the scheduler says is computed of running requests.
    Its buffers hold one step: a plan is good until the next one is made.
    """

    def __init__(self, states: "RequestState", packed: PackedArrays) -> None:
        n = states.max_num_reqs
        self.row_of = states.req_id_to_index.__getitem__
        self.packed = packed
        self._inputs = torch.zeros(4 * n, dtype=torch.int32)
        self._order = torch.zeros(n, dtype=torch.int32)
        self._summary = torch.zeros(4, dtype=torch.int32)
        self._batch = torch.zeros(6, n, dtype=torch.int32)
        self._is_prefilling = torch.zeros(n, dtype=torch.bool)
        self._np_inputs = self._inputs.numpy()
        self._np_order = self._order.numpy()
        self._np_summary = self._summary.numpy()
        self._states = (
            states.prefill_len.cpu,
            torch.from_numpy(states.num_computed_prefill_tokens),
            torch.from_numpy(states.num_computed_tokens_np),
        )
        self._call = torch.ops.vllm_kunlun.plan_step.default
        self._views = lru_cache(maxsize=VIEWS)(self._make_views)

    def __call__(
        self,
        output: "SchedulerOutput",
        num_reqs_padded: int,
        num_new_sampled: int,
        first: int = 1,
    ) -> Plan:
        """Return the layout of `output`'s batch; requests of `first` tokens lead it."""
        counts = output.num_scheduled_tokens
        drafts = output.scheduled_spec_decode_tokens
        n = len(counts)
        running = output.scheduled_cached_reqs
        computed_of = dict(
            zip(running.req_ids, running.num_computed_tokens, strict=True)
        )
        # All at once: each call of numpy costs more than the numbers do.
        inputs = chain(
            map(self.row_of, counts),
            counts.values(),
            map(len, map(drafts.get, counts, repeat(()))) if drafts else repeat(0, n),
            map(computed_of.get, counts, repeat(AS_IN_STATE)),
        )
        self._np_inputs[: 4 * n] = np.fromiter(inputs, np.int32, 4 * n)
        host, (idx_mapping, cu_num_logits, query_start_loc, _) = self.packed.next_host()
        self._call(
            self._inputs,
            bool(drafts),
            *self._states,
            self._order,
            *host[:3],
            self._batch,
            self._is_prefilling,
            self._summary,
            first,
            num_new_sampled,
            n,
            num_reqs_padded,
        )
        req_ids = list(counts)
        reordered, max_num_tokens, max_seq_len, num_prefilling = (
            self._np_summary.tolist()
        )
        if reordered:
            req_ids = [req_ids[i] for i in self._np_order[:n].tolist()]
        batch, seq_len_bound, is_prefilling = self._views(n, num_reqs_padded)
        num_tokens, num_drafts, prefill_len, computed_prefill, computed = batch
        return Plan(
            req_ids=req_ids,
            idx_mapping=idx_mapping[:n],
            cu_num_logits=cu_num_logits[: n + 1],
            query_start_loc=query_start_loc,
            num_tokens=num_tokens,
            num_drafts=num_drafts if drafts else None,
            prefill_len=prefill_len,
            computed_prefill=computed_prefill,
            computed=computed,
            seq_len_bound=seq_len_bound,
            is_prefilling=is_prefilling,
            max_num_tokens=max_num_tokens,
            max_seq_len=max_seq_len,
            any_prefilling=num_prefilling > 0,
        )

    def _make_views(
        self, n: int, padded: int
    ) -> tuple[list[np.ndarray], torch.Tensor, np.ndarray]:
        return (
            list(self._batch[:5, :n].numpy()),
            self._batch[5, :padded],
            self._is_prefilling[:n].numpy(),
        )


class NumpyPlanner:
    """Plans a step array by array, as upstream does."""

    def __init__(self, states: "RequestState", packed: PackedArrays) -> None:
        self.states = states
        self.packed = packed

    def __call__(
        self,
        output: "SchedulerOutput",
        num_reqs_padded: int,
        num_new_sampled: int,
        first: int = 1,
    ) -> Plan:
        """Return the layout of `output`'s batch; requests of `first` tokens lead it."""
        counts = output.num_scheduled_tokens
        drafts = output.scheduled_spec_decode_tokens
        states = self.states
        n = len(counts)
        req_ids = sorted(counts, key=lambda r: (counts[r] != first, counts[r]))
        num_tokens = np.array([counts[r] for r in req_ids], np.int32)
        num_drafts = np.array([len(drafts.get(r, ())) for r in req_ids], np.int32)
        _, (idx_mapping, cu_num_logits, query_start_loc, _) = self.packed.next_host()
        rows = idx_mapping[:n]
        rows[:] = [states.req_id_to_index[r] for r in req_ids]
        cu_num_logits[0] = query_start_loc[0] = 0
        np.cumsum(num_drafts + num_new_sampled, out=cu_num_logits[1 : n + 1])
        np.cumsum(num_tokens, out=query_start_loc[1 : n + 1])
        query_start_loc[n + 1 :] = query_start_loc[n]
        computed = states.num_computed_tokens_np[rows]
        computed_prefill = states.num_computed_prefill_tokens[rows]
        prefill_len = states.prefill_len.np[rows]
        seq_len_bound = torch.zeros(num_reqs_padded, dtype=torch.int32)
        seq_lens = computed + num_tokens
        seq_len_bound.numpy()[:n] = seq_lens
        is_prefilling = computed_prefill < prefill_len
        return Plan(
            req_ids=req_ids,
            idx_mapping=rows,
            cu_num_logits=cu_num_logits[: n + 1],
            query_start_loc=query_start_loc,
            num_tokens=num_tokens,
            num_drafts=num_drafts if drafts else None,
            prefill_len=prefill_len,
            computed_prefill=computed_prefill,
            computed=computed,
            seq_len_bound=seq_len_bound,
            is_prefilling=is_prefilling,
            max_num_tokens=int(num_tokens.max()),
            max_seq_len=int(seq_lens.max()),
            any_prefilling=bool(is_prefilling.any()),
        )
