"""What is kept from one pod to the next changes nothing but the time it takes.

One core keeps verdicts, scores, counts and dry runs, the other computes everything anew for each pod. Fed
with the same events, both decide the same: node, message, every node's status, victims.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from bayplan.scheduler.core import SchedulingCore

from .generated import Event, lives
from .life import Life


@settings(max_examples=100, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(life=lives())
def test_keeping_changes_no_decision(life: list[Event]) -> None:
    both = Life(SchedulingCore(keep=True), SchedulingCore(keep=False))
    for event in life:
        results = both.play(event)
        if results:
            kept, anew = results
            if kept != anew:
                pytest.fail(f"after {event}\nkept {kept}\nanew {anew}")
