"""Writes: what they do to the store behind the server, and to nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from bayplan.api.cluster_api import Event, EventSeries, Lease, LeaseMeta, LeaseSpec, PodStatusPatch
from bayplan.api.devices import (
    CLAIM_FINALIZER,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Condition, ObjectMeta, ObjectReference
from bayplan.api.node import Node, Taint
from bayplan.api.pod import Pod
from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim
from bayplan.client.http import KubernetesCluster
from bayplan.errors import APIError, ConflictError, NotFoundError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_allocated_device, make_node, make_pod, make_resource_claim

from .api_server import ApiServer, ReceivedRequest, error_response
from .clients import with_server

NOW = datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)
CLAIM = ObjectReference(kind="PersistentVolumeClaim", api_version="v1", namespace="x", name="c", uid="u")

Act = Callable[[ApiServer, KubernetesCluster], Awaitable[Any]]


def pod_in(store: MemoryStore) -> Pod:
    return store.create(make_pod("a", namespace="x"))


def as_stored(store: MemoryStore) -> Pod:
    return store.get(Pod, "a", "x")


# Pods


def test_a_binding() -> None:
    store = MemoryStore()
    pod = pod_in(store)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        await cluster.bind(pod, "n1")

    with_server(store, act)
    assert as_stored(store).spec.node_name == "n1"


@pytest.mark.parametrize(
    ("prepare", "expected", "message"),
    [
        pytest.param(
            lambda store: store.bind("a", "x", "n2"),
            ConflictError,
            'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n2"',
            id="bound already",
        ),
        pytest.param(
            lambda store: (store.delete(Pod, "a", "x"), pod_in(store)),
            ConflictError,
            "Precondition failed: UID in precondition",
            id="another one of the same name",
        ),
        pytest.param(
            lambda store: store.delete(Pod, "a", "x"), NotFoundError, 'pods "a" not found', id="gone"
        ),
    ],
)
def test_a_binding_that_is_rejected(
    prepare: Callable[[MemoryStore], Any], expected: type[APIError], message: str
) -> None:
    store = MemoryStore()
    pod = pod_in(store)
    prepare(store)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        await cluster.bind(pod, "n1")

    with pytest.raises(expected) as error:
        with_server(store, act)
    assert message in str(error.value)


def test_a_status_written_step_by_step_is_as_the_store_itself_would_have_it() -> None:
    """Conditions added, changed and left alone; nominations set and cleared: the same as in process."""
    patches = [
        PodStatusPatch(Condition(type="PodScheduled", status="False", reason="r", message="m"), "n1"),
        PodStatusPatch(Condition(type="PodScheduled", status="False", reason="r", message="other"), ""),
        PodStatusPatch(Condition(type="DisruptionTarget", status="True")),
        PodStatusPatch(Condition(type="PodScheduled", status="True", reason="r", message="")),
        PodStatusPatch(Condition(type="PodScheduled", status="True", reason="r", message="")),
        PodStatusPatch(nominated_node_name="n2"),
    ]
    over_http, in_process = MemoryStore(clock=lambda: 1e9), MemoryStore(clock=lambda: 1e9)
    for store in (over_http, in_process):
        pod_in(store)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        for patch in patches:
            await cluster.patch_pod_status(as_stored(over_http), patch)
            in_process.patch_pod_status("a", "x", patch)
            assert as_stored(over_http).status == as_stored(in_process).status
        assert len(server.received) == 5, "what changes nothing is not sent"

    with_server(over_http, act, options={"now": lambda: 1e9})
    assert as_stored(over_http).status.nominated_node_name == "n2"


def test_a_status_is_for_no_other_pod_of_the_same_name() -> None:
    store = MemoryStore()
    pod = pod_in(store)
    store.delete(Pod, "a", "x")
    pod_in(store)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        await cluster.patch_pod_status(pod, PodStatusPatch(nominated_node_name="n1"))

    with pytest.raises(APIError, match=r"metadata\.uid"):
        with_server(store, act)
    assert as_stored(store).status.nominated_node_name == ""


def test_a_deletion_leaves_everything_to_the_server() -> None:
    store = MemoryStore()
    pod = pod_in(store)

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        await cluster.delete_pod(pod)
        with pytest.raises(NotFoundError):
            await cluster.delete_pod(pod)
        return server.received[0].json

    assert with_server(store, act) == {"kind": "DeleteOptions", "apiVersion": "v1"}


# Objects of others


VOLUME: dict[str, Any] = {
    "metadata": {
        "finalizers": ["kubernetes.io/pv-protection"],
        "ownerReferences": [{"blockOwnerDeletion": True}],
    },
    "spec": {"persistentVolumeReclaimPolicy": "Retain", "mountOptions": ["hard"]},
    "status": {"lastPhaseTransitionTime": "2026-01-31T12:00:00Z"},
}


def volume_in(store: MemoryStore) -> PersistentVolume:
    meta = ObjectMeta(name="v", annotations={"theirs": "1"})
    return store.create(PersistentVolume(metadata=meta))


def annotated(item: Any, **annotations: str) -> Any:
    return replace(item, metadata=replace(item.metadata, annotations=annotations))


def test_a_volume_is_bound_in_one_request_with_only_that_change() -> None:
    store = MemoryStore()
    uid = volume_in(store).uid

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        volume = annotated(await cluster.get(PersistentVolume, "v"), theirs="1", ours="2")
        answer = await cluster.update(replace(volume, spec=replace(volume.spec, claim_ref=CLAIM)))
        [_, received] = server.received
        return answer, received.method, received.headers["Content-Type"], received.json

    answer, *received = with_server(store, act, unknown={"v": VOLUME})
    assert (answer.annotations, answer.spec.claim_ref) == ({"theirs": "1", "ours": "2"}, CLAIM)
    stored = store.get(PersistentVolume, "v")
    assert (stored.annotations, stored.spec.claim_ref) == ({"theirs": "1", "ours": "2"}, CLAIM)
    assert received == [
        "PATCH",
        "application/merge-patch+json",
        {
            "metadata": {
                "uid": uid,
                "resourceVersion": "1",
                "annotations": {"theirs": "1", "ours": "2"},
            },
            "spec": {
                "claimRef": {
                    "kind": "PersistentVolumeClaim",
                    "apiVersion": "v1",
                    "namespace": "x",
                    "name": "c",
                    "uid": "u",
                }
            },
        },
    ]


def test_an_update_of_a_claim_adds_and_removes_annotations() -> None:
    store = MemoryStore()
    meta = ObjectMeta(name="c", namespace="x", annotations={"theirs": "1", "node": "old"})
    claim = store.create(PersistentVolumeClaim(metadata=meta))

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        first = await cluster.update(annotated(claim, theirs="1", node="n1"))
        second = await cluster.update(annotated(first, theirs="1"))
        return first.annotations, second.annotations, len(server.received)

    assert with_server(store, act) == ({"theirs": "1", "node": "n1"}, {"theirs": "1"}, 3)


def test_any_other_object_is_read_first_and_only_its_change_is_sent() -> None:
    store = MemoryStore()
    node = store.create(make_node("n", labels={"a": "1"}))
    changed = replace(node, spec=replace(node.spec, taints=(Taint(key="k", effect="NoSchedule"),)))

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        await cluster.update(changed)
        await cluster.update(await cluster.get(Node, "n"))
        return [received.method for received in server.received], server.of("PATCH")[0].json

    methods, patch = with_server(store, act)
    assert methods == ["GET", "PATCH", "GET", "GET"]
    assert patch == {
        "metadata": {"uid": node.uid, "resourceVersion": "1"},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    }
    assert store.get(Node, "n").spec.taints == changed.spec.taints


def test_a_lease_is_written_whole() -> None:
    store = MemoryStore()
    meta = LeaseMeta(name="l", namespace="x")

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        made = await cluster.create(Lease(metadata=meta, spec=LeaseSpec(holder_identity="me")))
        assert isinstance(made, Lease)
        await cluster.update(replace(made, spec=LeaseSpec(holder_identity="you", renew_time=NOW)))
        with pytest.raises(ConflictError):
            await cluster.update(replace(made, spec=LeaseSpec(holder_identity="them")))
        return [received.method for received in server.received], await cluster.get(Lease, "l", "x")

    methods, lease = with_server(store, act)
    assert methods == ["POST", "PUT", "PUT"]
    assert lease.spec == LeaseSpec(holder_identity="you", renew_time=NOW)


@pytest.mark.parametrize("make", [volume_in, lambda store: store.create(make_node("n"))])
def test_an_object_that_has_changed_since_is_a_conflict(make: Callable[[MemoryStore], Any]) -> None:
    store = MemoryStore()
    item = make(store)
    store.update(annotated(item, other="1"))

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        await cluster.update(annotated(item, ours="1"))

    with pytest.raises(ConflictError):
        with_server(store, act)
    assert store.get(type(item), item.name).annotations == {"other": "1"}


def test_a_created_object_comes_back_as_it_was_stored() -> None:
    store = MemoryStore()

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        made = await cluster.create(make_pod("a", namespace="x"))
        with pytest.raises(ConflictError, match="already exists"):
            await cluster.create(make_pod("a", namespace="x"))
        return made

    assert with_server(store, act) == as_stored(store)


# Claims


def test_writes_of_claims_are_upstreams_requests() -> None:
    """PUT of the claim whole, PUT of its status, a strategic merge patch that releases it, DELETE."""
    store = MemoryStore()
    store.create(make_resource_claim("c", namespace="x"))
    allocation = make_resource_claim("c", allocated=[make_allocated_device("gpu-0", "n")]).status.allocation
    consumer = ResourceClaimConsumerReference(resource="pods", name="a", uid="u")

    async def act(server: ApiServer, cluster: KubernetesCluster) -> Any:
        claim = await cluster.get(ResourceClaim, "c", "x")
        meta = replace(claim.metadata, finalizers=(CLAIM_FINALIZER,))
        marked: Any = await cluster.update(replace(claim, metadata=meta))
        status = ResourceClaimStatus(allocation=allocation, reserved_for=(consumer,))
        reserved: Any = await cluster.update_status(replace(marked, status=status))
        left = await cluster.release_claim(reserved, "u")
        assert left == store.get(ResourceClaim, "c", "x")
        await cluster.update(replace(left, metadata=replace(left.metadata, finalizers=())))
        await cluster.delete(left)
        return reserved, left, server.received[1:]

    reserved, left, received = with_server(store, act)
    path = "/apis/resource.k8s.io/v1/namespaces/x/resourceclaims/c"
    assert [(one.method, one.path) for one in received] == [
        ("PUT", path),
        ("PUT", f"{path}/status"),
        ("PATCH", f"{path}/status"),
        ("PUT", path),
        ("DELETE", path),
    ]
    assert received[0].json["metadata"]["finalizers"] == [CLAIM_FINALIZER]
    assert received[1].json["status"]["reservedFor"] == [{"resource": "pods", "name": "a", "uid": "u"}]
    assert received[2].headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert received[2].json == {
        "metadata": {"uid": left.uid},
        "status": {"reservedFor": [{"$patch": "delete", "uid": "u"}]},
    }
    assert reserved.status.reserved_for == (consumer,)
    assert left.status == ResourceClaimStatus(allocation=allocation)
    assert not store.list(ResourceClaim)


# Events


EVENT = Event(
    metadata=ObjectMeta(name="a.17", namespace="x"),
    event_time=NOW,
    reporting_controller="default-scheduler",
    reporting_instance="default-scheduler-host",
    action="Binding",
    reason="Scheduled",
    regarding=ObjectReference(kind="Pod", api_version="v1", namespace="x", name="a", uid="u"),
    note="Successfully assigned x/a to n1",
    type="Normal",
)
REPEATED = replace(EVENT, series=EventSeries(count=2, last_observed_time=NOW))


def events(act: Act, **settings: Any) -> tuple[ApiServer, MemoryStore]:
    store, servers = MemoryStore(), []

    async def noting(server: ApiServer, cluster: KubernetesCluster) -> None:
        servers.append(server)
        await act(server, cluster)

    with_server(store, noting, **settings)
    return servers[0], store


def test_events_are_created_and_their_series_patched() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        writer = cluster.events(qps=-1)
        await writer.create_event(EVENT)
        await writer.patch_event(REPEATED)

    server, store = events(act)
    stored = store.get(Event, "a.17", "x")
    assert replace(stored, metadata=EVENT.metadata) == REPEATED
    discovery, created, patched = server.received
    assert discovery.path == "/apis/events.k8s.io/v1"
    assert created.path == "/apis/events.k8s.io/v1/namespaces/x/events"
    assert patched.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert patched.json == {"series": {"count": 2, "lastObservedTime": "2026-01-31T12:00:00.250000Z"}}


def test_an_event_that_is_gone_is_not_found() -> None:
    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        with pytest.raises(NotFoundError):
            await cluster.events().patch_event(REPEATED)

    events(act)


def test_a_server_without_the_newer_events_gets_the_older_ones() -> None:
    """Discovery is read once; then they are core/v1 for good."""
    kept: list[ReceivedRequest] = []

    async def core(received: ReceivedRequest) -> web.StreamResponse | None:
        if "/api/v1/namespaces/x/events" not in received.path:
            return None
        kept.append(received)
        return web.Response(status=201, text="{}")

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        writer = cluster.events(qps=-1)
        await writer.create_event(EVENT)
        server.served = KINDS.names
        await writer.patch_event(REPEATED)

    events(act, served=KINDS.names - {"Event"}, interfere=core)
    created, patched = kept
    assert created.json == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a.17", "namespace": "x"},
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": "x", "name": "a", "uid": "u"},
        "reason": "Scheduled",
        "message": "Successfully assigned x/a to n1",
        "type": "Normal",
        "source": {"component": "default-scheduler"},
        "reportingComponent": "default-scheduler",
        "reportingInstance": "",
        "firstTimestamp": "2026-01-31T12:00:00Z",
        "lastTimestamp": "2026-01-31T12:00:00Z",
        "count": 1,
    }
    assert patched.path.endswith("/namespaces/x/events/a.17")
    assert patched.json == {
        "count": 2,
        "lastTimestamp": "2026-01-31T12:00:00Z",
        "message": "Successfully assigned x/a to n1",
    }


def test_discovery_of_events_is_read_once_even_by_many_writers() -> None:
    async def reject(received: ReceivedRequest) -> web.StreamResponse | None:
        return error_response(APIError("no", code=403)) if received.path == "/apis/events.k8s.io/v1" else None

    async def act(server: ApiServer, cluster: KubernetesCluster) -> None:
        writer = cluster.events(qps=-1)
        await asyncio.gather(*(writer.create_event(EVENT) for _ in range(5)), return_exceptions=True)

    server, _ = events(act, interfere=reject)
    assert len(server.of("GET")) == 1
    assert {received.path for received in server.of("POST")} == {"/api/v1/namespaces/x/events"}
