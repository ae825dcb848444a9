"""Lives with capacity queues: nothing is lost, limits hold, and usage equals a recount."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.config import BayplanConfiguration, QueuesConfiguration, default_config
from bayplan.queues import tree
from bayplan.queues.active import CapacityQueues
from bayplan.queues.records import PodGroupOf
from bayplan.scheduler import capacity
from bayplan.scheduler.capacity import connect_queues
from bayplan.scheduler.loop import Scheduler
from bayplan.state.pods import PodInfo
from tests.effort import LONG_RUN
from tests.faults import life
from tests.faults.queues import WORLDS

SETTINGS = QueuesConfiguration()
CONFIG = replace(default_config(), bayplan=BayplanConfiguration(queues=SETTINGS))


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(100, 102), id="some seeds"),
        *(
            pytest.param(range(first, first + 8), marks=LONG_RUN, id=f"seeds {first} to {first + 7}")
            for first in (102, 110)
        ),
    ],
)
def test_nothing_is_lost(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    schedulers: list[Scheduler] = []

    def make(api: Any, config: None, **options: Any) -> Scheduler:
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


@pytest.mark.parametrize("dialect", sorted(WORLDS))
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(2), id="some seeds"),
        *(
            pytest.param(range(first, first + 8), marks=LONG_RUN, id=f"seeds {first} to {first + 7}")
            for first in (2, 10)
        ),
    ],
)
def test_lives_with_limits(dialect: str, seeds: range) -> None:
    found = {seed: life.play(seed, queues=dialect).problems for seed in seeds}
    assert {seed: problems for seed, problems in found.items() if problems} == {}


class Careless(CapacityQueues):
    """A mistake: an assumed pod is not counted."""

    def charge(self, pod: Pod, node_name: str, info: PodInfo | None = None) -> None:
        if pod.spec.node_name:
            super().charge(pod, node_name, info)


class Generous(CapacityQueues):
    """A mistake: everything has room."""

    def _blocking(self, *_: object) -> None:
        return None


class Forgetful(CapacityQueues):
    """A mistake: what was freed is not told to those that wait."""

    def _freed(self, group: PodGroupOf) -> None:
        pass


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        pytest.param(Careless, "counts", id="assumed pods are not counted"),
        pytest.param(Generous, "gets a node", id="limits are not checked"),
        pytest.param(Forgetful, "but waits", id="nobody is woken"),
    ],
)
def test_a_mistake_is_found(
    mistake: type[CapacityQueues], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "CapacityQueues", mistake)
    found = (life.play(seed, queues="yunikorn").problems for seed in range(20))
    assert any(text in problem for problems in found for problem in problems)
