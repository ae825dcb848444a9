"""All pods of a group run or none, and what a group waits for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.workloads import POD_GROUP_LABEL
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.library.coscheduling import (
    INCOMPLETE,
    MAX_BACKOFF_SECONDS,
    NOT_FOUND,
    Coscheduling,
)
from bayplan.scheduler.core import SchedulingCore
from bayplan.simulate.virtual_time import quiescent, run_virtual
from bayplan.testing.builders import make_node, make_pod

from .gangs import Gangs, after, gangs, make_group, make_member, make_members, virtual


@pytest.mark.parametrize(
    ("wanted", "pods", "room", "bound", "of_others"),
    [
        pytest.param(3, 3, 4, 3, 1, id="all are bound when all fit"),
        pytest.param(3, 2, 4, 0, 1, id="none is tried while members are missing"),
        pytest.param(3, 3, 2, 0, 1, id="none is bound when not all fit, and the room is given back"),
        pytest.param(2, 4, 3, 3, 0, id="more than are needed are bound as they fit"),
        pytest.param(2, 4, 2, 2, 0, id="the least number is enough"),
        pytest.param(0, 1, 4, 1, 1, id="a group without a number requires nothing"),
    ],
)
def test_all_or_none(wanted: int, pods: int, room: int, bound: int, of_others: int) -> None:
    """The other pod is created last and of lower priority: it gets what the group leaves."""

    async def main() -> None:
        async with gangs(make_node("n", cpu=room), make_group(wanted=wanted)) as cluster:
            cluster.add(*make_members(pods, priority=1), make_pod("other", cpu="1"))
            await quiescent()
            assert (cluster.bound(), cluster.held) == (bound, 0)
            assert bool(cluster.pod("other").spec.node_name) == bool(of_others)

    run_virtual(main())


@virtual
async def test_pods_without_a_group_are_left_alone() -> None:
    async with gangs(make_node("n"), make_pod("p")) as cluster:
        assert cluster.pod("p").spec.node_name == "n"


@virtual
async def test_groups_of_other_namespaces_are_others() -> None:
    elsewhere = replace(make_group(wanted=1), metadata=ObjectMeta(name="g", namespace="elsewhere"))
    async with gangs(make_node("n"), elsewhere, make_member(0)) as cluster:
        assert cluster.bound() == 0


@virtual
async def test_a_pod_waits_for_its_group_to_be_made() -> None:
    async with gangs(make_node("n"), *make_members(3)) as cluster:
        assert (cluster.bound(), cluster.attempts) == (0, 0)
        cluster.add(make_group())
        await quiescent()
        assert cluster.bound() == 3


@virtual
async def test_the_last_member_brings_the_others_in() -> None:
    """They have not cost a single attempt until then."""
    async with gangs(make_node("n"), make_group(), *make_members(2)) as cluster:
        assert cluster.attempts == 0
        cluster.add(make_member(2))
        await quiescent()
        assert (cluster.bound(), cluster.attempts) == (3, 3)


@virtual
async def test_a_gated_member_does_not_count_before_its_gate_is_gone() -> None:
    gated = make_member(2, gates=["quota"])
    async with gangs(make_node("n"), make_group(), *make_members(2), gated) as cluster:
        assert cluster.attempts == 0
        pod = cluster.pod("g-2")
        cluster.store.update(replace(pod, spec=replace(pod.spec, scheduling_gates=())))
        await quiescent()
        assert cluster.bound() == 3


@virtual
async def test_a_pod_of_another_scheduler_counts_once_it_is_on_a_node() -> None:
    foreign = make_member(2, scheduler_name="other")
    async with gangs(make_node("n"), make_group(wanted=2), make_member(0), foreign) as cluster:
        assert cluster.attempts == 0
        cluster.store.bind("g-2", "default", "n")
        cluster.add(make_member(1))
        await quiescent()
        assert (cluster.bound(), cluster.attempts) == (3, 2)


def bound_by_others(cluster: Gangs) -> None:
    cluster.store.bind("g-1", "default", "n")


def put_on_a_node(cluster: Gangs) -> None:
    cluster.add(make_member(2, node="n"))


def given_the_label(cluster: Gangs) -> None:
    pod = cluster.pod("runs")
    labelled = replace(pod.metadata, labels={POD_GROUP_LABEL: "g"})
    cluster.store.update(replace(pod, metadata=labelled))


@pytest.mark.parametrize(
    "completed",
    [
        pytest.param(bound_by_others, id="another scheduler binds one"),
        pytest.param(put_on_a_node, id="one is created on a node"),
        pytest.param(given_the_label, id="one that runs joins the group"),
    ],
)
def test_a_group_that_is_completed_by_others_is_tried_soon(completed: Callable[[Gangs], None]) -> None:
    async def main() -> None:
        foreign = make_member(1, scheduler_name="other")
        runs = make_pod("runs", cpu="1", node="n")
        async with gangs(make_node("n"), make_group(wanted=2), make_member(0), foreign, runs) as cluster:
            await after(60)
            assert cluster.attempts == 0
            completed(cluster)
            await after(MAX_BACKOFF_SECONDS)
            assert cluster.bound() == 2

    run_virtual(main())


@virtual
async def test_a_group_that_requires_less_is_tried_again() -> None:
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(3)) as cluster:
        assert cluster.bound() == 0
        cluster.store.update(make_group(wanted=2))
        await after(2)
        assert cluster.bound() == 2


@virtual
async def test_members_on_nodes_count_after_a_restart() -> None:
    """A scheduler that died while it bound a group left two of three behind. They are listed last."""
    on_node = [make_member(number, node="n") for number in (1, 2)]
    async with gangs(make_node("n"), make_group(), make_member(0), *on_node) as cluster:
        assert cluster.bound() == 3


@virtual
async def test_a_replacement_joins_a_running_group() -> None:
    async with gangs(make_node("n"), make_group(), *make_members(3)) as cluster:
        cluster.remove("g-0")
        cluster.add(make_member(3))
        await quiescent()
        assert cluster.bound() == 3


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        pytest.param([], NOT_FOUND.format(name="g"), id="no such group"),
        pytest.param([make_group(wanted=1)], "", id="nothing"),
    ],
)
def test_a_core_that_only_decides(objects: list[Object], reason: str) -> None:
    """It has no waiting pods, and so cannot report that members are missing."""
    core = SchedulingCore(plugins=[*BUILTIN_PLUGINS, Coscheduling])
    core.load([make_node("n"), *objects])
    assert reason in core.decide(make_member(0)).message


@virtual
async def test_what_people_are_reported() -> None:
    async with gangs(make_node("n", cpu=2), make_group(), *make_members(3)) as cluster:
        reasons = {cluster.reason(f"g-{number}").split(": ", 1)[1] for number in range(3)}
        assert 'pod group "g" cannot be completed now' in "".join(reasons)
        assert "Insufficient cpu" in "".join(reasons)


@virtual
async def test_a_member_that_is_deleted_before_it_is_tried() -> None:
    """PreFilter checks again: the group was complete when the pods entered the queue."""
    async with gangs(make_group(), *make_members(3)) as cluster:
        cluster.remove("g-0")
        cluster.add(make_node("n"))
        await quiescent()
        assert cluster.reason("g-1").startswith("no nodes available")
        await after(15)
        assert (cluster.bound(), cluster.held) == (0, 0)
        assert INCOMPLETE.format(name="g", count=2, wanted=3) in cluster.reason("g-1")
