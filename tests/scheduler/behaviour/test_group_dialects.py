"""Groups of Coscheduling and Volcano are scheduled like pod groups of Kubernetes: all or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api import volcano
from bayplan.api.groups import GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.api.releases import V1_37
from bayplan.api.workloads import POD_GROUP_LABEL, PriorityClass
from bayplan.api.workloads import PodGroup as CoschedulingPodGroup
from bayplan.api.workloads import PodGroupSpec as CoschedulingSpec
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.config.build import build_profiles
from bayplan.errors import ConfigError, DecodeError
from bayplan.testing.builders import make_node, make_pod

from .running import World, running, virtual

RELEASE = V1_37.with_gates(V1_37.gates | {"GenericWorkload"})
META = ObjectMeta(name="g", namespace="default")


def config(*dialects: str) -> KubeSchedulerConfiguration:
    text = f"apiVersion: bayplan/v1\nkind: BayplanConfiguration\npodGroups: [{', '.join(dialects)}]\n"
    return parse_config(text, release=RELEASE)


def labelled(name: str, **fields: Any) -> Pod:
    return make_pod(name, labels={POD_GROUP_LABEL: "g"}, **fields)


def annotated(name: str, task: str = "", **fields: Any) -> Pod:
    pod = make_pod(name, **fields)
    annotations = {volcano.GROUP_ANNOTATION: "g", **({volcano.TASK_ANNOTATION: task} if task else {})}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def coscheduling(min_member: int) -> CoschedulingPodGroup:
    return CoschedulingPodGroup(metadata=META, spec=CoschedulingSpec(min_member=min_member))


def volcano_group(min_member: int, **spec: Any) -> volcano.PodGroup:
    return volcano.PodGroup(metadata=META, spec=volcano.PodGroupSpec(min_member=min_member, **spec))


def stored(world: World) -> volcano.PodGroup:
    return world.store.get(volcano.PodGroup, "g", "default")


@virtual
async def test_a_group_of_coscheduling_waits_for_its_members() -> None:
    async with running(config=config("coscheduling")) as world:
        await world.create(make_node("n", cpu=4), coscheduling(3), labelled("a", cpu=1), labelled("b", cpu=1))
        assert world.bound() == set()
        await world.create(labelled("c", cpu=1))
        assert world.bound() == {"a", "b", "c"}


@virtual
async def test_a_group_of_coscheduling_that_does_not_fit_takes_no_room() -> None:
    """Nothing is held at Permit: the room stays free for others."""
    async with running(config=config("coscheduling")) as world:
        await world.create(make_node("n", cpu=4), coscheduling(3))
        await world.create(*(labelled(name, cpu=2) for name in "abc"))
        assert world.bound() == set()
        reason = "pod group is unschedulable, minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
        assert world.message("a").startswith(reason)
        await world.create(make_pod("single", cpu=4))
        assert world.bound() == {"single"}
        assert world.store.get(CoschedulingPodGroup, "g", "default").metadata.resource_version == "2"


@virtual
async def test_members_may_come_before_their_group() -> None:
    async with running(config=config("coscheduling")) as world:
        await world.create(make_node("n", cpu=4), labelled("a", cpu=1), labelled("b", cpu=1))
        assert world.bound() == set()
        await world.create(coscheduling(2))
        assert world.bound() == {"a", "b"}


@virtual
async def test_the_priority_of_a_group_is_that_of_its_members() -> None:
    async with running(config=config("coscheduling")) as world:
        await world.create(make_node("n", cpu=2), make_pod("low", cpu=2, priority=1))
        await world.create(
            coscheduling(2), labelled("a", cpu=1, priority=5), labelled("b", cpu=1, priority=5)
        )
        await world.after(5)
        assert world.bound() == {"a", "b"}
        assert world.names() == ["a", "b"]


@virtual
async def test_a_member_that_failed_is_tried_again_with_its_group() -> None:
    """It is read again from the informer, which knows its label only."""
    async with running(config=config("coscheduling")) as world:
        await world.create(make_node("n", cpu=1), coscheduling(2), labelled("a", cpu=1), labelled("b", cpu=1))
        assert world.bound() == set()
        await world.create(make_node("m", cpu=1))
        await world.after(5)
        assert world.bound() == {"a", "b"}


@virtual
async def test_a_pod_that_is_labelled_later_joins_the_group() -> None:
    async with running(config=config("coscheduling")) as world:
        await world.create(coscheduling(2), labelled("a", cpu=1), make_pod("b", cpu=1))
        label = {POD_GROUP_LABEL: "g"}
        await world.update("b", lambda pod: replace(pod, metadata=replace(pod.metadata, labels=label)))
        await world.create(make_node("n", cpu=4))
        await world.after(30)
        assert world.bound() == {"a", "b"}


@virtual
async def test_a_deleted_group_no_longer_schedules_its_members() -> None:
    async with running(config=config("coscheduling")) as world:
        await world.create(coscheduling(2), labelled("a", cpu=1), labelled("b", cpu=1))
        world.store.delete(CoschedulingPodGroup, "g", "default")
        await world.create(make_node("n", cpu=4))
        await world.after(30)
        assert world.bound() == set()
        await world.delete("a")
        await world.create(coscheduling(1))
        await world.after(5)
        assert world.bound() == {"b"}


@virtual
async def test_phases_and_conditions_of_volcano() -> None:
    async with running(config=config("volcano")) as world:
        await world.create(make_node("n", cpu=3), volcano_group(2))
        assert stored(world).status.phase == "Inqueue"
        await world.create(annotated("a", cpu=2), annotated("b", cpu=2))
        status = stored(world).status
        (condition,) = status.conditions
        assert (status.phase, condition.type, condition.reason) == (
            "Inqueue",
            "Unschedulable",
            "NotEnoughResources",
        )
        assert condition.message == (
            "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; Pending: 2 "
            "Unschedulable. Origin reason is: minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, "
            "pod group preemption: No preemption victims found for incoming preemptor"
        )
        await world.create(make_node("m", cpu=3))
        await world.after(5)
        status = stored(world).status
        assert (world.bound(), status.phase) == ({"a", "b"}, "Running")
        assert {one.type: one.reason for one in status.conditions} == {
            "Unschedulable": "NotEnoughResources",
            "Scheduled": "tasks in gang are ready to be scheduled",
        }


@virtual
async def test_too_few_tasks_of_volcano_are_named() -> None:
    async with running(config=config("volcano")) as world:
        await world.create(make_node("n", cpu=8), volcano_group(3, min_task_member={"ps": 1, "worker": 2}))
        await world.create(annotated("w0", "worker", cpu=1))
        (condition,) = stored(world).status.conditions
        assert (condition.type, condition.reason) == ("Unschedulable", "NotEnoughPodsOfTask")
        assert condition.message == "Not enough valid pods of each task for gang-scheduling"
        await world.create(annotated("w1", "worker", cpu=1), annotated("ps", "ps", cpu=1))
        assert world.bound() == {"w0", "w1", "ps"}
        assert {one.type: one.reason for one in stored(world).status.conditions}["Scheduled"]


@virtual
async def test_counts_of_volcano_follow_the_members() -> None:
    async with running(config=config("volcano")) as world:
        await world.create(make_node("n", cpu=8), volcano_group(2))
        await world.create(annotated("a", cpu=1))
        status = stored(world).status
        (condition,) = status.conditions
        assert condition.reason == "NotEnoughTasks"
        assert condition.message == "Not enough valid tasks for gang-scheduling, valid: 1, min: 2"
        await world.create(annotated("b", cpu=1))
        for name in ("a", "b"):
            await world.update(name, lambda pod: replace(pod, status=replace(pod.status, phase="Running")))
        assert (stored(world).status.phase, stored(world).status.running) == ("Running", 2)
        await world.delete("a")
        assert stored(world).status.running == 1


@virtual
async def test_members_of_volcano_that_come_before_their_group_are_counted() -> None:
    """Volcano's controllers create the PodGroup of some pods after the pods."""
    async with running(config=config("volcano")) as world:
        await world.create(make_node("n", cpu=8), annotated("a", cpu=1, node="n", phase="Running"))
        await world.create(annotated("b", cpu=1))
        assert world.bound() == {"a"}
        await world.create(volcano_group(3))
        status = stored(world).status
        assert (status.phase, status.running) == ("Inqueue", 1)
        assert [one.message for one in status.conditions] == [
            "Not enough valid tasks for gang-scheduling, valid: 2, min: 3"
        ]
        await world.create(annotated("c", cpu=1))
        assert (world.bound(), stored(world).status.phase) == ({"a", "b", "c"}, "Running")


@virtual
async def test_a_changed_minimum_of_a_volcano_group_is_in_its_condition() -> None:
    async with running(config=config("volcano")) as world:
        await world.create(make_node("n", cpu=8), volcano_group(2), annotated("a", cpu=1))
        group = stored(world)
        world.store.update(replace(group, spec=replace(group.spec, min_member=3)))
        await world.after(0)
        (condition,) = stored(world).status.conditions
        assert condition.message == "Not enough valid tasks for gang-scheduling, valid: 1, min: 3"


@virtual
@pytest.mark.parametrize(
    ("running_members", "phase"), [(("a", "b"), "Unknown"), ((), "Inqueue")], ids=["running", "only bound"]
)
async def test_a_volcano_group_that_lost_a_member(running_members: tuple[str, ...], phase: str) -> None:
    """Its phase says so until another one takes the place."""
    async with running(config=config("volcano")) as world:
        await world.create(
            make_node("n", cpu=4), volcano_group(2), annotated("a", cpu=2), annotated("b", cpu=2)
        )
        for name in running_members:
            await world.update(name, lambda pod: replace(pod, status=replace(pod.status, phase="Running")))
        await world.delete("b")
        await world.create(make_pod("other", cpu=2), annotated("c", cpu=2))
        await world.after(5)
        status = stored(world).status
        reasons = {one.type: one.reason for one in status.conditions}
        assert (status.phase, reasons["Unschedulable"]) == (phase, "NotEnoughResources")
        await world.delete("other")
        await world.after(30)
        assert (world.bound(), stored(world).status.phase) == ({"a", "c"}, "Running")


@virtual
async def test_a_volcano_group_stays_running_while_an_additional_member_waits() -> None:
    async with running(config=config("volcano")) as world:
        await world.create(make_node("n", cpu=4), volcano_group(2))
        await world.create(*(annotated(name, cpu=2) for name in ("a", "b", "c")))
        await world.after(5)
        assert (len(world.bound()), stored(world).status.phase) == (2, "Running")


@virtual
async def test_a_volcano_group_has_the_priority_of_its_class() -> None:
    async with running(config=config("volcano")) as world:
        high = PriorityClass(metadata=ObjectMeta(name="high"), value=9)
        await world.create(high, make_node("n", cpu=2), make_pod("low", cpu=2, priority=1))
        await world.create(volcano_group(1, priority_class_name="high"), annotated("a", cpu=1, priority=9))
        await world.after(5)
        assert world.bound() == {"a"}


@virtual
async def test_every_task_of_a_volcano_group_gets_its_minimum() -> None:
    """Two workers would reach minMember, but without the master they are not bound."""
    async with running(config=config("volcano")) as world:
        group = volcano_group(2, min_task_member={"master": 1, "worker": 1})
        await world.create(make_node("n", cpu=2), group)
        await world.create(*(annotated(name, "worker", cpu=1) for name in ("w1", "w2")))
        assert world.bound() == set()
        await world.create(annotated("m", "master", cpu=1))
        assert world.bound() == set()
        await world.create(make_node("m", cpu=1))
        await world.after(5)
        assert world.bound() == {"w1", "w2", "m"}


@virtual
async def test_minima_of_tasks_above_min_member_do_not_count() -> None:
    """Volcano's controller writes all replicas of a task as its minimum: minMember is what counts then."""
    async with running(config=config("volcano")) as world:
        await world.create(make_node("n", cpu=2), volcano_group(2, min_task_member={"w": 3}))
        await world.create(*(annotated(name, "w", cpu=1) for name in ("w0", "w1", "w2")))
        assert len(world.bound()) == 2


@virtual
async def test_fields_that_are_not_used_are_named_in_an_event() -> None:
    async with running(config=config("volcano")) as world:
        group = volcano_group(1, network_topology={"mode": "hard"}, sub_group_policy=({"name": "a"},))
        await world.create(make_node("n"), group)
        assert world.events("g") == [
            ("NotSupported", "Not used by the scheduler: networkTopology, subGroupPolicy")
        ]


@virtual
async def test_dialects_side_by_side() -> None:
    async with running(config=config("kubernetes", "coscheduling", "volcano")) as world:
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=1))
        own = PodGroup(
            metadata=ObjectMeta(name="own", namespace="default"), spec=PodGroupSpec(scheduling_policy=policy)
        )
        member = make_pod("k")
        named = PodSchedulingGroup(pod_group_name="own")
        member = replace(member, spec=replace(member.spec, scheduling_group=named))
        other = volcano_group(1)
        other = replace(other, metadata=replace(other.metadata, name="v"))
        pod = annotated("v")
        pod = replace(pod, metadata=replace(pod.metadata, annotations={volcano.GROUP_ANNOTATION: "v"}))
        await world.create(make_node("n"), own, coscheduling(1), other, member, labelled("c"), pod)
        assert world.bound() == {"k", "c", "v"}


@virtual
async def test_without_the_dialect_the_label_means_nothing() -> None:
    async with running(config=config("kubernetes")) as world:
        await world.create(make_node("n"), coscheduling(3), labelled("a"))
        assert world.bound() == {"a"}


def test_dialects_need_the_gate() -> None:
    text = "apiVersion: bayplan/v1\nkind: BayplanConfiguration\npodGroups: [volcano]\n"
    with pytest.raises(ConfigError, match=r"podGroups .* needs --feature-gates=GenericWorkload=true"):
        build_profiles(parse_config(text))


def test_an_unknown_dialect_is_an_error() -> None:
    with pytest.raises(DecodeError, match="podGroups"):
        config("slurm")


@pytest.mark.parametrize(
    ("cpu", "priority", "message"),
    [
        pytest.param("4", 0, "", id="enough is free"),
        pytest.param("5", 0, "resource gap: cpu 1", id="too little is free"),
        pytest.param("5", 9, "", id="pods that it may preempt count as free"),
        pytest.param("9", 9, "resource gap: cpu 3", id="too little even so"),
    ],
)
@virtual
async def test_a_group_is_tried_if_the_cluster_has_its_min_resources(
    cpu: str, priority: int, message: str
) -> None:
    """All nodes together count, whatever the members ask for."""
    nodes = [make_node("n0", cpu="3"), make_node("n1", cpu="3")]
    low = [make_pod(f"low-{number}", cpu="1", node=f"n{number}") for number in range(2)]
    spec = CoschedulingSpec(min_member=1, min_resources={"cpu": cpu, "memory": "0"})
    async with running(*nodes, *low, config=config("coscheduling")) as world:
        await world.create(CoschedulingPodGroup(metadata=META, spec=spec))
        await world.create(labelled("m", cpu="1", priority=priority))
        assert world.message("m") == message
        assert bool(world.node_of("m")) is not bool(message)
