"""Pods in capacity queues: who is next, who waits and why, and what wakes them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bayplan.api.meta import OWN_API_VERSION
from bayplan.api.pod import Pod
from bayplan.metrics.scheduler import SchedulerMetrics
from bayplan.testing.builders import make_node, make_pod

from .running import World, running, virtual

QUEUES = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: a
      resources: {guaranteed: {vcore: 4}, max: {vcore: 4}}
    - name: b
      resources: {guaranteed: {vcore: 2}}
    - name: few
      maxapplications: 1
    - name: limited
      limits: [{limit: l, users: [ann], maxresources: {vcore: 1}}]
"""
NODE = make_node("n", cpu=16, memory="64Gi")


def config(path: Path) -> str:
    return f"---\napiVersion: {OWN_API_VERSION}\nkind: BayplanConfiguration\nqueues: {{file: {path}}}\n"


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    path = tmp_path / "queues.yaml"
    path.write_text(QUEUES)
    return path


def pod(name: str, queue: str, cpu: int = 1, app: str = "", user: str = "", priority: int = 0) -> Pod:
    annotations = {"yunikorn.apache.org/user.info": f'{{"user": "{user}"}}'} if user else {}
    labels = {"queue": f"root.{queue}", "applicationId": app or f"app-{queue}"}
    return make_pod(name, cpu=cpu, labels=labels, annotations=annotations, priority=priority)


def waiting(world: World, *names: str) -> list[str]:
    """The reason and message of the condition of pods."""
    return [
        f"{condition.reason}: {condition.message}"
        for name in names
        for condition in world.pod(name).status.conditions
        if condition.type == "PodScheduled" and condition.status == "False"
    ]


@virtual
async def test_a_pod_above_the_ceiling_waits_with_the_numbers(queues: Path) -> None:
    """It is not tried, has no backoff, and its condition says which limit it waits for."""
    async with running(NODE, config=config(queues)) as world:
        await world.create(pod("one", "a", 3), pod("two", "a", 2), pod("small", "a", 1))
        assert world.order() == ["one", "small"]
        assert waiting(world, "two") == [
            "SchedulingSkipped: waiting for quota of queue root.a: vcore 3 used, 2 asked, 4 max"
        ]
        assert world.context.queue.counts().active == 1


@virtual
async def test_a_pod_starts_when_its_queue_has_room_again(queues: Path) -> None:
    async with running(NODE, config=config(queues)) as world:
        await world.create(pod("one", "a", 4), pod("two", "a", 2), pod("three", "a", 2), pod("four", "a", 2))
        assert world.order() == ["one"]
        await world.delete("one")
        assert world.order() == ["one", "two", "three"]


@virtual
async def test_queues_are_served_by_share(queues: Path) -> None:
    """The one with the lowest share of its guarantee is next; among equals the one with more pending."""
    pods = (pod(f"{queue}{i}", queue, app=queue) for i in range(4) for queue in "ab")
    async with running(NODE, *pods, config=config(queues)) as world:
        assert world.order()[:6] == ["a0", "b0", "a1", "b1", "a2", "a3"]


@virtual
async def test_the_number_of_applications_is_limited(queues: Path) -> None:
    async with running(NODE, config=config(queues)) as world:
        await world.create(pod("x1", "few", app="x"), pod("y1", "few", app="y"), pod("x2", "few", app="x"))
        assert world.order() == ["x1", "x2"]
        assert waiting(world, "y1") == [
            "SchedulingSkipped: waiting for quota of queue root.few: applications 1 used, 1 asked, 1 max"
        ]
        await world.delete("x1", "x2")
        assert world.node_of("y1") == "n"


@virtual
async def test_users_are_limited(queues: Path) -> None:
    async with running(NODE, config=config(queues)) as world:
        await world.create(
            pod("ann1", "limited", app="1", user="ann"),
            pod("ann2", "limited", app="2", user="ann"),
            pod("bob1", "limited", app="3", user="bob"),
        )
        assert sorted(world.order()) == ["ann1", "bob1"]
        assert waiting(world, "ann2") == [
            "SchedulingSkipped: waiting for quota of user ann in queue root.limited: "
            "vcore 1 used, 1 asked, 1 max"
        ]


@virtual
async def test_a_pod_without_a_queue_is_reported(queues: Path) -> None:
    async with running(NODE, config=config(queues)) as world:
        await world.create(pod("p", "nowhere", app="x"))
        assert waiting(world, "p") == [
            "SchedulingSkipped: failed to place application x: "
            "application rejected: no placement rule matched"
        ]
        await world.delete("p")
        assert world.context.queue.counts().active == 0


@virtual
async def test_pods_that_run_already_count_after_a_restart(queues: Path) -> None:
    labels = {"queue": "root.a", "applicationId": "app"}
    old = make_pod("old", cpu=3, labels=labels, node="n")
    async with running(NODE, old, config=config(queues)) as world:
        await world.create(pod("new", "a", 2), pod("fits", "a", 1))
        assert world.order() == ["fits"]


@virtual
async def test_a_pod_that_waits_for_nodes_is_unschedulable(queues: Path) -> None:
    """An autoscaler adds nodes for it; for pods that wait for quota it does not."""
    async with running(NODE, config=config(queues)) as world:
        await world.create(pod("huge", "b", 20))
        (text,) = waiting(world, "huge")
        assert text.startswith("Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.")


@virtual
async def test_a_gpu_quota_does_not_block_pods_without_gpus(queues: Path) -> None:
    queues.write_text(QUEUES.replace("max: {vcore: 4}", "max: {vcore: 4, nvidia.com/gpu: 1}"))
    async with running(NODE, config=config(queues)) as world:
        gpu = make_pod("gpu", requests={"nvidia.com/gpu": 2}, labels={"queue": "root.a"})
        await world.create(gpu, pod("cpu", "a"))
        assert world.order() == ["cpu"]


@virtual
async def test_a_changed_file_is_read_again(queues: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A valid one takes effect, and an invalid one leaves the old in force."""
    async with running(NODE, config=config(queues)) as world:
        await world.create(pod("one", "a", 4), pod("two", "a", 2))
        queues.write_text("partitions: [{name: default}]")
        await world.after(6)
        assert "queue config is not set" in caplog.text
        assert world.order() == ["one"]
        queues.write_text(QUEUES.replace("max: {vcore: 4}", "max: {vcore: 6}"))
        await world.after(6)
        assert world.order() == ["one", "two"]


@virtual
async def test_priority_alone_does_not_evict(queues: Path) -> None:
    async with running(make_node("n", cpu=4), config=config(queues)) as world:
        await world.create(pod("low", "b", 4))
        await world.create(pod("high", "b", 4, app="h", priority=100))
        assert world.node_of("low") == "n"
        assert world.cluster.written("delete") == []


@virtual
async def test_metrics_have_the_resources_of_queues(queues: Path) -> None:
    metrics = SchedulerMetrics(random.Random(1))
    async with running(NODE, config=config(queues), metrics=metrics) as world:
        await world.create(pod("one", "a", 3), pod("two", "a", 2))
        text = metrics.exposition().decode()
        for state, value in (("allocated", 3000), ("pending", 2000), ("max", 4000)):
            labels = f'queue="root.a",resource="vcore",state="{state}"'
            assert f"yunikorn_queue_resource{{{labels}}} {value}" in text


# Preemption


PREEMPTION = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: owed
      resources: {guaranteed: {vcore: 3}}
      properties: {preemption.delay: 10s}
    - name: rich
      resources: {guaranteed: {vcore: 1}}
    - name: closed
      properties: {preemption.policy: disabled}
"""


@pytest.fixture
def guarantees(tmp_path: Path) -> Path:
    path = tmp_path / "queues.yaml"
    path.write_text(PREEMPTION)
    return path


@virtual
async def test_a_queue_that_is_owed_takes_from_one_above_its_guarantee(guarantees: Path) -> None:
    """After the delay, as many pods as it needs, and the other queue keeps its guarantee."""
    async with running(make_node("n", cpu=4), config=config(guarantees)) as world:
        await world.create(*(pod(f"r{i}", "rich") for i in range(4)))
        await world.create(pod("big", "owed", 3))
        assert len(world.names()) == 5
        assert "may take from others 10 s after" in world.message("big")
        await world.after(11)
        assert world.node_of("big") == "n"
        assert len([name for name in world.names() if name.startswith("r")]) == 1


@virtual
async def test_nothing_is_evicted_in_vain(guarantees: Path) -> None:
    """What may be taken would not suffice, so nothing is taken."""
    async with running(make_node("n", cpu=4), config=config(guarantees)) as world:
        await world.create(pod("c", "closed", 2), pod("r0", "rich"), pod("r1", "rich"))
        await world.create(pod("big", "owed", 3))
        await world.after(30)
        assert world.names() == ["big", "c", "r0", "r1"]


@virtual
async def test_a_victim_does_not_take_back(guarantees: Path) -> None:
    async with running(make_node("n", cpu=4), config=config(guarantees)) as world:
        await world.create(*(pod(f"r{i}", "rich") for i in range(4)))
        await world.create(pod("big", "owed", 3), pod("more", "rich", priority=100))
        await world.after(11)
        await world.create(pod("again", "rich"))
        await world.after(60)
        assert world.node_of("big") == "n"
        assert world.node_of("more") == ""


@virtual
async def test_a_queue_above_its_guarantee_takes_nothing(guarantees: Path) -> None:
    async with running(make_node("n", cpu=4), config=config(guarantees)) as world:
        await world.create(pod("mine", "owed", 3), pod("r0", "rich"))
        await world.create(pod("next", "owed", 1, priority=100))
        await world.after(60)
        assert world.node_of("r0") == "n"
        assert "is not owed" in world.message("next")


@virtual
async def test_preemption_policy_never_is_respected(guarantees: Path) -> None:
    async with running(make_node("n", cpu=2), config=config(guarantees)) as world:
        await world.create(pod("r0", "rich"), pod("r1", "rich"))
        labels = {"queue": "root.owed", "applicationId": "o"}
        await world.create(make_pod("never", cpu=1, labels=labels, preemption_policy="Never"))
        await world.after(60)
        assert world.names() == ["never", "r0", "r1"]
