"""Pods as columns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from bayplan.plugin import Cluster
from bayplan.state.pods import NOT_STARTED, start_nanos
from bayplan.testing.builders import make_pod


@pytest.mark.parametrize(
    ("started", "nanos"),
    [
        (None, NOT_STARTED),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC), 1_000_005_000),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), -1_000_000_000),
        (datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC), 1767225600_123456_000),
    ],
)
def test_when_a_pod_started(started: datetime | None, nanos: int) -> None:
    """Exactly: floats would lose the last digits."""
    assert start_nanos(make_pod(started=started)) == nanos


def test_a_slot_that_is_used_again_holds_nothing_of_the_pod_before() -> None:
    cluster = Cluster()
    gpu = "example.com/gpu"
    old = make_pod(
        "old", requests={gpu: 2}, priority=9, labels={"a": "b"}, deleted=datetime(2026, 1, 1, tzinfo=UTC)
    )
    slot = cluster.add_pod(old, "n")
    cluster.remove_pod(old.uid)
    assert cluster.add_pod(make_pod("new", cpu=1), "n") == slot
    pods = cluster.pods
    assert (pods.requests(gpu).cell[slot], pods.requests("cpu").cell[slot]) == (0, 1000)
    assert (pods.priority.cell[slot], pods.terminating.cell[slot]) == (0, False)


def test_a_resource_that_is_seen_late() -> None:
    """Pods that came before it take none of it."""
    cluster = Cluster()
    first = cluster.add_pod(make_pod("first", cpu=1), "n")
    second = cluster.add_pod(make_pod("second", requests={"example.com/gpu": 2}), "n")
    column = cluster.pods.requests("example.com/gpu")
    assert (column.cell[first], column.cell[second]) == (0, 2)


def test_assigned_and_nominated_pods_are_distinguished() -> None:
    cluster = Cluster()
    cluster.add_pod(make_pod("there"), "n")
    cluster.nominate(make_pod("expected"), "n")
    assert cluster.pods.assigned.read.tolist() == [True, False]
    assert cluster.pods.nominated.read.tolist() == [False, True]
