"""Fault runs with pod groups: nothing is forgotten or bound twice, and no gang is bound in part."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.groups import GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import run_virtual
from bayplan.testing.builders import make_node, make_pod
from tests.effort import LONG_RUN
from tests.faults.groups import RELEASE, BoundGangs, waiting_groups
from tests.faults.life import play


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(6), id="some seeds"),
        *(
            pytest.param(range(first, first + 8), marks=LONG_RUN, id=f"seeds {first} to {first + 7}")
            for first in range(6, 38, 8)
        ),
    ],
)
def test_lives_with_groups(seeds: range) -> None:
    found = {seed: play(seed, with_groups=True).problems for seed in seeds}
    assert {seed: problems for seed, problems in found.items() if problems} == {}


def test_lives_with_groups_are_hard_enough() -> None:
    """Between them the seeds see crashes, bindings, scheduled groups and changes of minCount."""
    reports = [play(seed, with_groups=True) for seed in (1, 4)]
    lines = [line for report in reports for line in report.trace]
    for text in ("the scheduler dies", "PodGroup g", "has a new status", "is bound to", "is evicted"):
        assert any(text in line for line in lines), text


def member(name: str) -> Pod:
    pod = make_pod(name, cpu=1)
    return replace(pod, spec=replace(pod.spec, scheduling_group=PodSchedulingGroup(pod_group_name="g")))


def store_with(*names: str, min_count: int = 2) -> MemoryStore:
    store = MemoryStore()
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=min_count))
    meta = ObjectMeta(name="g", namespace="default")
    store.create(make_node("n", cpu=4))
    store.create(PodGroup(metadata=meta, spec=PodGroupSpec(scheduling_policy=policy)))
    for name in names:
        store.create(member(name))
    return store


@pytest.mark.parametrize(
    ("names", "min_count", "found"),
    [
        pytest.param(("a", "b"), 2, ["group g needs 2 and has 0, but 2 more would fit"], id="it would fit"),
        pytest.param(("a", "b"), 3, [], id="too few members"),
        pytest.param(tuple("abcdef"), 5, [], id="too little room"),
    ],
)
def test_a_group_that_waits_although_it_fits_is_found(
    names: tuple[str, ...], min_count: int, found: list[str]
) -> None:
    store = store_with(*names, min_count=min_count)

    async def check() -> list[str]:
        scheduler = Scheduler(MemoryCluster(store), release=RELEASE)
        return [one.text.partition(";")[0] for one in waiting_groups(scheduler, store)]

    assert run_virtual(check()) == found


def test_a_gang_that_is_bound_in_part_is_found() -> None:
    store = store_with("a", "b")

    async def check() -> list[str]:
        scheduler = Scheduler(MemoryCluster(store), release=RELEASE)
        gangs = BoundGangs(store)
        gangs.bound(scheduler, store.get(Pod, "a", "default"))
        return gangs.problems

    assert run_virtual(check()) == ["pod default/a is bound, but its group g has 0 of 2 members"]
