"""The embedded server as the scheduler in the same process sees it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Change, Event, EventSeries, PodStatusPatch
from bayplan.api.devices import CLAIM_FINALIZER, ResourceClaim, ResourceClaimConsumerReference
from bayplan.api.meta import Condition, ObjectMeta, ObjectReference
from bayplan.api.node import Node
from bayplan.api.pod import ContainerExtendedResourceRequest, Pod, PodExtendedResourceClaimStatus
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.embedded_cluster import EmbeddedCluster
from bayplan.embedded.server.kinds import (
    DEVICE_CLASSES,
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
)
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.errors import APIError, ConflictError, GoneError, NotFoundError
from bayplan.testing.builders import make_allocated_device, make_resource_claim

NOON = 1_800_000_000.0


def make_api() -> ObjectAPI:
    return open_api(clock=lambda: NOON, seed=1)


def new_pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def test_lists_records_without_finished_pods() -> None:
    """As the protocol demands; the version is the one to watch from."""
    api = make_api()
    for name in ("a", "b"):
        api.create(PODS, new_pod(name), "default")
    api.patch(PODS, "a", "default", {"status": {"phase": "Succeeded"}}, subresource="status")
    items, version = asyncio.run(EmbeddedCluster(api).list(Pod))
    assert [item.name for item in items] == ["b"]
    assert version == str(api.store.version)


def test_watches_the_writes_of_all_clients() -> None:
    """A pod that finishes is deleted for the scheduler, and is not mentioned again."""

    async def scenario() -> list[tuple[str, str]]:
        api = make_api()
        cluster = EmbeddedCluster(api)
        watch = cluster.watch(Pod, str(api.store.version))
        api.create(PODS, new_pod("a"), "default")
        pod = await cluster.get(Pod, "a", "default")
        await cluster.bind(pod, "n1", {"chosen": "0-1"})
        assert (await cluster.get(Pod, "a", "default")).annotations == {"chosen": "0-1"}
        api.patch(PODS, "a", "default", {"status": {"phase": "Failed"}}, subresource="status")
        api.delete(PODS, "a", "default")
        api.create(PODS, new_pod("b"), "default")
        events = await anext(watch)
        return [(event.change, event.object.spec.node_name) for event in events if event.object]

    assert asyncio.run(scenario()) == [
        (Change.ADDED, ""),
        (Change.MODIFIED, "n1"),
        (Change.DELETED, "n1"),
        (Change.ADDED, ""),
    ]


def test_a_record_is_decoded_once() -> None:
    """All readers of a version of an object get the same record."""

    async def scenario() -> bool:
        api = make_api()
        api.create(NODES, {"metadata": {"name": "n1"}})
        cluster = EmbeddedCluster(api)
        (listed,), _ = await cluster.list(Node)
        return listed is await cluster.get(Node, "n1")

    assert asyncio.run(scenario())


def test_an_update_keeps_fields_that_records_do_not_have() -> None:
    """Only what differs is written."""

    async def scenario() -> dict[str, Any]:
        api = make_api()
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "dataSource": {"kind": "X", "name": "x"},
        }
        claim = {"metadata": {"name": "c"}, "spec": spec}
        api.create(PERSISTENT_VOLUME_CLAIMS, claim, "default")
        cluster = EmbeddedCluster(api)
        known = await cluster.get(PersistentVolumeClaim, "c", "default")
        meta = ObjectMeta(
            name="c",
            namespace="default",
            uid=known.uid,
            resource_version=known.metadata.resource_version,
            annotations={"volume.kubernetes.io/selected-node": "n1"},
        )
        changed = PersistentVolumeClaim(metadata=meta, spec=known.spec, status=known.status)
        await cluster.update(changed)
        with pytest.raises(ConflictError):
            await cluster.update(changed)
        return api.get(PERSISTENT_VOLUME_CLAIMS, "c", "default")

    stored = asyncio.run(scenario())
    assert stored["spec"]["dataSource"] == {"kind": "X", "name": "x"}
    assert stored["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "n1"}


def test_events_are_stored_in_their_core_form() -> None:
    """The scheduler writes events.k8s.io, `kubectl describe` reads the core group."""

    async def scenario() -> tuple[Event, dict[str, Any]]:
        api = make_api()
        event = Event(
            metadata=ObjectMeta(name="a.1", namespace="default"),
            note="no room",
            reason="FailedScheduling",
            regarding=ObjectReference(kind="Pod", name="a"),
        )
        created = await EmbeddedCluster(api).create(event)
        assert isinstance(created, Event)
        return created, api.get(EVENTS, "a.1", "default")

    created, stored = asyncio.run(scenario())
    assert (created.note, created.regarding) == ("no room", ObjectReference(kind="Pod", name="a"))
    assert (stored["message"], stored["involvedObject"]["name"]) == ("no room", "a")


def test_a_repeated_event_gets_its_series_and_keeps_all_else() -> None:
    async def scenario() -> dict[str, Any]:
        api = make_api()
        sink = EmbeddedCluster(api).events()
        event = Event(
            metadata=ObjectMeta(name="a.1", namespace="default"),
            note="no room",
            regarding=ObjectReference(kind="Pod", name="a"),
        )
        await sink.create_event(event)
        last = datetime(2027, 1, 15, 8, 0, 0, tzinfo=UTC)
        await sink.patch_event(replace(event, note="", series=EventSeries(count=2, last_observed_time=last)))
        return api.get(EVENTS, "a.1", "default")

    stored = asyncio.run(scenario())
    assert (stored["message"], stored["series"]["count"]) == ("no room", 2)


def test_a_condition_moves_its_time_only_with_its_status() -> None:
    """And the same condition again is no write."""

    async def scenario() -> tuple[list[int], dict[str, Any]]:
        now = [NOON]
        api = open_api(clock=lambda: now[0], seed=1)
        api.create(PODS, new_pod("a"), "default")
        cluster = EmbeddedCluster(api)
        pod = await cluster.get(Pod, "a", "default")
        versions = []
        for message in ("x", "x", "y"):
            condition = Condition(
                type="PodScheduled", status="False", reason="Unschedulable", message=message
            )
            await cluster.patch_pod_status(pod, PodStatusPatch(condition, nominated_node_name="n1"))
            versions.append(api.store.version)
            now[0] += 60
        return versions, api.get(PODS, "a", "default")["status"]

    (first, second, third), status = asyncio.run(scenario())
    assert first == second < third
    assert status["nominatedNodeName"] == "n1"
    (condition,) = status["conditions"]
    assert (condition["message"], condition["lastTransitionTime"]) == ("y", "2027-01-15T08:00:00Z")


def test_a_status_is_for_no_other_pod_of_the_same_name() -> None:
    async def scenario() -> Pod:
        api = make_api()
        api.create(PODS, new_pod("a"), "default")
        cluster = EmbeddedCluster(api)
        pod = await cluster.get(Pod, "a", "default")
        api.delete(PODS, "a", "default")
        api.create(PODS, new_pod("a"), "default")
        with pytest.raises(APIError, match=r"metadata\.uid: Invalid value"):
            await cluster.patch_pod_status(pod, PodStatusPatch(nominated_node_name="n1"))
        return await cluster.get(Pod, "a", "default")

    assert asyncio.run(scenario()).status.nominated_node_name == ""


def test_what_is_not_there_is_rejected() -> None:
    """With the errors of the protocol."""

    async def scenario() -> None:
        api = make_api()
        cluster = EmbeddedCluster(api)
        with pytest.raises(NotFoundError):
            await cluster.get(Pod, "a", "default")
        old = str(api.store.version)
        api.create(PODS, new_pod("a"), "default")
        api.store.compact()
        with pytest.raises(GoneError):
            await anext(cluster.watch(Pod, old))

    asyncio.run(scenario())


def test_claims_are_written_by_subresource() -> None:
    """The status by itself, a consumer by its uid, and a deletion that waits for finalizers."""

    async def scenario() -> tuple[ResourceClaim, ResourceClaim, bool]:
        api = make_api()
        api.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {}})
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
        api.create(
            RESOURCE_CLAIMS,
            {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}},
            "default",
        )
        cluster = EmbeddedCluster(api)
        claim = await cluster.get(ResourceClaim, "c", "default")
        meta = replace(claim.metadata, finalizers=(CLAIM_FINALIZER,))
        marked: Any = await cluster.update(replace(claim, metadata=meta))
        consumer = ResourceClaimConsumerReference(resource="pods", name="a", uid="u")
        allocated = make_resource_claim("c", allocated=[make_allocated_device("gpu-0", "n")])
        status = replace(allocated.status, reserved_for=(consumer,))
        reserved: Any = await cluster.update_status(replace(marked, status=status))
        released = await cluster.release_claim(reserved, "u")
        assert not released.status.reserved_for
        left = await cluster.get(ResourceClaim, "c", "default")
        await cluster.delete(left)
        kept = await cluster.get(ResourceClaim, "c", "default")
        return reserved, left, kept.metadata.deletion_timestamp is not None

    reserved, left, is_marked = asyncio.run(scenario())
    assert [consumer.uid for consumer in reserved.status.reserved_for] == ["u"]
    assert left.status == replace(reserved.status, reserved_for=())
    assert left.metadata.finalizers == (CLAIM_FINALIZER,)
    assert is_marked


def test_the_claim_for_extended_resources_is_shown_in_the_pod() -> None:
    async def scenario() -> Pod:
        api = make_api()
        api.create(PODS, new_pod("a"), "default")
        cluster = EmbeddedCluster(api)
        claim = PodExtendedResourceClaimStatus(
            request_mappings=(ContainerExtendedResourceRequest(container_name="c"),), resource_claim_name="x"
        )
        pod = await cluster.get(Pod, "a", "default")
        await cluster.patch_pod_status(pod, PodStatusPatch(extended_resource_claim=claim))
        return await cluster.get(Pod, "a", "default")

    shown = asyncio.run(scenario()).status.extended_resource_claim_status
    assert shown is not None
    assert shown.resource_claim_name == "x"
