"""Pod groups and task groups in capacity queues: all or nothing, within the room of their queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.groups import (
    DisruptionMode,
    GangSchedulingPolicy,
    Mode,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)
from bayplan.api.meta import ObjectMeta
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.api.releases import V1_37
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.config.model import QueuesConfiguration
from bayplan.errors import ConfigError
from bayplan.scheduler.capacity import make_queues
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import make_node
from tests.queues.building import queued_pod, queues_config, queues_file

from .running import running, virtual

RELEASE = V1_37.with_gates(V1_37.gates | {"GenericWorkload"})
QUEUES = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: a
      resources: {guaranteed: {vcore: 4}, max: {vcore: 4}}
      properties: {preemption.delay: 1s}
    - name: b
      resources: {guaranteed: {vcore: 1}}
    - name: fair
      properties: {application.sort.policy: fair}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return queues_file(tmp_path, QUEUES)


def config(path: Path, dialect: str = "bayplan") -> KubeSchedulerConfiguration:
    return parse_config(queues_config(path, dialect), release=RELEASE)


def member(name: str, queue: str, cpu: int = 1, app: str = "", group: str = "g", **fields: Any) -> Pod:
    pod = queued_pod(name, queue, cpu, app, **fields)
    return replace(pod, spec=replace(pod.spec, scheduling_group=PodSchedulingGroup(pod_group_name=group)))


def gang(count: int, name: str = "g", *, as_one: bool = False) -> PodGroup:
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=count))
    mode = DisruptionMode(all=Mode()) if as_one else DisruptionMode(single=Mode())
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodGroupSpec(scheduling_policy=policy, disruption_mode=mode),
    )


@virtual
async def test_a_gang_waits_until_its_queue_has_room_for_all(file: Path) -> None:
    async with running(make_node("n", cpu=16), config=config(file)) as world:
        await world.create(queued_pod("one", "a", 2, "other"), gang(3))
        await world.create(*(member(f"g{i}", "a") for i in range(3)))
        assert world.bound() == {"one"}
        text = "SchedulingSkipped: waiting for quota of queue root.a: vcore 2 used, 3 asked, 4 max"
        assert [world.rejection(f"g{i}") for i in range(3)] == [text] * 3
        await world.delete("one")
        assert world.bound() == {"g0", "g1", "g2"}


@virtual
async def test_members_beyond_the_minimum_run_as_far_as_there_is_room(file: Path) -> None:
    async with running(make_node("n", cpu=16), config=config(file)) as world:
        await world.create(gang(2), *(member(f"g{i}", "a") for i in range(6)))
        assert world.bound() == {"g0", "g1", "g2", "g3"}
        await world.delete("g0")
        assert world.bound() == {"g1", "g2", "g3", "g4"}


@virtual
async def test_a_gang_that_becomes_smaller_may_fit(file: Path) -> None:
    async with running(make_node("n", cpu=16), config=config(file)) as world:
        await world.create(gang(2), member("g0", "a", 3), member("g1", "a", 2), member("g2", "a"))
        assert world.bound() == set()
        await world.delete("g1")
        assert world.bound() == {"g0", "g2"}


@virtual
async def test_members_belong_to_one_application(file: Path) -> None:
    async with running(make_node("n", cpu=16), config=config(file)) as world:
        await world.create(gang(2), member("g0", "a", app="x"), member("g1", "b", app="y"))
        assert world.bound() == set()
        text = "SchedulingSkipped: pods of one pod group belong to several applications: x, y"
        assert world.rejection("g0") == text


@virtual
async def test_a_gang_whose_queue_is_entitled_to_it_takes_from_others(file: Path) -> None:
    """All victims that it needs go together, and the other queue keeps its guarantee."""
    async with running(make_node("n", cpu=4), config=config(file)) as world:
        await world.create(*(queued_pod(f"b{i}", "b") for i in range(4)))
        await world.create(gang(3), *(member(f"g{i}", "a") for i in range(3)))
        await world.after(20)
        assert {"g0", "g1", "g2"} <= world.bound()
        assert len([name for name in world.names() if name.startswith("b")]) == 1


@virtual
async def test_a_gang_takes_drivers_and_pods_that_opted_out_last(file: Path) -> None:
    """Although they are newer than the others."""
    async with running(make_node("n", cpu=6), config=config(file)) as world:
        await world.create(*(queued_pod(f"old{number}", "b", app="old") for number in range(4)))
        await world.after(2)
        spared = {"yunikorn.apache.org/allow-preemption": "false"}
        await world.create(
            queued_pod("driver", "b", app="new"), queued_pod("calm", "b", app="old", annotations=spared)
        )
        await world.create(gang(3), *(member(f"m{number}", "a") for number in range(3)))
        await world.after(10)
        assert len([name for name in world.names() if name.startswith("old")]) == 1
        assert {"driver", "calm", "m0", "m1", "m2"} < set(world.names())


@virtual
async def test_a_gang_that_would_not_fit_takes_nothing(file: Path) -> None:
    async with running(make_node("n", cpu=4), config=config(file)) as world:
        await world.create(*(queued_pod(f"b{i}", "b") for i in range(4)))
        await world.create(gang(2), *(member(f"g{i}", "a", 2) for i in range(2)))
        await world.after(20)
        assert world.bound() == {"b0", "b1", "b2", "b3"}
        assert world.cluster.written("delete") == []


@virtual
async def test_a_gang_is_evicted_as_a_whole(file: Path) -> None:
    """One of its pods on the node would suffice, but they are disrupted together."""
    nodes = (make_node("n", cpu=2), make_node("m", cpu=2))
    async with running(*nodes, config=config(file)) as world:
        await world.create(queued_pod("keep", "a", 1, "k"), gang(3, as_one=True))
        await world.create(*(member(f"g{i}", "fair") for i in range(3)))
        assert len(world.bound()) == 4
        await world.create(queued_pod("entitled", "a"))
        await world.after(20)
        assert world.bound() == {"keep", "entitled"}


@virtual
async def test_a_gang_below_the_guarantee_is_not_a_victim(file: Path) -> None:
    """Without its last pod the queue would fall below its guarantee, so none of them goes."""
    async with running(make_node("n", cpu=3), config=config(file)) as world:
        await world.create(gang(3, as_one=True), *(member(f"g{i}", "b") for i in range(3)))
        await world.create(queued_pod("entitled", "a"))
        await world.after(20)
        assert world.bound() == {"g0", "g1", "g2"}


def task_groups(**counts: int) -> dict[str, str]:
    groups = [{"name": name, "minMember": count, "minResource": {"cpu": 1}} for name, count in counts.items()]
    return {"yunikorn.apache.org/task-groups": json.dumps(groups)}


def task(name: str, role: str, queue: str = "a", **annotations: str) -> Pod:
    role_of = {"yunikorn.apache.org/task-group-name": role}
    return queued_pod(name, queue, app="spark", annotations={**role_of, **annotations})


@virtual
async def test_a_driver_starts_and_its_executors_start_together(file: Path) -> None:
    """The annotation of the driver says how many executors are needed."""
    async with running(make_node("n", cpu=16), config=config(file)) as world:
        await world.create(task("driver", "driver", **task_groups(driver=1, executor=3)))
        assert world.bound() == {"driver"}
        await world.create(task("e0", "executor"), task("e1", "executor"))
        assert world.bound() == {"driver"}
        await world.create(task("e2", "executor"))
        assert world.bound() == {"driver", "e0", "e1", "e2"}
        await world.delete("e0")
        await world.create(task("e3", "executor"))
        assert "e3" in world.bound()


@virtual
async def test_a_gang_larger_than_its_queue_is_rejected(file: Path) -> None:
    async with running(make_node("n", cpu=16), config=config(file)) as world:
        await world.create(*(task(f"t{i}", "t", **task_groups(t=5)) for i in range(5)))
        assert "cannot fit application spark: task group request" in world.rejection("t0")


@pytest.mark.parametrize(("dialect", "starts"), [("bayplan", {"t"}), ("yunikorn", set())])
def test_gangs_in_fair_queues(file: Path, dialect: str, starts: set[str]) -> None:
    """YuniKorn rejects them."""

    @virtual
    async def check() -> None:
        async with running(make_node("n", cpu=16), config=config(file, dialect)) as world:
            await world.create(task("t", "t", "fair", **task_groups(t=1)))
            assert world.bound() == starts
            if not starts:
                assert "unsupported sort type" in world.rejection("t")

    check()


@virtual
async def test_placeholders_count_and_are_no_members(file: Path) -> None:
    async with running(make_node("n", cpu=16), config=config(file)) as world:
        holds = {"internal.yunikorn.apache.org/placeholder": "true"}
        await world.create(task("p0", "t", **task_groups(t=2), **holds), task("p1", "t", **holds))
        assert world.bound() == {"p0", "p1"}
        await world.create(task("t0", "t"))
        assert world.bound() == {"p0", "p1"}
        await world.create(task("t1", "t"))
        assert world.bound() == {"p0", "p1", "t0", "t1"}


def test_composite_groups_cannot_be_used_with_queues() -> None:
    gates = RELEASE.gates | {"TopologyAwareWorkloadScheduling", "CompositePodGroup"}
    core = SchedulingCore(release=RELEASE.with_gates(gates))
    with pytest.raises(ConfigError, match="queues cannot be used with the feature gate CompositePodGroup"):
        make_queues(QueuesConfiguration(), core.cluster)


@virtual
async def test_nothing_is_evicted_for_a_group_that_is_invalid(tmp_path: Path) -> None:
    """It waits for the ceiling of a parent; its attempt would end with an error."""
    text = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: p
      resources: {max: {vcore: 4}}
      queues:
      - {name: a, resources: {guaranteed: {vcore: 4}}, properties: {preemption.delay: 1s}}
      - {name: b}
"""
    file = queues_file(tmp_path, text)
    async with running(make_node("n", cpu=8), config=config(file), release=RELEASE) as world:
        await world.create(*(queued_pod(f"b{i}", "p.b") for i in range(4)))
        await world.create(gang(2), *(member(f"g{i}", "p.a", priority=10) for i in range(2)))
        await world.after(60)
        assert world.cluster.written("delete") == []
        await world.create(gang(2, "h"), *(member(f"h{i}", "p.a", app="h", group="h") for i in range(2)))
        await world.delete("g0", "g1")
        await world.after(60)
        assert {"h0", "h1"} <= world.bound()
