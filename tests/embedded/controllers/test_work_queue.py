"""The queue of the controllers: each key once, delayed keys later, failed keys with a growing delay."""

from __future__ import annotations

import pytest

from bayplan.embedded.controllers.running import FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, WorkQueue


def drained(queue: WorkQueue[str], now: float) -> list[str]:
    found = []
    while (item := queue.pop(now)) is not None:
        found.append(item)
    return found


@pytest.mark.parametrize(
    ("steps", "now", "expected"),
    [
        pytest.param([("b", None), ("a", None)], 0, ["b", "a"], id="first added, first taken"),
        pytest.param([("a", None), ("b", None), ("a", None)], 0, ["a", "b"], id="twice is once"),
        pytest.param([("a", 5.0), ("b", None)], 4, ["b"], id="not before it is due"),
        pytest.param([("a", 5.0), ("b", 4.0)], 5, ["b", "a"], id="what is due first is taken first"),
        pytest.param([("a", 5.0), ("a", 3.0)], 3, ["a"], id="of two times the earlier one counts"),
        pytest.param([("a", 3.0), ("a", 5.0)], 3, ["a"], id="a later time changes nothing"),
        pytest.param([("a", 3.0), ("a", None)], 9, ["a"], id="being taken now replaces the one later"),
    ],
)
def test_keys_are_taken_in_order_of_time(
    steps: list[tuple[str, float | None]], now: float, expected: list[str]
) -> None:
    queue: WorkQueue[str] = WorkQueue()
    for item, due in steps:
        if due is None:
            queue.add(item)
        else:
            queue.add_at(item, due)
    assert drained(queue, now) == expected


def test_times_of_taken_keys_are_dropped() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_at("a", 5.0)
    queue.add("a")
    assert drained(queue, 1.0) == ["a"]
    assert queue.next_due() is None


def test_failures_are_tried_again_ever_more_rarely_until_one_succeeds() -> None:
    queue: WorkQueue[str] = WorkQueue()
    delays = [queue.retry("a", 0.0) for _ in range(25)]
    queue.succeeded("a")
    assert delays[:3] == [FIRST_RETRY_SECONDS, 2 * FIRST_RETRY_SECONDS, 4 * FIRST_RETRY_SECONDS]
    assert delays[-1] == MAX_RETRY_SECONDS
    assert queue.retry("a", 0.0) == FIRST_RETRY_SECONDS


def test_what_is_ready_is_known() -> None:
    queue: WorkQueue[str] = WorkQueue()
    assert not queue.has_ready(0.0)
    queue.add_at("later", 5.0)
    assert not queue.has_ready(4.0)
    assert queue.has_ready(5.0)
    assert queue.pop(5.0) == "later"
    assert not queue.has_ready(5.0)
