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
    seconds = count()
    with pytest.raises(AllocationLimitError, match=TIMED_OUT):
        allocator(SearchBudget(ElapsedTime(lambda: float(next(seconds))), 50.0)).allocate(
            make_node("n"), [hard_claim()]
        )
    assert next(seconds) == 13, "read at the start, until ten seconds have passed, and at the end"


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
