"""Searches have a limit for the node and one for the attempt, in time or in steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest

from bayplan.dra.allocator import Allocator
from bayplan.dra.budget import STEPS_PER_SECOND, ElapsedTime, SearchBudget, SearchClock, StepClock
from bayplan.dra.state import DeviceState
from bayplan.errors import AllocationLimitError
from bayplan.testing.builders import make_device_class, make_device_request, make_node, make_resource_claim

from .hard import hard_claim, hard_slices

TIMED_OUT = "filter operation aborted: context deadline exceeded"


def allocator(budget: SearchBudget) -> Allocator:
    state = DeviceState()
    for item in hard_slices("n"):
        state.put_slice(item)
    return Allocator(state.inventory, state.allocated, {"gpu": make_device_class("gpu")}.get, budget=budget)


def used(clock: SearchClock) -> float:
    return clock.advance(0)


def test_a_search_that_exceeds_its_steps_is_cut_off() -> None:
    clock = StepClock()
    with pytest.raises(AllocationLimitError, match=TIMED_OUT):
        allocator(SearchBudget(clock, 0.1)).allocate(make_node("n"), [hard_claim()])
    assert 0.02 < used(clock) < 0.03, "an attempt has a fifth of the limit of a node"


def test_steps_do_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same search ends after the same steps, however fast the time passes."""
    ends = []
    for seconds in (0.0, 1000.0):
        now: Iterator[float] = count(step=seconds)
        for name in ("monotonic", "time", "perf_counter"):
            monkeypatch.setattr(time, name, lambda now=now: next(now))
        clock = StepClock()
        with pytest.raises(AllocationLimitError):
            allocator(SearchBudget(clock, 0.1)).allocate(make_node("n"), [hard_claim()])
        ends.append(used(clock))
    monkeypatch.undo()
    assert ends[0] == ends[1] > 0


def test_a_live_scheduler_measures_time() -> None:
    hundredths = count()
    with pytest.raises(AllocationLimitError, match=TIMED_OUT):
        allocator(SearchBudget(ElapsedTime(lambda: next(hundredths) / 100), 50.0)).allocate(
            make_node("n"), [hard_claim()]
        )
    assert next(hundredths) == 28, "read at the start, until a quarter of a second has passed, and at the end"


TICK = 1 / 64
"""Seconds; sums of it are exact."""


class SetTime:
    """A clock that a test sets."""

    is_live = True
    now = 0.0

    def advance(self, steps: int) -> float:
        return self.now


def seconds_of_attempt(budget: SearchBudget, clock: SetTime) -> float:
    """How long an attempt may search, which searches until it is cut off."""
    budget.start_attempt()
    budget.start_search()
    started = clock.now
    while True:
        clock.now += TICK
        try:
            budget.check(0)
        except AllocationLimitError:
            budget.end_search(0)
            assert budget.is_cut_off
            return clock.now - started - TICK


def test_searches_without_a_result_leave_most_of_the_time_for_other_pods() -> None:
    clock = SetTime()
    budget = SearchBudget(clock, 10.0)
    assert [seconds_of_attempt(budget, clock) for _ in range(6)] == [0.25] * 5 + [TICK]
    clock.now += 60
    assert seconds_of_attempt(budget, clock) == 0.25, "a minute later they may search again"
    searched, started = 0.0, clock.now
    while clock.now < started + 1000:
        searched += seconds_of_attempt(budget, clock)
        clock.now += 0.1
    assert 0.1 < searched / 1000 < 0.4


def test_a_search_with_a_result_is_no_debt() -> None:
    clock = SetTime()
    budget = SearchBudget(clock, 10.0)
    for _ in range(100):
        budget.start_attempt()
        budget.start_search()
        clock.now += 0.2
        budget.check(0)
        budget.end_search(0)
        assert not budget.is_used_up
        assert not budget.is_cut_off


def test_an_attempt_that_many_nodes_use_up_is_not_cut_off() -> None:
    """The next one continues with the other nodes."""
    clock = SetTime()
    budget = SearchBudget(clock, 10.0)
    budget.start_attempt()
    for _ in range(4):
        budget.start_search()
        clock.now += 0.06
        budget.end_search(0)
    budget.start_search()
    clock.now += 0.06
    with pytest.raises(AllocationLimitError):
        budget.check(0)
    assert not budget.is_cut_off


def test_all_searches_of_an_attempt_share_its_budget() -> None:
    budget = SearchBudget(StepClock(), 5.0)
    for _ in range(2):
        budget.start_attempt()
        for _ in range(2):
            budget.start_search()
            budget.check(STEPS_PER_SECOND * 2 // 5)
            budget.end_search(STEPS_PER_SECOND * 2 // 5)
            assert not budget.is_used_up
        budget.start_search()
        with pytest.raises(AllocationLimitError):
            budget.check(STEPS_PER_SECOND // 4)
        budget.end_search(STEPS_PER_SECOND // 4)
        assert budget.is_used_up


def test_without_a_limit_a_search_ends_by_itself() -> None:
    budget = SearchBudget(StepClock())
    claim = make_resource_claim("c", *(make_device_request(f"r{i}") for i in range(3)))
    assert isinstance(allocator(budget).allocate(make_node("n"), [claim]), tuple)
    assert not budget.is_used_up
