"""Caching from one pod to the next changes nothing but the time.

One core caches filter results, scores, counts and dry runs, the other computes everything for each pod. Fed
with the same events, both decide the same: node, message, every node's status, victims.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayplan.scheduler.core import SchedulingCore
from tests.effort import examples

from .generated import FLAVORS, lives
from .life import Life


@pytest.mark.parametrize("flavor", FLAVORS)
@settings(max_examples=examples(50), derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_keeping_changes_no_decision(flavor: str, data: st.DataObject) -> None:
    chosen = FLAVORS[flavor]
    both = Life(*(SchedulingCore(cache=cache, plugins=chosen.plugins) for cache in (True, False)))
    for event in data.draw(lives(chosen)):
        results = both.play(event)
        if results:
            cached, uncached = results
            assert cached == uncached, event
