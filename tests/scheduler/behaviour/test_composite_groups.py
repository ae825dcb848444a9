"""Composite groups: PodGroups below a CompositePodGroup are scheduled together."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.groups import (
    BasicSchedulingPolicy,
    CompositeGangSchedulingPolicy,
    CompositePodGroup,
    CompositePodGroupSpec,
    CompositeSchedulingPolicy,
    DisruptionMode,
    Mode,
    PodGroup,
    SchedulingConstraints,
    TopologyConstraint,
)
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.pod import Pod
from bayplan.errors import ServerError
from bayplan.testing import make_node, make_pod

from .running import World, virtual
from .test_groups import TOPOLOGY, bound, condition, grouped, make_group, members, nodes

TREES = TOPOLOGY.with_gates(TOPOLOGY.gates | {"CompositePodGroup"})
NO_VICTIMS = "pod group preemption: No preemption victims found for incoming preemptor"


def make_composite(
    name: str = "tree",
    min_groups: int = 0,
    *,
    parent: str | None = None,
    key: str = "",
    as_one: bool = False,
    priority: int = 0,
) -> CompositePodGroup:
    """A composite group that needs so many of its groups; without a number, a basic one."""
    gang = CompositeGangSchedulingPolicy(min_group_count=min_groups) if min_groups else None
    return CompositePodGroup(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=CompositePodGroupSpec(
            parent_composite_pod_group_name=parent,
            scheduling_policy=CompositeSchedulingPolicy(None if gang else BasicSchedulingPolicy(), gang),
            scheduling_constraints=SchedulingConstraints((TopologyConstraint(key),)) if key else None,
            disruption_mode=DisruptionMode(all=Mode()) if as_one else None,
            priority=priority,
        ),
    )


def part(name: str, min_count: int = 0, parent: str = "tree", **fields: Any) -> PodGroup:
    group = make_group(name, min_count, **fields)
    return replace(group, spec=replace(group.spec, parent_composite_pod_group_name=parent))


def none_fits(reason: str) -> str:
    return f"pod group is unschedulable, 0/1 placements are available, first placement status: {reason}"


@virtual
async def test_all_groups_are_bound_if_enough_of_them_fit() -> None:
    async with grouped(*nodes(2), release=TREES) as world:
        await world.create(make_composite(min_groups=2), part("a", 2), part("b", 2))
        await world.create(*members(2, "a"), *members(2, "b"))
        assert bound(world) == ["a-0", "a-1", "b-0", "b-1"]
        assert condition(world, "a") == condition(world, "b") == ("True", "Scheduled", "")


@virtual
async def test_no_group_is_bound_if_too_few_fit() -> None:
    """The group that fits has the status of its parent; the other one keeps its own."""
    async with grouped(make_node("n0", cpu="3"), release=TREES) as world:
        await world.create(make_composite(min_groups=2), part("a", 2), part("b", 2))
        await world.create(*members(2, "a"), *members(2, "b"))
        reason = none_fits("minCount (2) cannot be satisfied: 1 scheduled, 0 remaining")
        assert bound(world) == []
        # The message is added once for each group with this status: the composite one, and this one.
        assert condition(world, "a") == ("False", "Unschedulable", f"{reason}, {NO_VICTIMS}, {NO_VICTIMS}")
        assert condition(world, "b") == ("False", "Unschedulable", f"{reason}, {NO_VICTIMS}")
        assert world.message("a-0") == world.message("a-1") == reason
        assert world.message("b-0") == f"pod group is unschedulable, {reason}, {NO_VICTIMS}"
        assert world.message("b-1") == "0/1 nodes are available: 1 Insufficient cpu."


@virtual
async def test_a_basic_composite_group_binds_the_groups_that_fit() -> None:
    async with grouped(make_node("n0", cpu="3"), release=TREES) as world:
        await world.create(make_composite(), part("a", 2), part("b", 2))
        await world.create(*members(2, "a"), *members(2, "b"))
        assert bound(world) == ["a-0", "a-1"]
        await world.create(make_node("n1", cpu="2"))
        await world.after(5)
        assert bound(world) == ["a-0", "a-1", "b-0", "b-1"]
        assert condition(world, "a") == condition(world, "b") == ("True", "Scheduled", "")


@pytest.mark.parametrize("last", ["tree", "b", "b-1"])
@virtual
async def test_members_wait_until_the_tree_is_complete(last: str) -> None:
    """A missing composite group, PodGroup or member holds all of them, without a condition."""
    objects: list[Object] = [make_composite(min_groups=2), part("a", 1), part("b", 2)]
    objects += [*members(1, "a"), *members(2, "b")]
    (late,) = [item for item in objects if item.name == last]
    async with grouped(*nodes(2), release=TREES) as world:
        await world.create(*[item for item in objects if item is not late])
        assert bound(world) == []
        assert all(not pod.status.conditions for pod in world.store.list(Pod))
        await world.create(late)
        assert bound(world) == ["a-0", "b-0", "b-1"]


@virtual
async def test_members_become_incomplete_when_a_group_above_them_is_deleted() -> None:
    async with grouped(release=TREES) as world:
        middle = make_composite("middle", parent="tree")
        await world.create(make_composite(), middle, part("a", 1), part("b", 1, "middle"))
        await world.create(*members(1, "a"), *members(1, "b"))
        queue = world.context.queue
        assert queue.counts().incomplete == 0
        world.store.delete(CompositePodGroup, "middle", "default")
        await world.after(0)
        assert queue.counts().incomplete == 1
        world.store.delete(CompositePodGroup, "tree", "default")
        await world.after(0)
        assert queue.counts().incomplete == 2
        await world.create(make_composite(), middle, *nodes(1))
        await world.after(5)
        assert bound(world) == ["a-0", "b-0"]


@virtual
async def test_placements_nest() -> None:
    """All groups are in one zone, and each of them in one rack of it."""
    racks = [
        make_node(f"n-{zone}-{rack}", cpu="2", labels={"zone": zone, "rack": f"{zone}-{rack}"})
        for zone, racks in (("x", 1), ("y", 2))
        for rack in range(racks)
    ]
    async with grouped(*racks, make_node("n-x-big", cpu="1", labels={"zone": "x"}), release=TREES) as world:
        await world.create(make_composite(min_groups=2, key="zone"))
        await world.create(part("a", 2, key="rack"), part("b", 2, key="rack"))
        await world.create(*members(2, "a"), *members(2, "b"))
        places = {pod.name: pod.spec.node_name for pod in world.store.list(Pod)}
        assert {places["a-0"], places["b-0"]} == {"n-y-0", "n-y-1"}
        assert (places["a-0"], places["b-0"]) == (places["a-1"], places["b-1"])


@virtual
async def test_a_tree_that_is_evicted_as_one_goes_as_a_whole() -> None:
    async with grouped(*nodes(2, cpu="1"), release=TREES) as world:
        await world.create(make_composite(as_one=True), part("a", 1), part("b", 1))
        await world.create(*members(1, "a"), *members(1, "b"))
        assert len(bound(world)) == 2
        await world.create(make_pod("high", cpu="1", priority=9))
        await world.after(5)
        assert bound(world) == ["high"]


@virtual
async def test_a_tree_preempts_for_all_its_groups() -> None:
    low = [make_pod(f"low-{number}", cpu="1", node=f"n{number}") for number in range(2)]
    async with grouped(*nodes(2, cpu="1"), *low, release=TREES) as world:
        await world.create(make_composite(min_groups=2, priority=9))
        await world.create(part("a", 1, priority=9), part("b", 1, priority=9))
        await world.create(*members(1, "a", priority=9), *members(1, "b", priority=9))
        await world.after(5)
        assert bound(world) == ["a-0", "b-0"]
        uid = world.store.get(CompositePodGroup, "tree", "default").uid
        assert world.events("low-0")[-1][1] == f"Preempted by compositepodgroup {uid} on node cluster"


@virtual
async def test_all_members_need_the_priority_of_the_root() -> None:
    async with grouped(*nodes(1), release=TREES) as world:
        await world.create(make_composite(priority=5), part("a", 1), *members(1, "a"))
        assert condition(world, "a") == (
            "False",
            "SchedulerError",
            "all pods in a single pod group should have the same priority as the pod group's priority, "
            "got 0 and 5",
        )


@virtual
async def test_trees_that_are_too_deep_or_a_cycle_are_never_tried() -> None:
    chain = [make_composite(f"c{n}", parent=f"c{n - 1}" if n else None) for n in range(4)]
    cycle = [make_composite("x", parent="y"), make_composite("y", parent="x")]
    async with grouped(*nodes(1), *chain, *cycle, release=TREES) as world:
        await world.create(part("deep", 1, "c3"), *members(1, "deep"))
        await world.create(part("round", 1, "x"), *members(1, "round"))
        await world.create(part("fits", 1, "c2"), *members(1, "fits"))
        assert bound(world) == ["fits-0"]


@virtual
async def test_without_the_gate_a_parent_means_nothing() -> None:
    async with grouped(*nodes(1), release=TOPOLOGY) as world:
        await world.create(part("a", 1), *members(1, "a"))
        assert bound(world) == ["a-0"]


def asks_for_nodes(world: World, cpu: int) -> int:
    """The number of pods for which cluster-autoscaler and Karpenter add nodes, by their rules.

    Those with the reason Unschedulable and without a nominated node, less those that fit on the cpus that are
    free on existing nodes.
    """
    asking = [
        pod
        for pod in world.store.list(Pod)
        if not pod.spec.node_name
        and not pod.status.nominated_node_name
        and any(one.type == "PodScheduled" and one.reason == "Unschedulable" for one in pod.status.conditions)
    ]
    return max(0, len(asking) - cpu)


@pytest.mark.parametrize(
    ("objects", "count"),
    [
        pytest.param([*members(2)], 0, id="no PodGroup"),
        pytest.param([make_group(min_count=3), *members(2)], 0, id="too few members"),
        pytest.param(
            [make_group(min_count=2), *members(1), *members(1, first=1, gates=["later"])],
            0,
            id="one is gated",
        ),
        pytest.param([make_composite(min_groups=2), part("g", 2), *members(2)], 0, id="too few groups"),
        pytest.param([make_group(min_count=3), *members(3)], 1, id="one does not fit"),
        pytest.param([make_group(min_count=5), *members(5)], 3, id="some are not even tried"),
        pytest.param(
            [make_composite(min_groups=2), part("a", 2), part("b", 2), *members(2, "a"), *members(2, "b")],
            2,
            id="one of two groups does not fit",
        ),
    ],
)
@virtual
async def test_autoscalers_add_the_nodes_that_a_group_lacks_and_no_others(
    objects: list[Object], count: int
) -> None:
    async with grouped(*nodes(1), release=TREES) as world:
        await world.create(*objects)
        assert bound(world) == []
        assert asks_for_nodes(world, cpu=2) == count


@virtual
async def test_autoscalers_add_no_nodes_for_a_group_that_preempts() -> None:
    async with grouped(*nodes(1), make_pod("low", cpu="2", node="n0"), release=TREES) as world:
        world.cluster.will_answer("delete", ServerError("busy"), times=9)
        await world.create(make_group(min_count=2, priority=9), *members(2, priority=9))
        assert [world.nominated(name) for name in ("g-0", "g-1")] == ["n0", "n0"]
        assert asks_for_nodes(world, cpu=0) == 0
