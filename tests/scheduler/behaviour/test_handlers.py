"""What the scheduler makes of changes in the cluster: which pods are requeued, and what is counted where."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Change
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.framework.events import ClusterEvent
from bayplan.framework.plugin_api import Wait
from bayplan.framework.status import unschedulable
from bayplan.testing.builders import (
    make_csi_driver,
    make_csi_node,
    make_namespace,
    make_node,
    make_pdb,
    make_pod,
    make_pv,
    make_pvc,
    make_storage_class,
    make_toleration,
    make_volume_attachment,
)

from .running import Answer, World, plugin, running, virtual

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


class QueueEvent(NamedTuple):
    """An event of the queue, and the state of the cache at that moment."""

    label: str
    old: Object | None
    new: Object | None
    nodes: int
    pods: int


def record_events(world: World, monkeypatch: pytest.MonkeyPatch) -> list[QueueEvent]:
    """The events of the queue from now on."""
    events: list[QueueEvent] = []
    deliver = world.context.queue.move_to_active_or_backoff

    def move_to_active_or_backoff(
        event: ClusterEvent, old: Any = None, new: Any = None, precheck: Any = None
    ) -> None:
        cache = world.context.cache
        events.append(QueueEvent(event.label, old, new, cache.cluster.node_count, cache.pod_count))
        deliver(event, old, new, precheck)

    monkeypatch.setattr(world.context.queue, "move_to_active_or_backoff", move_to_active_or_backoff)
    return events


Act = Callable[[World], Awaitable[object]]


def labelled(pod: Pod) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, labels={"a": "b"}))


def tolerant(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, tolerations=(make_toleration("a"),)))


def ungated(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, scheduling_gates=()))


async def bound_elsewhere(world: World) -> None:
    world.store.bind("other", "default", "n")
    await world.after(0)


async def finished(world: World) -> None:
    world.store.set_pod_phase("runs", "default", "Succeeded")
    await world.after(0)


def created(*objects: Object) -> Act:
    return lambda world: world.create(*objects)


RUNS = make_pod("runs", node="n", cpu="1")
NODE = make_node("n", labels={"zone": "a"})


@pytest.mark.parametrize(
    ("act", "labels"),
    [
        pytest.param(created(make_pod("q", node="n")), ["AssignedPodAdd"], id="a pod is added with a node"),
        pytest.param(
            created(make_pod("q", node="n", scheduler_name="other")),
            ["AssignedPodAdd"],
            id="a pod of another scheduler is added with a node",
        ),
        pytest.param(
            created(make_pod("q", scheduler_name="other")),
            [],
            id="a waiting pod of another scheduler is added",
        ),
        pytest.param(
            created(make_pod("q")),
            ["AssignedPodAdd"],
            id="a pod of this scheduler is added: nothing until it is bound",
        ),
        pytest.param(bound_elsewhere, ["AssignedPodAdd"], id="another scheduler binds a pod"),
        pytest.param(
            lambda world: world.update("runs", labelled),
            ["AssignedPodUpdatePodLabel"],
            id="labels of a running pod change",
        ),
        pytest.param(
            lambda world: world.update("runs", tolerant),
            ["AssignedPodUpdatePodToleration"],
            id="a running pod tolerates more",
        ),
        pytest.param(
            lambda world: world.update("runs", lambda pod: tolerant(labelled(pod))),
            ["AssignedPodUpdatePodLabel", "AssignedPodUpdatePodToleration"],
            id="several changes are separate events",
        ),
        pytest.param(
            lambda world: world.update(
                "runs", lambda pod: replace(pod, metadata=replace(pod.metadata, annotations={"a": "b"}))
            ),
            ["AssignedPodUpdate"],
            id="anything else of a running pod changes",
        ),
        pytest.param(
            lambda world: world.delete("runs"), ["AssignedPodDelete"], id="a running pod is deleted"
        ),
        pytest.param(finished, ["AssignedPodDelete"], id="a running pod ends"),
        pytest.param(
            lambda world: world.delete("other"), [], id="a waiting pod of another scheduler is deleted"
        ),
        pytest.param(
            lambda world: world.update("gated", labelled),
            [],
            id="a waiting pod changes: only it is evaluated",
        ),
        pytest.param(
            lambda world: world.delete("gated"), [], id="a waiting pod without a nomination is deleted"
        ),
        pytest.param(created(make_node("m")), ["NodeAdd"], id="a node is added"),
        pytest.param(lambda world: world.delete_node("n"), ["NodeDelete"], id="a node is deleted"),
        pytest.param(
            lambda world: world.update_node(make_node("n", cpu="64", labels={"zone": "a"})),
            ["NodeUpdateNodeAllocatable"],
            id="a node grows",
        ),
        pytest.param(
            lambda world: world.update_node(make_node("n")),
            ["NodeUpdateNodeLabel"],
            id="labels of a node change",
        ),
        pytest.param(
            lambda world: world.update_node(make_node("n", labels={"zone": "a"}, taints=["a:NoSchedule"])),
            ["NodeUpdateNodeTaint"],
            id="a node is tainted",
        ),
        pytest.param(
            lambda world: world.update_node(make_node("n", labels={"zone": "a"}, annotations={"a": "b"})),
            ["NodeUpdateNodeAnnotation"],
            id="annotations of a node change",
        ),
        pytest.param(
            lambda world: world.update_node(make_node("n", cpu="64", taints=["a:NoSchedule"])),
            ["NodeUpdateNodeAllocatable", "NodeUpdateNodeLabel", "NodeUpdateNodeTaint"],
            id="several changes of a node are separate events",
        ),
        pytest.param(created(make_pvc("c")), ["PersistentVolumeClaimAdd"], id="a claim is added"),
        pytest.param(created(make_pv("v")), ["PersistentVolumeAdd"], id="a volume is added"),
        pytest.param(
            created(make_storage_class("s")),
            ["storage.k8s.io/StorageClassAdd"],
            id="a storage class is added",
        ),
        pytest.param(created(make_csi_node("n")), ["storage.k8s.io/CSINodeAdd"], id="a CSINode is added"),
        pytest.param(
            created(make_csi_driver("d")), ["storage.k8s.io/CSIDriverAdd"], id="a CSIDriver is added"
        ),
        pytest.param(
            created(make_volume_attachment("a", node="n", driver="d", volume="v")),
            ["storage.k8s.io/VolumeAttachmentAdd"],
            id="a volume is attached",
        ),
        pytest.param(created(make_pdb("b")), [], id="a disruption budget is added: read, but no event"),
        pytest.param(created(make_namespace("b")), [], id="a namespace is added: read, but no event"),
    ],
)
@virtual
async def test_the_events_of_the_queue_for_a_change(
    act: Act, labels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = [NODE, RUNS, make_pod("other", scheduler_name="other"), make_pod("gated", gates=["g"])]
    async with running(*objects) as world:
        events = record_events(world, monkeypatch)
        await act(world)
        assert [event.label for event in events] == labels


@virtual
async def test_the_queue_gets_events_of_pods_after_the_cache_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(NODE, make_pod("gated", gates=["g"])) as world:
        events = record_events(world, monkeypatch)
        await world.create(make_pod("q", node="n"))
        await world.delete("q")
        assert [(event.label, event.pods) for event in events] == [
            ("AssignedPodAdd", 1),
            ("AssignedPodDelete", 0),
        ]


@virtual
async def test_the_queue_gets_events_of_a_node_after_it_is_added_and_before_it_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        events = record_events(world, monkeypatch)
        await world.create(make_node("m"))
        await world.delete_node("m")
        assert [(event.label, event.nodes) for event in events] == [("NodeAdd", 1), ("NodeDelete", 1)]


@virtual
async def test_updates_and_deletes_are_reported_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(make_pvc("c")) as world:
        events = record_events(world, monkeypatch)
        claim = world.store.get(PersistentVolumeClaim, "c", "default")
        world.store.update(replace(claim, metadata=replace(claim.metadata, labels={"a": "b"})))
        world.store.delete(PersistentVolumeClaim, "c", "default")
        await world.after(0)
        assert [
            (event.label, event.old and event.old.labels, event.new and event.new.labels) for event in events
        ] == [
            ("PersistentVolumeClaimUpdate", {}, {"a": "b"}),
            ("PersistentVolumeClaimDelete", {"a": "b"}, None),
        ]


# Waiting pods


@virtual
async def test_a_pod_whose_gates_are_gone_is_scheduled() -> None:
    async with running(NODE, make_pod("p", gates=["g"])) as world:
        assert world.node_of("p") == ""
        assert world.events("p") == []
        await world.update("p", ungated)
        assert world.node_of("p") == "n"


@virtual
async def test_a_waiting_pod_that_is_deleted_leaves_the_queue() -> None:
    async with running(NODE, make_pod("p", cpu="64")) as world:
        await world.delete("p")
        await world.create(make_node("m", cpu="64"))
        assert world.sub_queue("p") == ""
        assert world.attempts("p") == 1


@virtual
async def test_a_waiting_pod_that_another_client_binds_leaves_the_queue_and_counts() -> None:
    async with running(make_node("n", cpu="4"), make_pod("p", cpu="5")) as world:
        await world.create(make_node("m", cpu="4"))
        world.store.bind("p", "default", "m")
        await world.create(make_pod("q", cpu="1"))
        assert world.sub_queue("p") == ""
        assert world.counted("p") == "m"
        assert world.node_of("q") == "n"


@pytest.mark.parametrize(
    ("change", "requeued"),
    [
        pytest.param(lambda pod: replace(pod.status, nominated_node_name=""), True, id="is cleared"),
        pytest.param(lambda pod: replace(pod.status, nominated_node_name="m"), True, id="is changed"),
        pytest.param(lambda pod: replace(pod.status, phase="Pending"), False, id="stays"),
    ],
)
@virtual
async def test_a_cleared_nomination_frees_the_room_for_pods_of_equal_priority(
    change: Callable[[Pod], Any], requeued: bool
) -> None:
    """Only pods of at most its priority could have been rejected because of it."""
    never = plugin("Never", pre_filter=_turns_away("p"), events_to_register=list)
    async with running(make_node("n", cpu="4"), plugins=[never]) as world:
        await world.create(make_pod("p", cpu="4", priority=5, nominated_node="n"))
        await world.update("p", lambda pod: replace(pod, status=replace(pod.status, nominated_node_name="n")))
        await world.create(make_pod("equal", cpu="3", priority=5))
        assert "Insufficient cpu" in world.message("equal")
        await world.update("p", lambda pod: replace(pod, status=change(pod)))
        assert (world.node_of("equal") == "n") == requeued


def _turns_away(name: str) -> Callable[..., Any]:
    return lambda state, pod, nodes: unschedulable("no") if pod.name == name else None


@virtual
async def test_a_nominated_pod_that_is_deleted_frees_the_room() -> None:
    never = plugin("Never", pre_filter=_turns_away("p"), events_to_register=list)
    async with running(make_node("n", cpu="4"), plugins=[never]) as world:
        await world.create(make_pod("p", cpu="4", priority=5))
        await world.update("p", lambda pod: replace(pod, status=replace(pod.status, nominated_node_name="n")))
        await world.create(make_pod("q", cpu="3", priority=5))
        assert world.node_of("q") == ""
        await world.delete("p")
        assert world.node_of("q") == "n"


# Pods whose binding is in progress


@virtual
async def test_changes_of_a_pod_that_is_being_bound_are_ignored() -> None:
    async with running(NODE) as world:
        world.cluster.will_answer("bind", Answer(seconds=5))
        await world.create(make_pod("p"))
        await world.update("p", labelled)
        assert world.sub_queue("p") == ""
        await world.after(5)
        assert world.node_of("p") == "n"
        assert world.attempts("p") == 1


@virtual
async def test_a_pod_that_is_deleted_while_it_waits_for_a_permit_is_rejected() -> None:
    x = plugin("X", permit=lambda *_: Wait(60), events_to_register=list)
    async with running(NODE, make_pod("p"), plugins=[x]) as world:
        pod = world.pod("p")
        meta = replace(pod.metadata, deletion_timestamp=MIDNIGHT, resource_version="999")
        await world.show(Change.MODIFIED, replace(pod, metadata=meta))
        assert len(world.context.waiting) == 0
        assert world.context.cache.assumed_count == 0
        assert world.message("p") == "0/1 nodes are available: 1 removed."


@virtual
async def test_a_pod_that_is_deleted_while_it_is_being_bound_makes_room() -> None:
    async with running(make_node("n", cpu="4")) as world:
        world.cluster.will_answer("bind", Answer(seconds=60))
        await world.create(make_pod("p", cpu="3"))
        await world.create(make_pod("q", cpu="3"))
        pod = world.pod("p")
        meta = replace(pod.metadata, deletion_timestamp=MIDNIGHT, resource_version="999")
        await world.show(Change.MODIFIED, replace(pod, metadata=meta))
        assert world.node_of("q") == "n"


# Nodes


@virtual
async def test_pods_may_come_before_their_node() -> None:
    """They count there as soon as it is added, and nothing is tried on a node that is not added yet."""
    early = make_pod("early", cpu="3", node="late")
    async with running(early, make_pod("p", cpu="2")) as world:
        assert world.message("p") == "no nodes available to schedule pods"
        await world.create(make_node("late", cpu="4"))
        await world.after(2)
        assert world.message("p").startswith("0/1 nodes are available: 1 Insufficient cpu.")


@virtual
async def test_a_deleted_node_is_no_longer_used_and_its_pods_stay_in_the_cache() -> None:
    async with running(make_node("n", cpu="4"), make_node("m", cpu="4")) as world:
        await world.create(make_pod("p", cpu="3", node="n"))
        await world.delete_node("n")
        await world.create(make_pod("q", cpu="1"))
        assert world.node_of("q") == "m"
        assert world.counted("p") == "n"
        await world.create(make_node("n", cpu="4"))
        await world.create(make_pod("r", cpu="4"))
        assert world.node_of("r") == ""
        await world.delete("p")
        assert world.node_of("r") == "n"


@virtual
async def test_the_last_pod_of_a_node_that_is_gone_takes_it_along() -> None:
    async with running(make_node("n"), make_pod("p", node="n")) as world:
        await world.delete_node("n")
        assert world.context.cache.node_count == 1
        await world.delete("p")
        assert world.context.cache.node_count == 0


# Where cache and API server disagree


@virtual
async def test_a_pod_that_is_bound_elsewhere_than_assumed_counts_where_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """kube-scheduler ends there."""
    async with running(make_node("n", cpu="4"), make_node("m", cpu="4")) as world:
        await world.create(make_pod("p", cpu="3", node="n"))
        pod = world.pod("p")
        moved = replace(
            pod,
            metadata=replace(pod.metadata, resource_version="999"),
            spec=replace(pod.spec, node_name="m"),
        )
        await world.show(Change.MODIFIED, moved)
        assert world.counted("p") == "m"
        await world.create(make_pod("q", cpu="4"))
        assert world.node_of("q") == "n"
    assert "pod default/p is on node m, not on n as assumed" in caplog.text


@virtual
async def test_a_pod_that_was_deleted_elsewhere_than_counted_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(make_node("n", cpu="4")) as world:
        await world.create(make_pod("p", cpu="3", node="n"))
        pod = world.pod("p")
        await world.show(Change.DELETED, replace(pod, spec=replace(pod.spec, node_name="m")))
        await world.create(make_pod("q", cpu="4"))
        assert world.node_of("q") == "n"
    assert "pod default/p was deleted on node m but counted on n" in caplog.text


@virtual
async def test_a_pod_whose_binding_was_never_seen_is_removed_all_the_same() -> None:
    """The watch broke; the list that followed shows that the pod has been bound and is gone."""
    async with running(make_node("n", cpu="4")) as world:
        await world.create(make_pod("p", cpu="5"))
        bound = replace(world.pod("p"), spec=replace(world.pod("p").spec, node_name="n"))
        await world.show(Change.DELETED, bound)
        assert world.sub_queue("p") == ""
        await world.create(make_pod("q", cpu="4"))
        assert world.node_of("q") == "n"
