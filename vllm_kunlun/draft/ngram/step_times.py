# SPDX-License-Identifier: Apache-2.0
"""How long steps take, learned from those that have run."""

from collections import deque
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from vllm.distributed import get_tp_group
from vllm.logger import init_logger

logger = init_logger(f"vllm.{__name__}")

# What is taken for true of a machine of which nothing is known yet.
VERIFY_COST = 0.01
FREE_ROWS = 8

# So many steps are looked at together, and how much of what was known before is kept.
WINDOW = 16
_KEPT = 0.92
# After so many steps the log says what has been found.
_TO_LOG = 50 * WINDOW
# A step that takes so many times what steps like it take says nothing of its rows.
_OUTLIER = 4.0
# How much it takes to be led away from VERIFY_COST, and from requests that cost nothing
# but their rows: the variance of rows, or requests, times steps.
_PRIOR_ROWS = 20.0
_PRIOR_REQUESTS = 2.0

# Milliseconds: of any step, of each row, of each request.
Milliseconds = npt.NDArray[np.float64]


class Cost(NamedTuple):
    """A step of R rows takes 1 + verify * max(0, R - free_rows)."""

    verify: float
    free_rows: int


class StepTimes:
    """The time of a step that decodes, as a sum of three parts.

    One is every step's (weights are read, kernels launched), one comes with each row,
    one with each request (its keys and values are read). They are the least-squares
    fit to the steps that have run, of which older ones count less. Where these do not
    tell rows from requests, or have no drafts, a row is thought cheap: being wrong in
    that direction brings the steps that show it.
    """

    def __init__(self) -> None:
        """Start with nothing known."""
        self.model: Milliseconds | None = None
        self._window: list[tuple[int, int, float]] = []
        self._moments = np.zeros((3, 3))
        self._products = np.zeros(3)

    def add(self, rows: int, requests: int, milliseconds: float) -> None:
        """Take in how long a step took that decoded `rows` for `requests`."""
        self._window.append((rows, requests, milliseconds))

    def fit(self) -> Milliseconds | None:
        """Return the parts as the steps up to now have them; None without any."""
        if self._window:
            rows, requests, times = np.array(self._window, np.float64).T
            self._window.clear()
            terms = np.stack([np.ones_like(rows), rows, requests], axis=1)
            usual = np.full_like(times, np.median(times))
            if self.model is not None:
                usual = np.maximum(usual, terms @ self.model)
            times = np.minimum(times, _OUTLIER * usual)
            self._moments = _KEPT * self._moments + terms.T @ terms
            self._products = _KEPT * self._products + terms.T @ times
        elif self._moments[0, 0] == 0:
            return None
        mean = self._products[0] / self._moments[0, 0]
        prior = np.array([0, _PRIOR_ROWS, _PRIOR_REQUESTS])
        expected = np.array([0, VERIFY_COST * mean, 0])
        parts = np.linalg.solve(
            self._moments + np.diag(prior), self._products + prior * expected
        )
        return np.asarray(parts, np.float64)

    def cost(self, requests: int) -> Cost:
        """Return what drafts cost in a step of so many requests."""
        if self.model is None:
            return Cost(VERIFY_COST, FREE_ROWS)
        every, row, request = self.model.tolist()
        row = max(row, 0.0)
        # Where rows are all the work, the rest is noise and may come out as nothing.
        rest = max(every + request * requests, row / 100)
        return Cost(row / rest if row else 0.0, 0)


class MeasuredCost:
    """What drafts cost here, by the steps that the runner has timed.

    Nothing is waited for: a step counts once its events have happened. On a device
    those are its stream's; on a CPU they are the time at which they were recorded.
    """

    def __init__(self) -> None:
        """Start with nothing known."""
        self._times = StepTimes()
        self._start: Any = None
        self._running: deque[tuple[int, int, Any, Any]] = deque()
        self._num_steps = 0

    def begin_step(self) -> None:
        """Note that a step begins."""
        self._start = torch.cuda.Event(enable_timing=True)
        self._start.record()

    def end_step(self, rows: int, requests: int) -> None:
        """Note that all of a step has been launched that decodes `rows`."""
        end = torch.cuda.Event(enable_timing=True)
        end.record()
        self._running.append((rows, requests, self._start, end))
        self._num_steps += 1
        if self._num_steps % WINDOW:
            return
        while self._running and self._running[0][3].query():
            rows, requests, start, end = self._running.popleft()
            self._times.add(rows, requests, start.elapsed_time(end))
        # Ranks have to verify the same drafts, and no two of them time alike.
        model = get_tp_group().broadcast_object(self._times.fit())
        self._times.model = model
        if self._num_steps == _TO_LOG and model is not None:
            logger.info(
                "DSpark has measured that a step takes %.2f ms, and %.2f more for each "
                "token and %.2f for each request.",
                *model,
            )

    def of(self, requests: int) -> Cost:
        """Return what drafts cost in a step of so many requests."""
        return self._times.cost(requests)
