"""Pods in capacity queues: who is next, who waits and why, and what wakes them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Event
from bayplan.api.meta import (
    OWN_API_VERSION,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
)
from bayplan.api.pod import Affinity, NodeAffinity, Pod
from bayplan.api.workloads import PriorityClass
from bayplan.metrics.scheduler import SchedulerMetrics
from bayplan.queues.records import created_at
from bayplan.scheduler.queue_config_map import ConfigMap
from bayplan.testing.builders import make_node, make_pdb, make_pod
from tests.queues.building import queued_pod as pod
from tests.queues.building import queues_config as config
from tests.queues.building import queues_file

from .running import Answer, World, running, virtual

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


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    return queues_file(tmp_path, QUEUES)


@virtual
async def test_a_pod_above_the_ceiling_waits_with_the_numbers(queues: Path) -> None:
    """It is not tried, has no backoff, and its condition says which limit it waits for."""
    async with running(NODE, config=config(queues)) as world:
        await world.create(pod("one", "a", 3), pod("two", "a", 2), pod("small", "a", 1))
        assert world.order() == ["one", "small"]
        assert world.rejection("two") == (
            "SchedulingSkipped: waiting for quota of queue root.a: vcore 3 used, 2 asked, 4 max"
        )
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
async def test_invalid_task_groups_are_reported(queues: Path) -> None:
    """The pod is scheduled by itself, and YuniKorn's event says why."""
    notes = {"yunikorn.apache.org/task-groups": "[1]"}
    async with running(NODE, config=config(queues)) as world:
        await world.create(pod("driver", "a", annotations=notes), pod("executor", "a"))
        assert world.node_of("driver") == "n"
        note = "unable to get taskGroups for pod, reason: a task group is not a JSON object"
        assert ("TaskGroupsError", note) in world.events("driver")
        assert "TaskGroupsError" not in dict(world.events("executor"))


@virtual
async def test_an_application_is_as_old_as_its_oldest_pod_that_exists(queues: Path) -> None:
    """A pending pod counts wherever it waits, until it is deleted."""
    async with running(make_node("n", cpu=2), config=config(queues)) as world:
        await world.create(pod("huge", "b", 3))
        await world.after(2)
        await world.create(pod("one", "b", 1))
        first, second = (created_at(world.pod(name)) for name in ("huge", "one"))
        assert first < second
        assert world.scheduler.queues is not None
        group = world.scheduler.queues.group_if_known(world.pod("one"))
        assert group is not None
        assert group.created == first
        await world.delete("huge")
        assert group.created == second


@virtual
async def test_the_number_of_applications_is_limited(queues: Path) -> None:
    async with running(NODE, config=config(queues)) as world:
        await world.create(pod("x1", "few", app="x"), pod("y1", "few", app="y"), pod("x2", "few", app="x"))
        assert world.order() == ["x1", "x2"]
        assert world.rejection("y1") == (
            "SchedulingSkipped: waiting for quota of queue root.few: applications 1 used, 1 asked, 1 max"
        )
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
        assert world.rejection("ann2") == (
            "SchedulingSkipped: waiting for quota of user ann in queue root.limited: "
            "vcore 1 used, 1 asked, 1 max"
        )


@virtual
async def test_a_pod_without_a_queue_is_reported(queues: Path) -> None:
    async with running(NODE, config=config(queues)) as world:
        await world.create(pod("p", "nowhere", app="x"))
        assert world.rejection("p") == (
            "SchedulingSkipped: failed to place application x: "
            "application rejected: no placement rule matched (queue root.nowhere does not exist)"
        )
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
        text = world.rejection("huge")
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
        assert 'yunikorn_queue_app{queue="root.a",state="running"} 1' in text


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
    return queues_file(tmp_path, PREEMPTION)


@virtual
async def test_a_queue_below_its_guarantee_takes_from_one_above_its_guarantee(guarantees: Path) -> None:
    """After the delay, as many pods as it needs, and the other queue keeps its guarantee."""
    async with running(make_node("n", cpu=4), config=config(guarantees)) as world:
        await world.create(*(pod(f"r{i}", "rich") for i in range(4)))
        await world.create(pod("big", "owed", 3))
        assert len(world.names()) == 5
        assert "may preempt others 10 s after" in world.message("big")
        await world.after(11)
        assert world.node_of("big") == "n"
        assert len([name for name in world.names() if name.startswith("r")]) == 1


ALLOW = "yunikorn.apache.org/allow-preemption"


@virtual
@pytest.mark.parametrize(
    ("app", "fields", "said_by_class"),
    [
        pytest.param("old", {"annotations": {ALLOW: "false"}}, "true", id="it says so"),
        pytest.param("old", {}, "false", id="its PriorityClass says so"),
        pytest.param("new", {}, "true", id="it is the first of its application"),
    ],
)
@pytest.mark.parametrize("node", ["n", "m"])
async def test_some_pods_are_victims_last(
    guarantees: Path, app: str, fields: dict[str, Any], said_by_class: str, node: str
) -> None:
    """A pod that opted out, and the first one of an application: although it is newer, on whatever node."""
    nodes = [make_node(name, cpu=2 + (name == node)) for name in ("n", "m")]
    async with running(*nodes, config=config(guarantees)) as world:
        await world.create(
            PriorityClass(metadata=ObjectMeta(name="batch", annotations={ALLOW: said_by_class})),
            pod("first", "rich", app="old", node="n"),
            pod("other", "closed", 2, node="m"),
        )
        await world.after(2)
        await world.create(pod("plain", "rich", app="old", node="n"))
        await world.after(2)
        spared = pod("spared", "rich", app=app, node=node, **fields)
        await world.create(replace(spared, spec=replace(spared.spec, priority_class_name="batch")))
        await world.create(pod("urgent", "owed"))
        await world.after(20)
        assert world.names() == ["first", "other", "spared", "urgent"]


@virtual
async def test_a_queue_takes_no_more_than_its_guarantee(guarantees: Path) -> None:
    """However many of its pods wait: what was freed for the first of them counts before they have a node."""
    async with running(make_node("n", cpu=8), config=config(guarantees)) as world:
        await world.create(*(pod(f"r{number}", "rich") for number in range(8)))
        await world.create(*(pod(f"o{number}", "owed") for number in range(6)))
        await world.after(120)
        assert placed(world) == "ooo" + "r" * 5


@virtual
async def test_queues_that_are_owed_at_the_same_time_leave_a_guarantee_alone(tmp_path: Path) -> None:
    """A pod that was chosen as a victim counts as gone for the next one, before it terminates."""
    path = tmp_path / "queues.yaml"
    owed = "resources: {guaranteed: {vcore: 2}}, properties: {preemption.delay: 10s}"
    queues = (
        f"[{{name: a, {owed}}}, {{name: b, {owed}}}, {{name: rich, resources: {{guaranteed: {{vcore: 3}}}}}}]"
    )
    path.write_text(f"partitions: [{{name: d, queues: [{{name: root, submitacl: '*', queues: {queues}}}]}}]")
    nodes = [make_node(f"n{number}", cpu=1) for number in range(4)]
    async with running(*nodes, config=config(path)) as world:
        await world.create(*(pod(f"r{number}", "rich") for number in range(4)))
        await world.create(pod("a", "a"), pod("b", "b"))
        await world.after(120)
        assert placed(world) in ("arrr", "brrr")


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
        assert "is not entitled" in world.message("next")


@virtual
async def test_a_queue_without_a_guarantee_never_preempts(guarantees: Path) -> None:
    """And says so at once, instead of when its pods would be old enough."""
    async with running(make_node("n", cpu=1), config=config(guarantees)) as world:
        await world.create(pod("r0", "rich"))
        await world.create(pod("c0", "closed", priority=100))
        assert world.message("c0").endswith(
            "preemption: queue root.closed is not entitled to what the pod requests"
        )


@virtual
async def test_preemption_policy_never_is_respected(guarantees: Path) -> None:
    async with running(make_node("n", cpu=2), config=config(guarantees)) as world:
        await world.create(pod("r0", "rich"), pod("r1", "rich"))
        labels = {"queue": "root.owed", "applicationId": "o"}
        await world.create(make_pod("never", cpu=1, labels=labels, preemption_policy="Never"))
        await world.after(60)
        assert world.names() == ["never", "r0", "r1"]


DISABLED = PREEMPTION.replace("- name: default\n", "- name: default\n  preemption: {enabled: false}\n")


@virtual
async def test_preemption_may_be_disabled(guarantees: Path) -> None:
    """A reload that enables it is noticed by pods that wait for nodes."""
    guarantees.write_text(DISABLED)
    async with running(make_node("n", cpu=2), config=config(guarantees)) as world:
        await world.create(pod("r0", "rich"), pod("r1", "rich"))
        await world.create(pod("o0", "owed"))
        await world.after(60)
        assert world.names() == ["o0", "r0", "r1"]
        assert world.message("o0").endswith("preemption: disabled by preemption.enabled of the partition")
        guarantees.write_text(PREEMPTION)
        await world.after(20)
        assert world.node_of("o0") == "n"


def daemon(name: str, queue: str, node: str, **fields: Any) -> Pod:
    """A pod of a DaemonSet for one node."""
    made = pod(name, queue, **fields)
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="d", uid="d", controller=True)
    term = NodeSelectorTerm(
        match_fields=(LabelSelectorRequirement(key="metadata.name", operator="In", values=(node,)),)
    )
    affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))
    return replace(
        made,
        metadata=replace(made.metadata, owner_references=(owner,)),
        spec=replace(made.spec, affinity=affinity),
    )


@virtual
async def test_a_daemon_takes_what_it_needs_on_its_node(guarantees: Path) -> None:
    """Whatever is guaranteed, and at once: it can run nowhere else. Pods that opted out are spared."""
    nodes = (make_node("n", cpu=2), make_node("m", cpu=2))
    async with running(*nodes, config=config(guarantees)) as world:
        opted_out = {"yunikorn.apache.org/allow-preemption": "false"}
        await world.create(pod("spared", "rich", annotations=opted_out, node="n"))
        await world.create(pod("driver", "closed", node="m"))
        await world.after(2)
        await world.create(pod("victim", "closed", node="n"))
        await world.create(daemon("d", "rich", "n"))
        await world.after(5)
        assert world.names() == ["d", "driver", "spared"]
        assert world.node_of("d") == "n"


# Preemption for room in queues


CEILINGS = """
partitions:
- name: default
  preemption: {quotapreemptionenabled: true}
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: p
      resources: {max: {vcore: 4}}
      queues:
      - name: owed
        resources: {guaranteed: {vcore: 2}}
        properties: {preemption.delay: 10s}
      - name: rich
        resources: {guaranteed: {vcore: 1}}
    - name: shrinks
      resources: {guaranteed: {vcore: 1}, max: {vcore: 4}}
      properties: {quota.preemption.delay: 20s}
"""


AS_LARGE = "{guaranteed: {vcore: 1}, max: {vcore: 4}}"


@pytest.fixture
def ceilings(tmp_path: Path) -> Path:
    return queues_file(tmp_path, CEILINGS)


@virtual
async def test_a_queue_takes_below_the_ceiling_of_its_parent(ceilings: Path) -> None:
    """After the delay, on whichever nodes; the other queue keeps its guarantee."""
    nodes = (make_node("n", cpu=4), make_node("m", cpu=4))
    async with running(*nodes, config=config(ceilings)) as world:
        await world.create(*(pod(f"r{i}", "p.rich") for i in range(4)))
        await world.create(pod("big", "p.owed", 2))
        assert "queue root.p: vcore 4 used, 2 asked, 4 max" in world.message("big")
        await world.after(9)
        assert len(world.names()) == 5
        await world.after(5)
        assert world.node_of("big")
        assert len([name for name in world.names() if name.startswith("r")]) == 2
        await world.create(pod("more", "p.rich"))
        await world.after(60)
        assert not world.node_of("more")


TENANTS = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: sandbox
      resources: {max: {vcore: 10}}
      queues:
      - name: tenants
        properties: {preemption.policy: fence, preemption.delay: 10s}
        queues:
        - {name: normal, resources: {guaranteed: {vcore: 3}}}
        - {name: high, resources: {guaranteed: {vcore: 3}}, properties: {priority.offset: "1000"}}
      - name: system
        properties: {priority.offset: "-9999"}
"""


def placed(world: World) -> str:
    """The first letters of the names of pods with a node."""
    return "".join(sorted(name[0] for name in world.names() if world.node_of(name)))


@virtual
async def test_tenants_take_what_they_are_guaranteed_one_pod_after_the_other(tmp_path: Path) -> None:
    """As YuniKorn's example expects: nothing outside the fence, nothing below a guarantee."""
    path = queues_file(tmp_path, TENANTS)
    async with running(make_node("n", cpu=20), make_node("m", cpu=20), config=config(path)) as world:

        async def submit(letter: str, queue: str, count: int = 10, priority: int = 0) -> None:
            pods = (
                pod(f"{letter}{number}", f"sandbox.{queue}", 1, letter, priority=priority)
                for number in range(count)
            )
            await world.create(*pods)
            await world.after(20)

        await submit("s", "system", 5)
        await submit("n", "tenants.normal")
        assert placed(world) == "nnnnnsssss"
        await submit("h", "tenants.high")
        assert placed(world) == "hhnnnsssss", "normal keeps its guarantee, and system is outside the fence"
        await world.delete(*(name for name in world.names() if name.startswith("n")))
        await world.after(1)
        assert placed(world) == "hhhhhsssss"
        await submit("x", "tenants.normal", priority=9999)
        assert placed(world) == "hhhsssssxx", "its own priority is above the offset of high"


@pytest.mark.parametrize("protected", [("r0", "r1"), ("r2", "r3")])
@virtual
async def test_pods_with_a_budget_are_taken_last_below_a_ceiling(
    ceilings: Path, protected: tuple[str, ...]
) -> None:
    async with running(make_node("n", cpu=8), config=config(ceilings)) as world:
        await world.create(make_pdb("budget", labels={"kept": "yes"}, allowed=0))
        pods = [pod(f"r{i}", "p.rich") for i in range(4)]
        for each in pods:
            kept = {"kept": "yes"} if each.name in protected else {}
            labels = {**each.metadata.labels, **kept}
            await world.create(replace(each, metadata=replace(each.metadata, labels=labels)))
        await world.create(pod("big", "p.owed", 2))
        await world.after(14)
        assert world.names() == ["big", *protected]


@virtual
async def test_nothing_is_taken_below_a_ceiling_if_no_node_fits(ceilings: Path) -> None:
    nodes = [make_node(f"n{i}", cpu=1) for i in range(4)]
    async with running(*nodes, config=config(ceilings)) as world:
        await world.create(*(pod(f"r{i}", "p.rich") for i in range(4)))
        await world.create(pod("big", "p.owed", 2))
        await world.after(60)
        await world.create(pod("other", "p.rich"))
        await world.after(60)
        assert len(world.names()) == 6
        assert world.cluster.written("delete") == []


LIMITS = {
    "of the user": "limits: [{limit: l, users: [ann], maxresources: {vcore: 1}}]",
    "on applications": "maxapplications: 1",
}


@pytest.mark.parametrize("limit", LIMITS)
@virtual
async def test_nothing_is_taken_below_a_ceiling_for_another_limit(ceilings: Path, limit: str) -> None:
    """Pods that have to wait for something else afterwards evict none."""
    ceilings.write_text(CEILINGS.replace("- name: owed\n", f"- name: owed\n        {LIMITS[limit]}\n"))
    async with running(make_node("n", cpu=8), config=config(ceilings)) as world:
        await world.create(pod("own", "p.owed", 1, "one", "ann"), *(pod(f"r{i}", "p.rich") for i in range(3)))
        await world.create(pod("new", "p.owed", 1, "two", "ann"))
        await world.after(60)
        assert world.cluster.written("delete") == []
        await world.delete("own")
        await world.after(60)
        assert world.node_of("new")


@virtual
async def test_what_is_reserved_below_a_ceiling_is_given_up_if_it_is_of_no_use(ceilings: Path) -> None:
    """The limit of its parent is lowered while its victims end, so the pod has to wait."""
    lowered = CEILINGS.replace("max: {vcore: 4}", "max: {vcore: 3}", 1)
    async with running(make_node("n", cpu=6), config=config(ceilings)) as world:
        await world.create(pod("r0", "p.rich", 2), pod("r1", "p.rich", 2))
        await world.create(pod("big", "p.owed", 2))
        world.cluster.will_answer("delete", Answer(seconds=8))
        await world.after(11)
        ceilings.write_text(lowered)
        await world.after(10)
        assert len(world.names()) == 2
        await world.create(pod("other", "shrinks", 4))
        assert not world.node_of("other"), "the room of the victim is reserved"
        await world.after(20)
        assert world.node_of("other")
        assert not world.node_of("big")


@virtual
async def test_siblings_do_not_take_the_guarantee_of_their_parent_from_each_other(tmp_path: Path) -> None:
    """Each of them could say that its parent is guaranteed what the other uses."""
    text = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: p
      resources: {guaranteed: {vcore: 1}}
      properties: {preemption.delay: 1s}
      queues: [{name: x}, {name: y}, {name: z}]
"""
    path = queues_file(tmp_path, text)
    async with running(make_node("n", cpu=2), config=config(path)) as world:
        await world.create(pod("z", "p.z"), pod("y", "p.y"))
        await world.create(pod("x", "p.x"))
        await world.after(60)
        assert world.names() == ["x", "y", "z"]
        assert "is not entitled" in world.message("x")


@virtual
async def test_nothing_is_taken_below_a_ceiling_beyond_the_guarantee(ceilings: Path) -> None:
    async with running(make_node("n", cpu=8), config=config(ceilings)) as world:
        await world.create(*(pod(f"r{i}", "p.rich") for i in range(4)))
        await world.create(pod("big", "p.owed", 3))
        await world.after(60)
        assert world.cluster.written("delete") == []


@virtual
async def test_a_lowered_maximum_is_enforced_after_its_delay(ceilings: Path) -> None:
    """Not below the guarantee, with the event of YuniKorn, and those last that are to be spared."""
    async with running(make_node("n", cpu=8), config=config(ceilings)) as world:
        await world.create(pod("first", "shrinks"))
        await world.after(2)
        await world.create(*(pod(f"s{i}", "shrinks") for i in range(2)))
        await world.create(pod("spared", "shrinks", annotations={ALLOW: "false"}))
        ceilings.write_text(
            CEILINGS.replace("{guaranteed: {vcore: 1}, max: {vcore: 4}}", "{max: {vcore: 2}}")
        )
        await world.after(20)
        assert len(world.names()) == 4
        await world.after(10)
        assert world.names() == ["first", "spared"]
        notes = [event.note for event in world.store.list(Event) if event.reason == "Preempted"]
        assert notes == ["Preempted by Quota change enforcement process in root.shrinks"] * 2


@virtual
async def test_a_lowered_maximum_evicts_nothing_unless_it_is_configured(ceilings: Path) -> None:
    ceilings.write_text(
        text := CEILINGS.replace("quotapreemptionenabled: true", "quotapreemptionenabled: false")
    )
    async with running(make_node("n", cpu=8), config=config(ceilings)) as world:
        await world.create(*(pod(f"s{i}", "shrinks") for i in range(4)))
        ceilings.write_text(
            text.replace("max: {vcore: 4}}\n      properties", "max: {vcore: 2}}\n      properties")
        )
        await world.after(60)
        assert len(world.names()) == 4


@virtual
async def test_the_file_may_be_in_a_config_map(caplog: pytest.LogCaptureFixture) -> None:
    """It is read before the first pod is scheduled, and again when it changes; an invalid one is ignored."""

    def config_map(text: str) -> ConfigMap:
        meta = ObjectMeta(name="yunikorn-configs", namespace="yunikorn")
        return ConfigMap(metadata=meta, data={"queues.yaml": text})

    settings = "queues: {configMap: yunikorn/yunikorn-configs}"
    document = f"---\napiVersion: {OWN_API_VERSION}\nkind: BayplanConfiguration\n{settings}\n"
    objects = (NODE, config_map(QUEUES), pod("one", "a", 4), pod("two", "a", 2))
    async with running(*objects, config=document) as world:
        assert world.order() == ["one"]
        stored = world.store.get(ConfigMap, "yunikorn-configs", "yunikorn")
        world.store.update(replace(stored, data={"queues.yaml": "partitions: [{name: default}]"}))
        await world.after(6)
        assert "queue config is not set" in caplog.text
        stored = world.store.get(ConfigMap, "yunikorn-configs", "yunikorn")
        larger = QUEUES.replace("max: {vcore: 4}", "max: {vcore: 6}")
        world.store.update(replace(stored, data={"queues.yaml": larger}))
        await world.after(6)
        assert world.order() == ["one", "two"]
