"""Volcano's queues in a running scheduler: situations that its users report, and what they read here."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api import volcano
from bayplan.api.meta import ObjectMeta, OwnerReference
from bayplan.api.pod import Pod
from bayplan.api.releases import V1_37
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.errors import ConfigError
from bayplan.metrics.scheduler import SchedulerMetrics
from bayplan.simulate.virtual_time import quiescent
from bayplan.testing.builders import make_node, make_pod

from .running import Answer, World, running, virtual

RELEASE = V1_37.with_gates(V1_37.gates | {"GenericWorkload"})
CAPACITY = """
actions: "enqueue, allocate, backfill, preempt, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: capacity}]
"""
HIERARCHY = CAPACITY.replace("{name: capacity}", "{name: capacity, enableHierarchy: true}")
PROPORTION = CAPACITY.replace("capacity", "proportion")


def config(tmp_path: Path, conf: str = CAPACITY) -> KubeSchedulerConfiguration:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(conf)
    text = (
        "apiVersion: bayplan/v1\nkind: BayplanConfiguration\npodGroups: [volcano]\n"
        f"queues: {{dialect: volcano, file: '{path}'}}\n"
    )
    return parse_config(text, release=RELEASE)


def queue(name: str, state: str = "", **spec: Any) -> volcano.Queue:
    if "guarantee" in spec:
        spec["guarantee"] = volcano.Guarantee(resource=spec["guarantee"])
    status = volcano.QueueStatus(state=state)
    return volcano.Queue(metadata=ObjectMeta(name=name), spec=volcano.QueueSpec(**spec), status=status)


def job(name: str, queue: str, members: int = 1, **spec: Any) -> volcano.PodGroup:
    meta = ObjectMeta(name=name, namespace="default")
    return volcano.PodGroup(metadata=meta, spec=volcano.PodGroupSpec(min_member=members, queue=queue, **spec))


def member(group: str, number: int, **fields: Any) -> Pod:
    pod = make_pod(f"{group}-{number}", **fields)
    annotations = {volcano.GROUP_ANNOTATION: group}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def members(group: str, count: int, **fields: Any) -> list[Pod]:
    return [member(group, number, **fields) for number in range(count)]


def in_queue(name: str, queue: str, cpu: int = 1) -> Pod:
    """A pod of a ReplicaSet: without a PodGroup."""
    pod = make_pod(name, cpu=cpu)
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=queue, uid=queue, controller=True)
    annotations = {volcano.QUEUE_ANNOTATION: queue}
    meta = replace(pod.metadata, annotations=annotations, owner_references=(owner,))
    return replace(pod, metadata=meta)


def condition_reason(world: World, name: str) -> str:
    conditions = world.store.get(Pod, name, "default").status.conditions
    return next(one.reason for one in conditions if one.type == "PodScheduled")


def phase(world: World, name: str) -> str:
    return world.store.get(volcano.PodGroup, name, "default").status.phase


@virtual
async def test_a_pod_above_the_capability_reads_the_numbers(tmp_path: Path) -> None:
    """volcano#2416, #3220, #4311: which resource of which queue is short, and by how much."""
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=8), queue("research", capability={"cpu": "3"}))
        await world.create(job("first", "research"), *members("first", 1, cpu=2))
        await world.create(job("second", "research"), *members("second", 1, cpu=2))
        assert world.bound() == {"first-0"}
        assert world.message("second-0") == (
            "waiting for queue research: cpu 2 allocated, 2 requested, 3 capability"
        )
        await world.delete("first-0")
        assert world.bound() == {"second-0"}


@virtual
async def test_a_capability_that_limits_what_a_queue_deserves_is_named(tmp_path: Path) -> None:
    """With the plugin proportion, too: another weight would not help."""
    async with running(config=config(tmp_path, PROPORTION)) as world:
        await world.create(make_node("n", cpu=8), queue("test", capability={"cpu": "2"}))
        await world.create(job("many", "test"), *members("many", 3, cpu=1))
        assert len(world.bound()) == 2
        (waiting,) = {f"many-{number}" for number in range(3)} - world.bound()
        assert world.message(waiting) == (
            "waiting for queue test: cpu 2 allocated, 1 requested, 2 capability"
        )


@virtual
async def test_metrics_have_the_names_of_volcano(tmp_path: Path) -> None:
    metrics = SchedulerMetrics(random.Random(1))
    async with running(config=config(tmp_path), metrics=metrics) as world:
        await world.create(make_node("n", cpu=8), queue("q", deserved={"cpu": "4"}))
        await world.create(job("one", "q"), *members("one", 2, cpu=1))
        text = metrics.exposition().decode()
        for name, value in (
            ("allocated_milli_cpu", "2000"),
            ("deserved_milli_cpu", "4000"),
            ("share", "0.5"),
        ):
            assert f'volcano_queue_{name}{{queue_name="q"}} {value}' in text
        assert "yunikorn_queue" not in text


@virtual
async def test_a_changed_queue_counts_at_once(tmp_path: Path) -> None:
    """Its amounts, its state, and another parent."""

    async def change(world: World, name: str, state: str = "", **spec: Any) -> None:
        known = world.store.get(volcano.Queue, name)
        world.store.update(replace(queue(name, state, **spec), metadata=known.metadata))
        await quiescent()

    async with running(config=config(tmp_path, HIERARCHY)) as world:
        await world.create(make_node("n", cpu=8), queue("team", capability={"cpu": "3"}))
        await world.create(queue("child", parent="team"), job("many", "child"), *members("many", 6, cpu=1))
        assert len(world.bound()) == 3
        await change(world, "team", capability={"cpu": "4"})
        assert len(world.bound()) == 4
        await change(world, "child", "Closed", parent="team")
        await change(world, "team", capability={"cpu": "5"})
        assert len(world.bound()) == 4
        await change(world, "child", parent="team")
        assert len(world.bound()) == 5
        await change(world, "child")
        assert len(world.bound()) == 6


@virtual
async def test_an_exhausted_quota_of_gpus_does_not_stop_a_cpu_job(tmp_path: Path) -> None:
    """volcano#5240: only what a pod asks for counts, and the pod that waits reads what is used up."""
    gpu = "nvidia.com/gpu"
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=8, resources={gpu: 4}), queue("q", capability={gpu: "1"}))
        await world.create(job("gpus", "q"), *members("gpus", 1, requests={"cpu": 1, gpu: 1}))
        await world.create(job("more", "q"), *members("more", 1, requests={"cpu": 1, gpu: 1}))
        await world.create(job("plain", "q"), *members("plain", 1, cpu=1))
        assert world.bound() == {"gpus-0", "plain-0"}
        text = f"waiting for queue q: {gpu} 1 allocated, 1 requested, 1 capability"
        assert world.message("more-0") == text


@virtual
@pytest.mark.parametrize("conf", [CAPACITY, PROPORTION], ids=["capacity", "proportion"])
async def test_a_capability_of_what_no_node_has_stops_nothing(tmp_path: Path, conf: str) -> None:
    """volcano#3220: others start, and a pod that asks for it is for an autoscaler to help."""
    gpu = "nvidia.com/gpu"
    async with running(config=config(tmp_path, conf)) as world:
        await world.create(make_node("n", cpu=8))
        await world.create(queue("wide", capability={"cpu": "99999", gpu: "9999", "example.com/rdma": "9"}))
        await world.create(job("plain", "wide", min_resources={"cpu": "1"}), *members("plain", 1, cpu=1))
        wanted = {"cpu": "1", gpu: "1"}
        await world.create(job("gpus", "wide", min_resources=wanted), *members("gpus", 1, requests=wanted))
        assert world.bound() == {"plain-0"}
        assert world.message("gpus-0") == f"0/1 nodes are available: 1 Insufficient {gpu}."
        assert [phase(world, name) for name in ("plain", "gpus")] == ["Running", "Inqueue"]


@virtual
async def test_a_queue_that_is_entitled_to_resources_in_a_full_cluster_gets_them(tmp_path: Path) -> None:
    """volcano#4679: the job is not admitted by what is free, so reclaim sees it."""
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=4))
        await world.create(queue("greedy", deserved={"cpu": "2"}), queue("owed", deserved={"cpu": "2"}))
        await world.create(job("many", "greedy"), *members("many", 4, cpu=1))
        assert len(world.bound()) == 4
        await world.create(job("gang", "owed", 2, min_resources={"cpu": "2"}))
        assert phase(world, "gang") == "Inqueue"
        world.cluster.will_answer("delete", Answer(seconds=3), times=2)
        await world.create(*members("gang", 2, cpu=1))
        await world.after(1)
        marks = [world.condition(f"many-{number}", "DisruptionTarget") for number in range(4)]
        text = "default-scheduler: preempting to accommodate a podgroup, by the rules of VolcanoPreemption"
        assert set(marks) == {None, ("True", "PreemptionByScheduler", text)}
        await world.after(5)
        names = world.bound()
        assert {"gang-0", "gang-1"} <= names
        assert len([name for name in names if name.startswith("many")]) == 2


@virtual
async def test_others_of_a_queue_do_not_take_the_room_that_victims_make(tmp_path: Path) -> None:
    """A smaller pod finds a node at once; the queue has room for one of both."""
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=4))
        owed = queue("owed", deserved={"cpu": "2"}, capability={"cpu": "2"})
        await world.create(queue("greedy", deserved={"cpu": "2"}), owed)
        await world.create(*(in_queue(f"many-{number}", "greedy") for number in range(4)))
        world.cluster.will_answer("delete", Answer(seconds=6), times=2)
        await world.create(in_queue("large", "owed", cpu=2))
        await world.after(2)
        await world.create(make_node("m", cpu=1), in_queue("small", "owed"))
        assert world.message("small") == (
            "waiting for queue owed: cpu 0 allocated, 1 requested, 2 capability (2 pipelined for pods that "
            "wait for their victims)"
        )
        await world.after(30)
        assert "large" in world.bound()
        assert "small" not in world.bound()
        await world.delete("large")
        assert "small" in world.bound()


@virtual
async def test_a_queue_takes_back_what_it_deserves_and_no_more(tmp_path: Path) -> None:
    """The example of Volcano's capacity plugin. While victims end, what they make room for counts."""
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=4), make_node("m", cpu=4))
        await world.create(queue("queue1", deserved={"cpu": "2"}), queue("queue2", deserved={"cpu": "6"}))
        await world.create(*(in_queue(f"one-{number}", "queue1") for number in range(8)))
        assert len(world.bound()) == 8
        world.cluster.will_answer("delete", Answer(seconds=3), times=8)
        await world.create(*(in_queue(f"two-{number}", "queue2") for number in range(8)))
        await world.after(30)
        assert len(set(world.cluster.written("delete"))) == 6
        assert sorted(name[:3] for name in world.bound()) == ["one"] * 2 + ["two"] * 6


@virtual
async def test_a_gang_backs_off_while_its_victims_end(tmp_path: Path) -> None:
    """It is tried after 1, 2, 4 and 8 s, and not all the time."""
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=2))
        await world.create(queue("greedy", deserved={"cpu": "1"}), queue("owed", deserved={"cpu": "1"}))
        await world.create(job("many", "greedy"), *members("many", 2, cpu=1))
        world.cluster.will_answer("delete", Answer(seconds=12))
        await world.create(job("gang", "owed"), *members("gang", 1, cpu=1))
        await world.after(11)
        assert 1 <= world.attempts("gang-0") <= 5
        await world.after(30)
        assert "gang-0" in world.bound()


@virtual
@pytest.mark.parametrize(("deserved", "started"), [(1, 0), (2, 2), (3, 3), (4, 4), (5, 4)])
async def test_a_gang_reclaims_for_as_many_members_as_its_queue_deserves(
    tmp_path: Path, deserved: int, started: int
) -> None:
    """At least for its minimum of two, or nothing is evicted."""
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=4), make_node("m", cpu=4))
        greedy = queue("greedy", deserved={"cpu": "2"})
        await world.create(greedy, queue("owed", deserved={"cpu": str(deserved)}))
        await world.create(job("many", "greedy"), *members("many", 8, cpu=1))
        await world.create(job("gang", "owed", 2), *members("gang", 4, cpu=1))
        await world.after(60)
        counts = [sum(name.startswith(group) for name in world.bound()) for group in ("gang", "many")]
        assert counts == [started, 8 - started]
        if not started:
            (condition,) = world.store.get(volcano.PodGroup, "gang", "default").status.conditions
            text = "queue owed is not entitled to this: cpu 0 allocated, 2 requested, 1 deserved"
            assert condition.message.endswith(text)


@virtual
async def test_a_job_of_a_higher_priority_preempts_in_its_queue(tmp_path: Path) -> None:
    """Its priority is that of its pods, if its PodGroup has no PriorityClass: the only one is being tried."""
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=2), queue("q"))
        await world.create(job("low", "q"), *members("low", 2, cpu=1, priority=1))
        await world.create(job("same", "q"), *members("same", 1, cpu=1, priority=1))
        await world.after(5)
        assert world.bound() == {"low-0", "low-1"}
        await world.create(job("high", "q"), *members("high", 1, cpu=1, priority=10))
        await world.after(5)
        assert world.bound() - {"low-0", "low-1"} == {"high-0"}


@virtual
async def test_a_queue_at_its_share_takes_nothing(tmp_path: Path) -> None:
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=4))
        await world.create(queue("a", deserved={"cpu": "2"}), queue("b", deserved={"cpu": "2"}))
        await world.create(job("one", "a"), *members("one", 2, cpu=1))
        await world.create(job("two", "b"), *members("two", 2, cpu=1))
        await world.create(job("more", "b"), *members("more", 1, cpu=1))
        await world.after(5)
        assert world.bound() == {"one-0", "one-1", "two-0", "two-1"}
        (condition,) = world.store.get(volcano.PodGroup, "more", "default").status.conditions
        text = "queue b is not entitled to this: cpu 2 allocated, 1 requested, 2 deserved"
        assert text in condition.message


@virtual
async def test_a_gang_at_its_minimum_does_not_protect_other_jobs_of_its_queue(tmp_path: Path) -> None:
    """The youngest job would be first, but it needs all its pods: another one of the queue loses two."""
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=4))
        await world.create(queue("greedy", deserved={"cpu": "2"}), queue("owed", deserved={"cpu": "2"}))
        await world.create(job("old", "greedy"), *members("old", 2, cpu=1))
        await world.create(job("young", "greedy", 2), *members("young", 2, cpu=1))
        await world.create(job("gang", "owed"), *members("gang", 1, cpu=1))
        await world.after(5)
        assert {"young-0", "young-1", "gang-0"} <= world.bound()


@virtual
async def test_critical_pods_are_no_victims(tmp_path: Path) -> None:
    """Neither is a gang at its minimum: if nothing else may go, the queue that is entitled waits."""
    async with running(config=config(tmp_path)) as world:
        critical = [
            replace(pod, spec=replace(pod.spec, priority_class_name="system-cluster-critical"))
            for pod in members("agents", 2, cpu=1)
        ]
        await world.create(make_node("n", cpu=4))
        await world.create(queue("greedy", deserved={"cpu": "2"}), queue("owed", deserved={"cpu": "2"}))
        await world.create(job("agents", "greedy", 1), *critical)
        await world.create(job("train", "greedy", 2), *members("train", 2, cpu=1))
        await world.create(job("gang", "owed"), *members("gang", 1, cpu=1))
        await world.after(5)
        assert world.bound() == {"agents-0", "agents-1", "train-0", "train-1"}


@virtual
async def test_a_gang_that_waits_for_its_queue_reports_the_limit(tmp_path: Path) -> None:
    """Not that members are missing, which was so before they were created. It is not an attempt."""
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=8), queue("q", capability={"cpu": "3"}))
        await world.create(job("first", "q"), *members("first", 1, cpu=2))
        await world.create(job("gang", "q", 2))
        await world.create(member("gang", 0, cpu=1))
        (condition,) = world.store.get(volcano.PodGroup, "gang", "default").status.conditions
        assert condition.reason == "NotEnoughTasks"
        await world.create(member("gang", 1, cpu=1))
        (condition,) = world.store.get(volcano.PodGroup, "gang", "default").status.conditions
        assert condition.reason == "SchedulingSkipped"
        text = "waiting for queue q: cpu 2 allocated, 2 requested, 3 capability"
        assert condition.message.endswith(f"Origin reason is: {text}")
        await world.delete("first-0")
        assert world.bound() == {"gang-0", "gang-1"}
        conditions = world.store.get(volcano.PodGroup, "gang", "default").status.conditions
        assert conditions[-1].type == "Scheduled"


@virtual
async def test_an_invalid_queue_only_stops_itself(tmp_path: Path) -> None:
    """volcano#4227: a parent that does not exist, and a job in a queue with children."""
    async with running(config=config(tmp_path, HIERARCHY)) as world:
        await world.create(make_node("n", cpu=8))
        await world.create(queue("eng"), queue("dev", parent="eng"), queue("stray", parent="gone"))
        await world.create(job("good", "dev"), *members("good", 1, cpu=1))
        await world.create(job("high", "eng"), *members("high", 1, cpu=1))
        await world.create(job("lost", "stray"), *members("lost", 1, cpu=1))
        assert world.bound() == {"good-0"}
        assert world.message("high-0") == "queue eng has children: jobs belong to one of its leaves"
        assert world.message("lost-0") == "queue stray cannot be used: its parent gone does not exist"
        await world.create(queue("gone"))
        assert world.bound() == {"good-0", "lost-0"}


@virtual
async def test_limits_of_parents_hold_for_their_children(tmp_path: Path) -> None:
    async with running(config=config(tmp_path, HIERARCHY)) as world:
        await world.create(make_node("n", cpu=8))
        await world.create(queue("eng", capability={"cpu": "2"}))
        await world.create(queue("dev", parent="eng"), queue("prod", parent="eng"))
        await world.create(job("a", "dev"), *members("a", 2, cpu=1))
        await world.create(job("b", "prod"), *members("b", 1, cpu=1))
        assert world.bound() == {"a-0", "a-1"}
        assert world.message("b-0") == "waiting for queue eng: cpu 2 allocated, 1 requested, 2 capability"


@virtual
async def test_proportion_divides_the_cluster_by_weight(tmp_path: Path) -> None:
    async with running(config=config(tmp_path, PROPORTION)) as world:
        await world.create(queue("a", weight=1), queue("b", weight=3))
        await world.create(job("one", "a"), *members("one", 8, cpu=1))
        await world.create(job("two", "b"), *members("two", 8, cpu=1))
        await world.create(make_node("n", cpu=8))
        counts = [sum(name.startswith(group) for name in world.bound()) for group in ("one", "two")]
        assert counts == [2, 6]
        waiting = next(
            pod.name for pod in world.store.list(Pod) if not pod.spec.node_name and "one" in pod.name
        )
        assert world.message(waiting) == (
            "waiting for queue a: cpu 2 allocated, 1 requested, 2 deserved (weight 1)"
        )


@virtual
@pytest.mark.parametrize(
    ("conf", "others", "reason"),
    [
        pytest.param(PROPORTION, {}, "Unschedulable", id="the part of an empty cluster"),
        pytest.param(PROPORTION, {"capability": {"cpu": "0.5"}}, "SchedulingSkipped", id="its capability"),
        pytest.param(CAPACITY, {"capability": {"cpu": "0.5"}}, "SchedulingSkipped", id="the same, capacity"),
    ],
)
async def test_an_autoscaler_helps_where_more_nodes_raise_the_limit(
    tmp_path: Path, conf: str, others: dict[str, Any], reason: str
) -> None:
    """Otherwise a cluster that begins without nodes would never get one: no queue deserves anything."""
    async with running(config=config(tmp_path, conf)) as world:
        await world.create(queue("q", **others), job("j", "q"), *members("j", 1, cpu=1))
        assert condition_reason(world, "j-0") == reason
        await world.create(make_node("n", cpu=4))
        assert world.bound() == (set() if others else {"j-0"})


@virtual
async def test_guarantees_stay_free(tmp_path: Path) -> None:
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=4))
        await world.create(queue("kept", guarantee={"cpu": "3"}, deserved={"cpu": "3"}), queue("other"))
        await world.create(job("j", "other"), *members("j", 2, cpu=1))
        assert len(world.bound()) == 1
        await world.create(job("k", "kept"), *members("k", 3, cpu=1))
        assert len(world.bound()) == 4


@virtual
async def test_a_closed_queue_takes_no_pods(tmp_path: Path) -> None:
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=4), queue("q", state="Closed"))
        await world.create(job("j", "q"), *members("j", 1, cpu=1))
        assert world.bound() == set()
        assert world.message("j-0") == "waiting for queue q: it is Closed, so it accepts no pods"
        assert phase(world, "j") == "Pending"


@virtual
async def test_jobs_are_admitted_as_their_minimum_fits(tmp_path: Path) -> None:
    """An admitted job that cannot be placed gives its reservation back (volcano#5006)."""
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=4), queue("q", capability={"cpu": "4"}))
        await world.create(job("large", "q", min_resources={"cpu": "3"}))
        await world.create(job("next", "q", min_resources={"cpu": "3"}))
        assert (phase(world, "large"), phase(world, "next")) == ("Inqueue", "Pending")
        (condition,) = world.store.get(volcano.PodGroup, "next", "default").status.conditions
        assert condition.message == (
            "waiting for queue q: cpu 0 allocated, 3 requested, 4 capability (3 reserved for jobs that are "
            "admitted)"
        )
        await world.create(*members("large", 1, cpu=3, node_selector={"disk": "ssd"}))
        await world.after(5)
        assert phase(world, "next") == "Inqueue"
        assert not world.store.get(volcano.PodGroup, "next", "default").status.conditions


@virtual
async def test_pods_without_a_group_use_their_annotation_or_the_default_queue(tmp_path: Path) -> None:
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=4), queue("q", capability={"cpu": "1"}))
        pods = [make_pod(name, cpu=1) for name in "ab"]
        notes = {volcano.QUEUE_ANNOTATION: "q"}
        await world.create(*(replace(p, metadata=replace(p.metadata, annotations=notes)) for p in pods))
        await world.create(make_pod("c", cpu=1))
        assert len(world.bound()) == 2
        assert "c" in world.bound()


@virtual
async def test_the_configuration_is_read_again_when_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An invalid one is reported, and the old one stays in force."""
    async with running(config=config(tmp_path, CAPACITY.replace(", preempt, reclaim", ""))) as world:
        await world.create(make_node("n", cpu=2))
        await world.create(queue("greedy", deserved={"cpu": "1"}), queue("owed", deserved={"cpu": "1"}))
        await world.create(job("many", "greedy"), *members("many", 2, cpu=1))
        await world.create(job("gang", "owed"), *members("gang", 1, cpu=1))
        file = tmp_path / "volcano-scheduler.conf"
        file.write_text("actions: dance")
        await world.after(60)
        assert "gang-0" not in world.bound()
        assert "the new configuration is invalid, the old one stays in force" in caplog.text
        assert "failed to find Action dance" in caplog.text
        file.write_text(CAPACITY)
        await world.after(60)
        assert "gang-0" in world.bound()
        assert "the configuration was reloaded from" in caplog.text


def test_an_invalid_configuration_is_rejected(tmp_path: Path) -> None:
    from bayplan.scheduler.capacity import read_conf

    settings = config(tmp_path, "actions: allocate, fly\n").bayplan.queues
    assert settings is not None
    with pytest.raises(ConfigError, match="failed to find Action  fly"):
        read_conf(settings)


@virtual
async def test_a_pod_that_has_to_wait_for_its_queue_does_not_keep_its_node(tmp_path: Path) -> None:
    """Its Queue is closed while its victim ends: others may use the room, whatever their priority."""
    async with running(config=config(tmp_path)) as world:
        await world.create(make_node("n", cpu=2))
        await world.create(queue("greedy", deserved={"cpu": "1"}), queue("owed", deserved={"cpu": "1"}))
        await world.create(*(in_queue(f"many-{number}", "greedy") for number in range(2)))
        world.cluster.will_answer("delete", Answer(seconds=3))
        await world.create(in_queue("one", "owed"))
        await world.after(1)
        known = world.store.get(volcano.Queue, "owed")
        closed = queue("owed", "Closed", deserved={"cpu": "1"})
        world.store.update(replace(closed, metadata=known.metadata))
        await world.after(1)
        await world.create(in_queue("more", "greedy"))
        await world.after(20)
        assert "more" in world.bound()
        assert not world.store.get(Pod, "one", "default").status.nominated_node_name
