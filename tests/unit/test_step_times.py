# SPDX-License-Identifier: Apache-2.0
"""What a draft costs is found from the steps that have run."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_kunlun.draft.ngram import step_times
from vllm_kunlun.draft.ngram.step_times import (
    FREE_ROWS,
    VERIFY_COST,
    WINDOW,
    Cost,
    MeasuredCost,
    StepTimes,
)


class Machine:
    """Steps that take what they are said to, give or take some noise."""

    def __init__(self, every: float, row: float, request: float, seed: int = 0) -> None:
        self.parts = every, row, request
        self.random = random.Random(seed)

    def run(
        self, times: StepTimes, requests: int, most_drafts: int, steps: int
    ) -> None:
        """Run so many steps, with drafts of up to `most_drafts` for each request."""
        every, row, request = self.parts
        for step in range(steps):
            rows = requests + self.random.randint(0, most_drafts * requests)
            time = every + row * rows + request * requests
            times.add(rows, requests, time * self.random.uniform(0.95, 1.05))
            if (step + 1) % WINDOW == 0:
                times.model = times.fit()

    def cost(self, requests: int) -> float:
        """Return what is right."""
        every, row, request = self.parts
        return row / (every + request * requests)


@settings(deadline=None)
@given(
    every=st.floats(10, 50),
    row=st.floats(0.3, 15),
    request=st.floats(0, 1),
    requests=st.integers(1, 32),
    seed=st.integers(0, 99),
)
def test_the_cost_is_found(
    every: float, row: float, request: float, requests: int, seed: int
) -> None:
    """Whatever the machine, and without being told of it."""
    machine, times = Machine(every, row, request, seed), StepTimes()
    machine.run(times, requests, 7, 10 * WINDOW)
    verify, free_rows = times.cost(requests)
    assert free_rows == 0
    # What matters is the chance from which on a draft is worth it.
    for rows in (requests, 4 * requests):
        right, found = machine.cost(requests), verify
        limits = [requests * c / (1 + c * rows) for c in (right, found)]
        assert limits[1] == pytest.approx(limits[0], rel=0.35, abs=0.05)


def test_requests_are_told_from_rows() -> None:
    """Load that comes and goes does not make drafts dear."""
    machine, times = Machine(30, 0.35, 0.7), StepTimes()
    for _ in range(4):
        for requests in (4, 30, 12, 24):
            machine.run(times, requests, 3, 2 * WINDOW)
    assert times.cost(24).verify == pytest.approx(machine.cost(24), rel=0.2)


def test_nothing_is_known_at_first() -> None:
    """Until a window of steps is full the defaults count."""
    times = StepTimes()
    assert times.fit() is None
    assert times.cost(3) == Cost(VERIFY_COST, FREE_ROWS)


def test_what_is_not_seen_is_thought_cheap() -> None:
    """Without a draft for long, drafts get another chance."""
    dear, times = Machine(30, 15, 0), StepTimes()
    dear.run(times, 1, 7, 4 * WINDOW)
    known = times.cost(1).verify
    assert known > 0.3
    dear.run(times, 1, 0, 100 * WINDOW)
    assert VERIFY_COST / 2 < times.cost(1).verify < known / 5


def test_a_change_is_followed() -> None:
    """Contexts grow, other work comes to the machine."""
    times = StepTimes()
    for row in (0.3, 3.0, 0.3):
        machine = Machine(30, row, 0)
        machine.run(times, 8, 7, 60 * WINDOW)
        assert times.cost(8).verify == pytest.approx(machine.cost(8), rel=0.2)


@pytest.mark.parametrize("at", [3, 10 * WINDOW])
def test_a_pause_is_no_cost(at: int) -> None:
    """A step that stood still for a minute says nothing of its rows."""
    machine, times = Machine(30, 0.5, 0), StepTimes()
    machine.run(times, 8, 7, at)
    times.add(64, 8, 60_000)
    machine.run(times, 8, 7, 20 * WINDOW)
    assert times.cost(8).verify == pytest.approx(machine.cost(8), rel=0.3)


def test_rows_may_be_all_the_work() -> None:
    """The rest, which is noise then, is never nothing or less."""
    times = StepTimes()
    times.model = np.array([-3.0, 2.0, 0.0])
    assert times.cost(8) == pytest.approx((100, 0))
    times.model = np.array([20.0, -0.1, 0.0])
    assert times.cost(8) == Cost(0, 0)


class Clock:
    """Events that happen when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = True

    def event(self, **_: Any) -> "Event":
        """Take the place of `torch.cuda.Event`."""
        return Event(self)


class Event:
    """One of them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def record(self) -> None:
        """Note the time."""
        self.at = self.clock.now

    def query(self) -> bool:
        """Return whether it has happened."""
        return self.clock.done

    def elapsed_time(self, end: "Event") -> float:
        """Return the milliseconds from here to there."""
        return end.at - self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Take over time, and be the only rank."""
    clock = Clock()
    monkeypatch.setattr(torch.cuda, "Event", clock.event)
    alone = SimpleNamespace(broadcast_object=lambda model: model)
    monkeypatch.setattr(step_times, "get_tp_group", lambda: alone)
    return clock


def run(cost: MeasuredCost, clock: Clock, row: float, steps: int) -> None:
    """Run steps of one request with 0 to 7 drafts."""
    for step in range(steps):
        cost.begin_step()
        clock.now += 20 + row * (1 + step % 8)
        cost.end_step(1 + step % 8, 1)


def test_steps_are_timed(clock: Clock) -> None:
    """From where one begins to where its last launch is done."""
    cost = MeasuredCost()
    run(cost, clock, 4, 8 * WINDOW)
    assert cost.of(1).verify == pytest.approx(0.2, rel=0.1)


def test_nothing_is_waited_for(clock: Clock) -> None:
    """A step that is not done yet counts later."""
    cost = MeasuredCost()
    clock.done = False
    run(cost, clock, 4, 4 * WINDOW)
    assert cost.of(1) == Cost(VERIFY_COST, FREE_ROWS)
    clock.done = True
    run(cost, clock, 4, WINDOW)
    assert cost.of(1).verify == pytest.approx(0.2, rel=0.1)


def test_ranks_take_the_first_ones_times(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or they would verify different drafts."""
    first, second = MeasuredCost(), MeasuredCost()
    sent: list[Any] = []

    def send(model: Any) -> Any:
        sent.append(model)
        return model

    group = SimpleNamespace(broadcast_object=send)
    monkeypatch.setattr(step_times, "get_tp_group", lambda: group)
    run(first, clock, 4, 8 * WINDOW)
    group.broadcast_object = lambda model: sent.pop(0)
    run(second, clock, 1, 8 * WINDOW)
    assert first.of(1) == second.of(1)
    assert first.of(1).verify == pytest.approx(0.2, rel=0.1)
