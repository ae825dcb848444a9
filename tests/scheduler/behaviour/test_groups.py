"""Pod groups: what becomes of their members, as users see it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.groups import (
    BasicSchedulingPolicy,
    DisruptionMode,
    GangSchedulingPolicy,
    Mode,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    SchedulingConstraints,
    TopologyConstraint,
)
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.api.releases import V1_37
from bayplan.errors import ConflictError, ServerError
from bayplan.framework.events import ClusterEvent
from bayplan.metrics import SchedulerMetrics
from bayplan.scheduling_queue.hints import QueueingHints, Strategy
from bayplan.scheduling_queue.queued import Entity
from bayplan.scheduling_queue.sub_queues import PendingPods
from bayplan.testing import make_node, make_pod
from bayplan.testing.builders.pods import make_pod_affinity, make_pod_term

from .running import Answer, World, running, virtual

INCOMING = "scheduler_queue_incoming_entities_total"
GROUPS = V1_37.with_gates(V1_37.gates | {"GenericWorkload"})
TOPOLOGY = GROUPS.with_gates(GROUPS.gates | {"TopologyAwareWorkloadScheduling"})


def make_group(
    name: str = "g",
    min_count: int = 0,
    *,
    priority: int = 0,
    key: str = "",
    as_one: bool = False,
    policy: str | None = None,
) -> PodGroup:
    """A gang of at least `min_count` pods; without it, a basic group."""
    gang = GangSchedulingPolicy(min_count=min_count) if min_count else None
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodGroupSpec(
            scheduling_policy=PodGroupSchedulingPolicy(None if gang else BasicSchedulingPolicy(), gang),
            scheduling_constraints=SchedulingConstraints((TopologyConstraint(key),)) if key else None,
            disruption_mode=DisruptionMode(all=Mode()) if as_one else None,
            priority=priority,
            preemption_policy=policy,
        ),
    )


def members(count: int, group: str = "g", cpu: str = "1", first: int = 0, **fields: Any) -> list[Pod]:
    """Pods `g-0`, `g-1`, … of a group."""
    named = PodSchedulingGroup(pod_group_name=group)
    return [
        make_pod(f"{group}-{number}", cpu=cpu, scheduling_group=named, **fields)
        for number in range(first, first + count)
    ]


def nodes(count: int, cpu: str = "2", **fields: Any) -> list[Object]:
    return [make_node(f"n{number}", cpu=cpu, **fields) for number in range(count)]


@asynccontextmanager
async def grouped(*objects: Object, **options: Any) -> AsyncIterator[World]:
    async with running(*objects, **{"release": GROUPS} | options) as world:
        yield world


def bound(world: World) -> list[str]:
    return sorted(pod.name for pod in world.store.list(Pod) if pod.spec.node_name)


def condition(world: World, name: str = "g") -> tuple[str, str, str] | None:
    for known in world.store.get(PodGroup, name, "default").status.conditions:
        if known.type == "PodGroupInitiallyScheduled":
            return known.status, known.reason, known.message
    return None


@virtual
async def test_a_gang_that_fits_is_bound_and_no_member_waits_at_permit() -> None:
    async with grouped(*nodes(2)) as world:
        await world.create(make_group(min_count=3), *members(3))
        assert bound(world) == ["g-0", "g-1", "g-2"]
        assert condition(world) == ("True", "Scheduled", "")
        assert world.cluster.written("patch") == []


@virtual
async def test_a_gang_that_does_not_fit_leaves_nothing_behind() -> None:
    async with grouped(*nodes(1)) as world:
        await world.create(make_group(min_count=3), *members(3))
        reason = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
        more = "pod group preemption: No preemption victims found for incoming preemptor"
        assert bound(world) == []
        assert condition(world) == ("False", "Unschedulable", f"{reason}, {more}")
        assert world.message("g-0") == f"pod group is unschedulable, {reason}, {more}"
        assert world.message("g-2") == "0/1 nodes are available: 1 Insufficient cpu."
        assert world.context.cache.assumed_count == 0
        assert world.context.cluster.pod_count == 0
        await world.create(make_node("n1", cpu="1"))
        assert bound(world) == []  # no event brings it forward
        await world.after(3)
        assert bound(world) == ["g-0", "g-1", "g-2"]


@virtual
async def test_a_basic_group_binds_what_fits() -> None:
    async with grouped(*nodes(1)) as world:
        await world.create(make_group(), *members(3))
        assert bound(world) == ["g-0", "g-1"]
        assert condition(world) == ("True", "Scheduled", "")
        await world.after(20)
        assert condition(world) == ("True", "Scheduled", "")
        assert world.message("g-2") == "0/1 nodes are available: 1 Insufficient cpu."


@virtual
async def test_members_wait_for_their_group_and_for_one_another() -> None:
    async with grouped(*nodes(2)) as world:
        await world.create(*members(2))
        assert world.context.queue.counts() == PendingPods(0, 0, 0, 0, incomplete=2)
        await world.create(make_group(min_count=3))
        assert world.context.queue.counts() == PendingPods(0, 0, 0, gated=2)
        assert world.condition("g-0") is None
        assert len(world.context.queue.pending_pods()) == 2
        assert world.context.queue.dump().endswith("pendingPodGroupMemberPods:0; incompletePodGroupPods:0")
        await world.create(*members(1, first=2))
        assert bound(world) == ["g-0", "g-1", "g-2"]


@virtual
async def test_a_gated_member_holds_the_group() -> None:
    async with grouped(*nodes(2)) as world:
        await world.create(make_group(min_count=2), *members(1, gates=["hold"]), *members(2, first=1))
        assert bound(world) == []
        await world.update("g-0", lambda pod: replace(pod, spec=replace(pod.spec, scheduling_gates=())))
        assert bound(world) == ["g-0", "g-1", "g-2"]


@virtual
async def test_a_smaller_min_count_frees_the_group() -> None:
    async with grouped(*nodes(2)) as world:
        await world.create(make_group(min_count=3), *members(2))
        group = world.store.get(PodGroup, "g", "default")
        smaller = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=2))
        world.store.update(replace(group, spec=replace(group.spec, scheduling_policy=smaller)))
        await world.after(0)
        assert bound(world) == ["g-0", "g-1"]


@virtual
async def test_losing_a_member_gates_a_gang_and_losing_the_group_makes_it_incomplete() -> None:
    async with grouped(*nodes(1, cpu="1")) as world:
        await world.create(make_group(min_count=2), *members(2))
        assert world.context.queue.counts().backoff == 2
        await world.delete("g-1")
        assert world.context.queue.counts().gated == 1
        world.store.delete(PodGroup, "g", "default")
        await world.after(0)
        assert world.context.queue.counts() == PendingPods(0, 0, 0, 0, incomplete=1)
        await world.delete("g-0")
        assert world.context.queue.counts() == PendingPods(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("group", "pods", "text"),
    [
        (
            make_group(priority=5),
            members(1),
            "all pods in a single pod group should have the same priority as the pod group's priority, "
            "got 0 and 5",
        ),
        (
            make_group(),
            members(1) + members(1, first=1, preemption_policy="Never"),
            "all pods in a single pod group should have the same preemption policy, "
            "got Never and PreemptLowerPriority",
        ),
    ],
    ids=["another priority than the group", "different preemption policies"],
)
@virtual
async def test_members_that_cannot_be_scheduled_together(group: PodGroup, pods: list[Pod], text: str) -> None:
    async with grouped(*nodes(1)) as world:
        await world.create(*pods, group)
        assert condition(world) == ("False", "SchedulerError", text)
        assert world.condition("g-0") == ("False", "SchedulerError", text)


@virtual
async def test_a_group_preempts_and_lands_where_it_was_nominated() -> None:
    low = [make_pod(f"low-{n}", cpu="2", node=f"n{n}") for n in range(2)]
    async with grouped(*nodes(2), *low) as world:
        await world.create(make_group(min_count=2, priority=9), *members(2, cpu="2", priority=9))
        await world.after(5)
        assert bound(world) == ["g-0", "g-1"]
        uid = world.store.get(PodGroup, "g", "default").uid
        assert ("Preempted", f"Preempted by podgroup {uid} on node cluster") in world.events("low-0")


@virtual
async def test_an_update_of_a_member_concerns_that_member_only() -> None:
    """While a group preempts, every member gets a condition and a nomination: an update each."""
    count = 20
    low = [make_pod(f"low-{n}", cpu="2", node=f"n{n}") for n in range(count)]
    async with grouped(*nodes(count), *low) as world:
        world.cluster.will_answer("delete", Answer(seconds=5), times=count)
        with pytest.MonkeyPatch.context() as patched:
            judged: list[str] = []
            judge = QueueingHints.worth_requeuing

            def spy(
                hints: QueueingHints, entity: Entity, event: ClusterEvent, old: Any, new: Any
            ) -> Strategy:
                judged.append(entity.key)
                return judge(hints, entity, event, old, new)

            patched.setattr(QueueingHints, "worth_requeuing", spy)
            await world.create(make_group(min_count=count, priority=9), *members(count, cpu="2", priority=9))
            assert world.nominated("g-0")
            assert count <= len(judged) <= 3 * count
        await world.after(30)
        assert bound(world) == sorted(f"g-{n}" for n in range(count))


@virtual
async def test_a_group_spares_pods_that_need_not_go() -> None:
    low = [make_pod(f"low-{n}", cpu="2", node=f"n{n}") for n in range(3)]
    async with grouped(*nodes(3), *low) as world:
        await world.create(make_group(min_count=2, priority=9), *members(2, cpu="2", priority=9))
        await world.after(5)
        assert len(bound(world)) == 3
        assert {"g-0", "g-1"} < set(bound(world))


@virtual
async def test_a_group_with_affinity_checks_all_members_again() -> None:
    """Its filters look at other nodes, too."""
    apart = make_pod_affinity(anti_required=[make_pod_term("kubernetes.io/hostname", {"app": "g"})])
    low = [make_pod(f"low-{n}", cpu="2", node=f"n{n}") for n in range(3)]
    hosts = [make_node(f"n{n}", cpu="2", labels={"kubernetes.io/hostname": f"n{n}"}) for n in range(3)]
    pods = members(2, cpu="1", priority=9, labels={"app": "g"}, affinity=apart)
    async with grouped(*hosts, *low) as world:
        await world.create(make_group(min_count=2, priority=9), *pods)
        await world.after(5)
        assert {"g-0", "g-1"} < set(bound(world))
        assert len(bound(world)) == 3


@virtual
async def test_a_single_pod_evicts_a_group_as_a_whole() -> None:
    async with grouped(*nodes(2)) as world:
        await world.create(make_group(min_count=2, as_one=True), *members(2, cpu="2"))
        assert bound(world) == ["g-0", "g-1"]
        await world.create(make_pod("high", cpu="2", priority=9))
        await world.after(5)
        assert [name for name in world.names() if name.startswith("g-")] == []
        assert bound(world) == ["high"]


@virtual
async def test_the_message_of_a_group_that_may_not_preempt() -> None:
    async with grouped(*nodes(1), make_pod("low", cpu="2", node="n0")) as world:
        never = members(1, cpu="2", priority=9, preemption_policy="Never")
        await world.create(make_group(min_count=1, priority=9), *never)
        status = condition(world)
        assert status is not None
        assert status[2].endswith("pod group preemption: not eligible due to preemptionPolicy=Never.")


@virtual
async def test_a_binding_that_fails_backs_off() -> None:
    async with grouped(*nodes(1)) as world:
        world.cluster.will_answer("bind", ServerError("no", 500), times=40)
        await world.create(make_group(), *members(1))
        await world.after(6)
        assert 1 < len(world.cluster.written("bind")) < 20


@pytest.mark.parametrize("cache", [True, False], ids=["cached", "uncached"])
@virtual
async def test_a_group_with_a_topology_constraint_is_placed_in_one_domain(cache: bool) -> None:
    racks = [make_node(f"n{n}", cpu="2", labels={"rack": "ab"[n % 2]}) for n in range(4)]
    async with grouped(*racks, make_pod("busy", cpu="1", node="n1"), release=TOPOLOGY, cache=cache) as world:
        await world.create(make_group(min_count=3, key="rack"), *members(3))
        assert {world.node_of(f"g-{n}") for n in range(3)} <= {"n1", "n3"}  # the fuller one
        await world.create(make_group("h", min_count=5, key="rack"), *members(5, "h"))
        status = condition(world, "h")
        assert status is not None
        assert status[2].startswith("pod group is unschedulable, 0/2 placements are available")


@virtual
async def test_attempts_of_groups_are_counted() -> None:
    metrics = SchedulerMetrics(release=GROUPS)
    async with grouped(*nodes(1), metrics=metrics) as world:
        await world.create(make_group(min_count=3), *members(3))
        await world.create(make_group("h"), *members(1, "h"))
        shown = {_sorted(line) for line in metrics.exposition().decode().splitlines()}
        profile = 'profile="default-scheduler"'
        expected = (
            f'scheduler_podgroup_schedule_attempts_total{{result="unschedulable",{profile}}} 1.0',
            f'scheduler_podgroup_schedule_attempts_total{{result="scheduled",{profile}}} 1.0',
            'scheduler_workload_preemption_attempts_total{result="UnschedulableAndUnresolvable"} 1.0',
            'scheduler_pending_pods{queue="backoff"} 3.0',
            'scheduler_queued_entities{queue="backoff",type="podgroup"} 1.0',
            'scheduler_queued_entities{queue="backoff",type="pod"} 0.0',
            f'{INCOMING}{{queue="active",event="UnscheduledPodAdd",type="podgroup"}} 2.0',
        )
        assert [line for line in expected if _sorted(line) not in shown] == []


@virtual
async def test_preemptions_by_and_of_groups_are_measured() -> None:
    """A gang evicts a gang as one and two members of another group; then a pod evicts the gang."""
    metrics = SchedulerMetrics(release=GROUPS)
    async with grouped(*nodes(2), metrics=metrics) as world:
        await world.create(make_group("a", min_count=2, as_one=True), *members(2, "a"))
        await world.create(make_group("b"), *members(2, "b"))
        await world.create(make_group("high", min_count=4, priority=5, as_one=True))
        await world.create(*members(4, "high", priority=5))
        await world.after(60)
        assert bound(world) == [f"high-{number}" for number in range(4)]
        await world.create(make_pod("single", cpu="1", priority=9))
        await world.after(60)
        shown = {_sorted(line) for line in metrics.exposition().decode().splitlines()}
        evaluation = "scheduler_preemption_evaluation_duration_seconds"
        execution = "scheduler_preemption_execution_duration_seconds"
        expected = (
            "scheduler_workload_preemption_victims_sum 4.0",
            'scheduler_preemption_workload_disruptions_sum{preemptor="podgroup"} 3.0',
            'scheduler_preemption_workload_disruptions_sum{preemptor="pod"} 1.0',
            f'{evaluation}_count{{preemptor="podgroup",result="Success"}} 1.0',
            f'{evaluation}_count{{preemptor="pod",result="Success"}} 1.0',
            f'{execution}_count{{preemptor="podgroup",result="success"}} 1.0',
            f'{execution}_count{{preemptor="pod",result="success"}} 1.0',
        )
        assert [line for line in expected if _sorted(line) not in shown] == []


@virtual
async def test_evicted_pods_of_a_deleted_group_are_measured_one_by_one() -> None:
    metrics = SchedulerMetrics(release=GROUPS)
    async with grouped(*nodes(1), metrics=metrics) as world:
        await world.create(make_group("a", min_count=2, as_one=True), *members(2, "a"))
        world.store.delete(PodGroup, "a", "default")
        await world.create(make_pod("single", cpu="2", priority=9))
        await world.after(60)
        shown = {_sorted(line) for line in metrics.exposition().decode().splitlines()}
        assert _sorted('scheduler_preemption_workload_disruptions_sum{preemptor="pod"} 2.0') in shown


@virtual
async def test_placements_are_counted() -> None:
    metrics = SchedulerMetrics(release=TOPOLOGY)
    racks = [make_node(f"n{n}", cpu=str(n + 1), labels={"rack": f"r{n}"}) for n in range(3)]
    async with grouped(*racks, release=TOPOLOGY, metrics=metrics) as world:
        await world.create(make_group(min_count=2, key="rack"), *members(2))
        shown = metrics.exposition().decode().splitlines()
        assert 'scheduler_generated_placements_total{profile="default-scheduler"} 3.0' in shown
        counts = {line for line in shown if line.startswith("scheduler_placement_evaluations_total")}
        name = "scheduler_placement_evaluations_total"
        assert {_sorted(line) for line in counts} == {
            _sorted(f'{name}{{profile="default-scheduler",result="feasible"}} 2.0'),
            _sorted(f'{name}{{profile="default-scheduler",result="infeasible"}} 1.0'),
        }


def _sorted(line: str) -> str:
    name, _, rest = line.partition("{")
    labels, _, value = rest.partition("}")
    return f"{name}{sorted(labels.split(','))}{value}"


@pytest.mark.parametrize(
    ("conflicts", "reads"), [(0, 0), (1, 1), (2, 2)], ids=["as shown", "changed", "changed again"]
)
@virtual
async def test_a_condition_is_one_request_unless_the_object_has_changed(conflicts: int, reads: int) -> None:
    async with grouped(*nodes(1)) as world:
        read: list[str] = []
        get, update_status = world.cluster.get, world.cluster.update_status
        left = [ConflictError("changed")] * conflicts

        async def reading(kind: type[Any], name: str, namespace: str = "") -> Any:
            read.append(name)
            return await get(kind, name, namespace)

        async def writing(item: Object) -> Object:
            if left:
                raise left.pop()
            return await update_status(item)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(world.cluster, "get", reading)
            patched.setattr(world.cluster, "update_status", writing)
            await world.create(make_group(min_count=2), *members(2))
            await world.after(5)
        assert condition(world) == ("True", "Scheduled", "")
        assert read == ["g"] * reads
