"""Lives with capacity queues: nothing is lost, and usage equals a recount in the end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.config import BayplanConfiguration, QueuesConfiguration, default_config
from bayplan.queues import tree
from bayplan.scheduler.capacity import connect_queues
from bayplan.scheduler.loop import Scheduler
from tests.effort import LONG_RUN
from tests.faults import life

SETTINGS = QueuesConfiguration()
CONFIG = replace(default_config(), bayplan=BayplanConfiguration(queues=SETTINGS))


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(100, 104), id="some seeds"),
        pytest.param(range(104, 160), marks=LONG_RUN, id="more seeds"),
    ],
)
def test_nothing_is_lost(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    schedulers: list[Scheduler] = []

    def make(api: Any, **options: Any) -> Scheduler:
        schedulers.append(Scheduler(api, CONFIG, **options))
        return schedulers[-1]

    monkeypatch.setattr(life, "Scheduler", make)
    bindings = 0
    for seed in seeds:
        report = life.play(seed)
        # The check decides with DefaultPreemption, which queues replace: priority alone evicts no pod.
        assert [problem for problem in report.problems if "could preempt" not in problem] == [], seed
        bindings += report.bindings
        last = schedulers[-1]
        assert last.queues is not None
        counted = {
            queue.path: (queue.used, queue.running) for queue in last.queues.partition.root.downwards()
        }
        again = connect_queues(SETTINGS, last.core)[0].partition
        for queue in again.root.downwards():
            assert counted[queue.path] == (queue.used, queue.running), seed
        waiting = [each for each in last.context.queue.pending_pods() if isinstance(each, Pod)]
        assert len(last.queues) <= len(waiting)
        assert all(tree.room(queue) is None for queue in again.root.downwards())
    assert bindings
