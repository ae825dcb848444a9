"""PrioritySort: priority first, then the time in the queue."""

from __future__ import annotations

import pytest

from bayplan.plugins.priority_sort import PrioritySort
from bayplan.testing.builders import make_pod
from bayplan.testing.calling import make_plugin

from .evaluating import points


def test_its_points_are_upstreams() -> None:
    assert points(PrioritySort) == {"QueueSort"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param((10, 5.0), (1, 1.0), id="the higher priority is first, however late"),
        pytest.param((10, 1.0), (10, 1.5), id="of equals the earlier is first"),
        pytest.param((1, 5.0), (None, 1.0), id="no priority counts as 0"),
        pytest.param((None, 5.0), (-1, 1.0), id="no priority beats a negative one"),
    ],
)
def test_order(first: tuple[int | None, float], second: tuple[int | None, float]) -> None:
    keys = [
        make_plugin(PrioritySort).sort_key(make_pod(priority=p), timestamp)
        for p, timestamp in (first, second)
    ]
    assert keys[0] < keys[1]
