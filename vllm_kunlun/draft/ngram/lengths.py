# SPDX-License-Identifier: Apache-2.0
"""What the host knows of the drafts' number, and what it tells the scheduler."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from vllm_kunlun.draft.counted import CountedDrafts

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.worker.gpu.input_batch import InputBatch


class DraftLengths(CountedDrafts):
    """Hands over as many drafts of each request as there are.

    Without async scheduling the scheduler asks for them after each step and schedules
    just those. With it, it has scheduled `num_speculative_tokens` for each request
    before: `trim` takes out what is known to be missing, without waiting.
    """

    def __init__(
        self, device: torch.device, num_drafts: torch.Tensor, *, has_peers: bool
    ) -> None:
        """Start without drafts.

        Args:
            device: of the runner.
            num_drafts: [max_num_reqs], int32, by state row: how many drafts each has.
            has_peers: whether other ranks have to come to the same numbers.
        """
        super().__init__(device)
        self.num_drafts = num_drafts
        self._has_peers = has_peers
        self._before = self.latest
        self._known = self.latest

    def set_draft_tokens(
        self, input_batch: "InputBatch", draft_tokens: torch.Tensor
    ) -> None:
        """Take over a batch's drafts.

        Args:
            input_batch: the batch.
            draft_tokens: [max_num_reqs, num_steps], int64, by state row.
        """
        if input_batch.has_structured_output_reqs:
            draft_tokens = draft_tokens[input_batch.idx_mapping]
        lengths = self.num_drafts[input_batch.idx_mapping]
        self._before = self.latest
        self.take(input_batch, draft_tokens, lengths)

    def count(self, input_batch: "InputBatch") -> Callable[[], dict[str, int]]:
        """Return what counts the verified drafts of a batch once it is done."""
        assert input_batch.num_draft_tokens_per_req is not None
        # By the time it is asked, the next step may have been planned in that array.
        scheduled = input_batch.num_draft_tokens_per_req.tolist()
        req_ids, drafts = input_batch.req_ids, self.latest

        def counts() -> dict[str, int]:
            had = drafts.by_request()
            return {
                req_id: min(n, had.get(req_id, 0))
                for req_id, n in zip(req_ids, scheduled, strict=True)
            }

        return counts

    def trim(self, scheduler_output: "SchedulerOutput") -> "SchedulerOutput":
        """Return `scheduler_output` without the drafts that are known to be missing.

        The scheduler's own object stays as it is: it takes the tokens that a request
        did not get for rejected ones, so that its counts come out right.
        """
        scheduled = scheduler_output.scheduled_spec_decode_tokens
        # The grammar's masks are made for the rows that the scheduler has in mind.
        if not scheduled or scheduler_output.has_structured_output_requests:
            return scheduler_output
        if self._has_peers:
            # What has arrived by now differs from rank to rank. The lengths before the
            # latest are of a step whose tokens the scheduler has got.
            self._known = self._before
        elif self.latest.copied.query():
            # Else the lengths of the step before are the best that is known.
            self._known = self.latest
        known = self._known.by_request()
        num_tokens = dict(scheduler_output.num_scheduled_tokens)
        kept: dict[str, list[int]] = {}
        for req_id, drafts in scheduled.items():
            length = min(len(drafts), known.get(req_id, 0))
            num_tokens[req_id] -= len(drafts) - length
            if length:
                kept[req_id] = drafts[:length]
        return replace(
            scheduler_output,
            scheduled_spec_decode_tokens=kept,
            num_scheduled_tokens=num_tokens,
            total_num_scheduled_tokens=sum(num_tokens.values()),
        )
