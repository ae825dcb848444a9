"""Every write of the client, read back from the real server: what was meant is there, and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Event, EventSeries, PodStatusPatch
from bayplan.api.meta import Condition, ObjectMeta, ObjectReference
from bayplan.api.pod import Pod
from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim
from bayplan.client.http import KubernetesCluster
from bayplan.errors import APIError, ConflictError, NotFoundError
from conformance.harness.admin import Admin, Raw
from conformance.harness.clients import with_client
from conformance.harness.control_plane import NOBODY, ControlPlane
from conformance.harness.objects import condition, pod

Prepare = Callable[[Admin], Awaitable[Any]]


# Binding


def test_a_binding_assigns_the_pod_and_marks_it_scheduled(plane: ControlPlane) -> None:
    async def act(admin: Admin, cluster: KubernetesCluster) -> Raw:
        await admin.create(pod("bound"))
        waiting = await cluster.get(Pod, "bound", "default")
        await cluster.patch_pod_status(waiting, PodStatusPatch(nominated_node_name="n1"))
        await cluster.bind(waiting, "n1")
        return await admin.get("Pod", "bound", "default")

    written = with_client(plane, act)
    scheduled = condition(written, "PodScheduled")
    assert scheduled is not None
    assert (written["spec"]["nodeName"], scheduled["status"]) == ("n1", "True")
    assert "nominatedNodeName" not in written["status"], "the server clears the nomination of a bound pod"


@pytest.mark.parametrize(
    ("name", "changes", "prepare", "expected", "message"),
    [
        pytest.param(
            "twice",
            {},
            lambda admin: admin.send(
                "POST",
                "/api/v1/namespaces/default/pods/twice/binding",
                {"metadata": {"name": "twice"}, "target": {"kind": "Node", "name": "n2"}},
            ),
            ConflictError,
            'Operation cannot be fulfilled on pods/binding "twice": '
            'pod twice is already assigned to node "n2"',
            id="bound already",
        ),
        pytest.param(
            "leaving",
            {"metadata": {"finalizers": ["example.com/stays"]}},
            lambda admin: admin.delete("Pod", "leaving", "default"),
            ConflictError,
            'Operation cannot be fulfilled on pods/binding "leaving": '
            "pod leaving is being deleted, cannot be assigned to a host",
            id="being deleted",
        ),
        pytest.param(
            "gated",
            {"schedulingGates": [{"name": "example.com/later"}]},
            None,
            ConflictError,
            'Operation cannot be fulfilled on pods/binding "gated": '
            "pod gated has non-empty .spec.schedulingGates",
            id="gated",
        ),
        pytest.param(
            "gone",
            {},
            lambda admin: admin.delete("Pod", "gone", "default"),
            NotFoundError,
            'pods "gone" not found',
            id="gone",
        ),
    ],
)
def test_a_rejected_binding_has_the_reason(
    plane: ControlPlane,
    name: str,
    changes: Raw,
    prepare: Prepare | None,
    expected: type[APIError],
    message: str,
) -> None:
    async def act(admin: Admin, cluster: KubernetesCluster) -> None:
        await admin.create(pod(name, **changes))
        waiting = await cluster.get(Pod, name, "default")
        if prepare is not None:
            await prepare(admin)
        await cluster.bind(waiting, "n1")

    with pytest.raises(expected) as error:
        with_client(plane, act)
    assert str(error.value) == message


def test_a_binding_is_for_no_other_pod_of_the_same_name(plane: ControlPlane) -> None:
    async def act(admin: Admin, cluster: KubernetesCluster) -> Raw:
        await admin.create(pod("again"))
        first = await cluster.get(Pod, "again", "default")
        await admin.delete("Pod", "again", "default")
        await admin.create(pod("again"))
        with pytest.raises(ConflictError, match="Precondition failed: UID in precondition"):
            await cluster.bind(first, "n1")
        return await admin.get("Pod", "again", "default")

    assert "nodeName" not in with_client(plane, act)["spec"]


# Pod status


def test_a_status_is_changed_step_by_step_and_only_where_it_changes(plane: ControlPlane) -> None:
    """Conditions are added and changed, others are preserved; a time changes only with its status."""

    async def act(admin: Admin, cluster: KubernetesCluster) -> list[Raw]:
        created = await admin.create(pod("status"))
        created["status"]["conditions"] = [{"type": "example.com/Theirs", "status": "True", "reason": "T"}]
        await admin.send("PUT", "/api/v1/namespaces/default/pods/status/status", created)
        unschedulable = Condition(
            type="PodScheduled", status="False", reason="Unschedulable", message="0/1", observed_generation=1
        )
        versions = []
        for patch in (
            PodStatusPatch(
                replace(unschedulable, last_transition_time=datetime(2020, 1, 1, tzinfo=UTC)), "n7"
            ),
            PodStatusPatch(replace(unschedulable, message="0/2")),
            PodStatusPatch(Condition(type="DisruptionTarget", status="True", reason="P", message="why")),
            PodStatusPatch(replace(unschedulable, message="0/2"), ""),
        ):
            await cluster.patch_pod_status(await cluster.get(Pod, "status", "default"), patch)
            versions.append(await admin.get("Pod", "status", "default"))
        return versions

    first, second, third, last = with_client(plane, act)
    for version in (first, second, third, last):
        assert condition(version, "example.com/Theirs") is not None
    at_first, then = condition(first, "PodScheduled"), condition(second, "PodScheduled")
    assert at_first == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1",
        "observedGeneration": 1,
        "lastProbeTime": None,
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    assert then == {**at_first, "message": "0/2"}
    target = condition(third, "DisruptionTarget")
    assert target is not None
    assert (target["status"], target["reason"], target["message"]) == ("True", "P", "why")
    nominations = [version["status"].get("nominatedNodeName") for version in (first, second, third, last)]
    assert nominations == ["n7", "n7", "n7", None]


def test_a_status_is_for_no_other_pod_of_the_same_name(plane: ControlPlane) -> None:
    async def act(admin: Admin, cluster: KubernetesCluster) -> Raw:
        await admin.create(pod("replaced"))
        first = await cluster.get(Pod, "replaced", "default")
        await admin.delete("Pod", "replaced", "default")
        await admin.create(pod("replaced"))
        with pytest.raises(APIError, match=r"metadata\.uid: Invalid value: .*: field is immutable"):
            await cluster.patch_pod_status(first, PodStatusPatch(nominated_node_name="n1"))
        return await admin.get("Pod", "replaced", "default")

    assert "nominatedNodeName" not in with_client(plane, act)["status"]


# Deletion


@pytest.mark.parametrize(
    ("name", "spec", "left"),
    [
        pytest.param("at-once", {"nodeName": "n1"}, None, id="without a grace period it is gone"),
        pytest.param(
            "graceful", {"nodeName": "n1", "terminationGracePeriodSeconds": 40}, 40, id="its own grace period"
        ),
        pytest.param(
            "unbound", {"terminationGracePeriodSeconds": 40}, None, id="a pod that never ran is gone at once"
        ),
    ],
)
def test_a_victim_gets_its_own_grace_period(
    plane: ControlPlane, name: str, spec: Raw, left: int | None
) -> None:
    async def act(admin: Admin, cluster: KubernetesCluster) -> Raw | None:
        await admin.create(pod(name, **spec))
        await cluster.delete_pod(await cluster.get(Pod, name, "default"))
        return await admin.find("Pod", name, "default")

    found = with_client(plane, act)
    assert (None if found is None else found["metadata"]["deletionGracePeriodSeconds"]) == left


def test_deleting_what_is_gone_is_not_found(plane: ControlPlane) -> None:
    async def act(admin: Admin, cluster: KubernetesCluster) -> None:
        await admin.create(pod("vanished"))
        victim = await cluster.get(Pod, "vanished", "default")
        await admin.delete("Pod", "vanished", "default")
        await cluster.delete_pod(victim)

    with pytest.raises(NotFoundError):
        with_client(plane, act)


# Events

EVENT = Event(
    metadata=ObjectMeta(name="p.1", namespace="default"),
    event_time=datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC),
    reporting_controller="default-scheduler",
    reporting_instance="default-scheduler-host",
    action="Scheduling",
    reason="FailedScheduling",
    regarding=ObjectReference(kind="Pod", api_version="v1", namespace="default", name="p", uid="u"),
    note="0/1 nodes are available",
    type="Warning",
)


def test_an_event_and_its_series(plane: ControlPlane) -> None:
    """As written, times with all their microseconds though they are 0; the series is all that changes."""
    again = EventSeries(count=2, last_observed_time=datetime(2026, 1, 31, 12, 0, 1, tzinfo=UTC))

    async def act(admin: Admin, cluster: KubernetesCluster) -> tuple[Raw, Raw]:
        writer = cluster.events()
        await writer.create_event(EVENT)
        first = await admin.get("Event", "p.1", "default")
        await writer.patch_event(replace(EVENT, series=again))
        return first, await admin.get("Event", "p.1", "default")

    first, second = with_client(plane, act)
    written = {name: first[name] for name in ("eventTime", "reason", "action", "note", "type", "regarding")}
    assert written == {
        "eventTime": "2026-01-31T12:00:00.000000Z",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "note": "0/1 nodes are available",
        "type": "Warning",
        "regarding": {"kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": "p", "uid": "u"},
    }
    assert second["series"] == {"count": 2, "lastObservedTime": "2026-01-31T12:00:01.000000Z"}
    for answer in (first, second):
        answer.pop("series", None)
        for changing in ("resourceVersion", "managedFields"):
            answer["metadata"].pop(changing, None)
    assert first == second


def test_an_event_that_is_gone_is_reported(plane: ControlPlane) -> None:
    """The recorder then writes it again."""

    async def act(admin: Admin, cluster: KubernetesCluster) -> None:
        series = EventSeries(count=2, last_observed_time=EVENT.event_time)
        missing = replace(EVENT, metadata=ObjectMeta(name="p.missing", namespace="default"), series=series)
        await cluster.events().patch_event(missing)

    with pytest.raises(NotFoundError):
        with_client(plane, act)


# Objects of others

VOLUME: Raw = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "v", "annotations": {"theirs": "1"}, "finalizers": ["example.com/stays"]},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/nowhere"},
        "mountOptions": ["hard"],
        "storageClassName": "s",
    },
}
CLAIM: Raw = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "c", "namespace": "default", "annotations": {"theirs": "1"}},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "s",
        "volumeAttributesClassName": "gold",
    },
}


def without_versions(item: Raw) -> Raw:
    kept = {name: value for name, value in item["metadata"].items() if name not in _SERVERS}
    return {**item, "metadata": kept}


_SERVERS = ("resourceVersion", "managedFields", "generation")


def test_a_volume_is_bound_to_its_claim_and_keeps_all_else(plane: ControlPlane) -> None:
    async def act(admin: Admin, cluster: KubernetesCluster) -> tuple[Raw, Raw]:
        before = await admin.create(VOLUME)
        read = await cluster.get(PersistentVolume, "v")
        meta = replace(
            read.metadata, annotations={**read.annotations, "pv.kubernetes.io/bound-by-controller": "yes"}
        )
        claim = ObjectReference(
            kind="PersistentVolumeClaim", api_version="v1", namespace="default", name="c", uid="u"
        )
        changed = replace(read, metadata=meta, spec=replace(read.spec, claim_ref=claim))
        await cluster.update(changed)
        with pytest.raises(ConflictError):
            await cluster.update(changed)
        return before, await admin.get("PersistentVolume", "v")

    before, after = with_client(plane, act)
    annotations = after["metadata"]["annotations"]
    assert annotations.pop("pv.kubernetes.io/bound-by-controller") == "yes"
    assert after["spec"].pop("claimRef") == {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "c",
        "uid": "u",
    }
    assert without_versions(after) == without_versions(before)


def test_a_claim_gets_its_node_and_keeps_all_else(plane: ControlPlane) -> None:
    async def act(admin: Admin, cluster: KubernetesCluster) -> tuple[Raw, Raw]:
        before = await admin.create(CLAIM)
        read = await cluster.get(PersistentVolumeClaim, "c", "default")
        meta = replace(
            read.metadata, annotations={**read.annotations, "volume.kubernetes.io/selected-node": "n1"}
        )
        await cluster.update(replace(read, metadata=meta))
        return before, await admin.get("PersistentVolumeClaim", "c", "default")

    before, after = with_client(plane, act)
    assert after["metadata"]["annotations"].pop("volume.kubernetes.io/selected-node") == "n1"
    assert without_versions(after) == without_versions(before)


# Permissions


@pytest.mark.parametrize(
    ("act", "message"),
    [
        pytest.param(
            lambda cluster: cluster.list(Pod),
            'pods is forbidden: User "nobody" cannot list resource "pods" in API group "" '
            "at the cluster scope",
            id="a list",
        ),
        pytest.param(
            lambda cluster: cluster.get(Pod, "a", "x"),
            'pods "a" is forbidden: User "nobody" cannot get resource "pods" in API group "" '
            'in the namespace "x"',
            id="one object",
        ),
    ],
)
def test_a_forbidden_user_gets_the_reason(
    plane: ControlPlane, act: Callable[[KubernetesCluster], Awaitable[Any]], message: str
) -> None:
    with pytest.raises(APIError) as error:
        with_client(plane, lambda admin, cluster: act(cluster), user=NOBODY)
    assert (error.value.code, str(error.value)) == (403, message)
