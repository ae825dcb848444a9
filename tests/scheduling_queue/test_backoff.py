"""How long a pod backs off, and which pod is done first."""

from __future__ import annotations

import pytest

from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.scheduling_queue.waiting import BackoffQueue
from bayplan.testing.builders import make_pod

from .queues import names


def failed(
    name: str = "p",
    *,
    at: float = 0.0,
    rejections: int = 0,
    errors: int = 0,
    priority: int = 0,
    sequence: int = 0,
) -> QueuedPod:
    """A pod that came back from its last attempt at a time; without rejections, from errors."""
    info = QueuedPod(make_pod(name), f"default/{name}", at, sequence)
    info.unschedulable_count = rejections
    info.consecutive_errors_count = errors
    info.unschedulable_plugins = frozenset() if errors else frozenset({"Fit"})
    info.sort_key = -priority, at
    return info


@pytest.mark.parametrize(
    ("initial", "max_seconds", "expected"),
    [
        pytest.param(1, 10, [0, 1, 2, 4, 8, 10, 10], id="doubles from one second and stops at ten"),
        pytest.param(3, 10, [0, 3, 6, 10, 10], id="stops at the limit and not beyond it"),
        pytest.param(1, 16, [0, 1, 2, 4, 8, 16, 16], id="reaches a limit that is a power of two"),
        pytest.param(
            5e-9, 11e-9, [0, 5e-9, 10e-9, 11e-9], id="doubles as long as that does not reach the limit"
        ),
        pytest.param(5, 5, [0, 5, 5], id="is constant where the first wait is the longest"),
        pytest.param(1, 0, [0, 0, 0], id="is off where the longest wait is zero"),
    ],
)
def test_duration(initial: float, max_seconds: float, expected: list[float]) -> None:
    queue = BackoffQueue(initial, max_seconds)
    assert [queue.duration(failures) for failures in range(len(expected))] == expected


@pytest.mark.parametrize(
    ("initial", "max_seconds", "expected"),
    [
        pytest.param(1, 10, [0, 4, 8, 16, 32, 60, 60], id="four times as long, up to six times the limit"),
        pytest.param(5, 5, [0, 20, 30, 30], id="also where it is constant otherwise"),
        pytest.param(1, 0, [0, 0, 0], id="is off where the longest wait is zero"),
    ],
)
def test_duration_after_an_attempt_that_was_cut_off(
    initial: float, max_seconds: float, expected: list[float]
) -> None:
    queue = BackoffQueue(initial, max_seconds)
    assert [queue.duration(count, is_cut_off=True) for count in range(len(expected))] == expected


def test_the_last_attempt_decides_whether_the_backoff_is_longer() -> None:
    info = failed(at=7.0, errors=1)
    info.is_cut_off = True
    assert BackoffQueue().expiration(info) == 11
    info.is_cut_off, info.backoff_expiration = False, None
    assert BackoffQueue().expiration(info) == 8


def test_a_thousand_failures_still_back_off_for_the_longest_time() -> None:
    assert BackoffQueue().duration(1000) == 10


@pytest.mark.parametrize(
    ("info", "windows", "expected"),
    [
        pytest.param(failed(at=7.9, rejections=1), True, 8, id="is cut to the whole second"),
        pytest.param(failed(at=7.25, rejections=1), False, 8.25, id="is exact without windows"),
        pytest.param(failed(at=7.0, rejections=3), True, 11, id="follows all rejections"),
        pytest.param(failed(at=7.0, rejections=3, errors=1), True, 8, id="errors count for themselves"),
        pytest.param(failed(at=7.0), True, float("-inf"), id="a pod that never failed does not back off"),
    ],
)
def test_expiration(info: QueuedPod, windows: bool, expected: float) -> None:
    assert BackoffQueue(windows=windows).expiration(info) == expected


def test_without_a_maximum_no_pod_backs_off() -> None:
    assert not BackoffQueue(1, 0).is_backing_off(failed(rejections=3), 0.0)


@pytest.mark.parametrize(
    ("windows", "now", "expected"),
    [
        pytest.param(True, 0.5, True, id="before its second"),
        pytest.param(True, 1.0, True, id="when its second begins"),
        pytest.param(True, 1.99, True, id="until its second is over"),
        pytest.param(True, 2.0, False, id="no longer when the next one begins"),
        pytest.param(False, 1.5, True, id="without windows: at the very moment"),
        pytest.param(False, 1.6, False, id="without windows: no longer right after it"),
    ],
)
def test_a_pod_that_failed_at_half_past_zero_backs_off(windows: bool, now: float, expected: bool) -> None:
    queue = BackoffQueue(windows=windows)
    assert queue.is_backing_off(failed(at=0.5, rejections=1), now) is expected


def test_rejected_pods_are_ordered_by_second_and_then_by_priority() -> None:
    queue = BackoffQueue()
    for info in (
        failed("late", at=3.0, rejections=1, priority=9),
        failed("low", at=0.1, rejections=1, sequence=1),
        failed("high", at=0.9, rejections=1, priority=1, sequence=2),
        failed("also low", at=0.1, rejections=1, sequence=0),
    ):
        queue.push(info)
    assert names(queue.rejected) == ["high", "also low", "low", "late"]


def test_pods_after_errors_are_ordered_by_time_alone() -> None:
    queue = BackoffQueue()
    for info in (
        failed("second", at=0.5, errors=1, priority=9, sequence=1),
        failed("first", at=0.1, errors=1, sequence=0),
        failed("third", at=1.1, errors=1, priority=99, sequence=2),
    ):
        queue.push(info)
    assert names(queue.errored) == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("plugins", "pending", "is_rejected"),
    [
        pytest.param({"Fit"}, set(), True, id="a rejected pod may be popped early"),
        pytest.param({"Fit"}, {"Fit"}, True, id="so may one with a pending plugin"),
        pytest.param(set(), set(), False, id="a pod without rejectors waits to the end"),
    ],
)
def test_which_heap(plugins: set[str], pending: set[str], is_rejected: bool) -> None:
    queue, info = BackoffQueue(), failed(rejections=1)
    info.unschedulable_plugins, info.pending_plugins = frozenset(plugins), frozenset(pending)
    queue.push(info)
    assert info.sub_queue is (queue.rejected if is_rejected else queue.errored)


@pytest.mark.parametrize(
    ("now", "completed"),
    [
        pytest.param(1.9, [], id="none in the second in which the first wait ends"),
        pytest.param(2.0, ["a", "x"], id="after rejections and errors when it is over"),
        pytest.param(9.0, ["a", "b", "x"], id="all when all waits are over"),
    ],
)
def test_completed(now: float, completed: list[str]) -> None:
    queue = BackoffQueue()
    queue.push(failed("b", at=1.0, rejections=3))
    queue.push(failed("a", at=0.0, rejections=1))
    queue.push(failed("x", at=0.0, errors=1))
    assert names(queue.pop_completed(now)) == completed
    assert len(queue) == 3 - len(completed)


def test_the_earliest_expiration_is_that_of_either_heap() -> None:
    queue = BackoffQueue()
    assert queue.earliest_expiration() is None
    queue.push(failed("a", at=5.0, rejections=1))
    queue.push(failed("x", at=2.0, errors=1))
    assert queue.earliest_expiration() == 3.0
