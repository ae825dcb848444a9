"""What a write makes of a pod: conditions, nominations, grace periods."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Event, PodStatusPatch
from bayplan.api.devices import (
    CLAIM_FINALIZER,
    AllocatedDeviceStatus,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from bayplan.api.meta import Condition, Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.storage import CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from bayplan.errors import APIError, ConflictError, NotFoundError
from bayplan.simulate.memory.store import MemoryStore, bound_status, initial_status
from bayplan.simulate.memory.writes import (
    already_exists,
    another_uid,
    grace_period,
    merge_condition,
    not_found,
    patched_status,
    resource_name,
)
from bayplan.testing.builders import make_allocated_device, make_pod, make_resource_claim

EARLIER = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
LATER = datetime(2026, 1, 3, tzinfo=UTC)
UNSCHEDULABLE = Condition(
    type="PodScheduled",
    status="False",
    reason="Unschedulable",
    message="0/1 nodes are available",
    last_transition_time=EARLIER,
    observed_generation=1,
)
READY = Condition(type="Ready", status="False", last_transition_time=EARLIER)


def scheduled(
    status: str = "False",
    reason: str = "Unschedulable",
    message: str = "0/1 nodes are available",
    since: datetime | None = None,
    generation: int = 1,
) -> Condition:
    return Condition(
        type="PodScheduled",
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )


@pytest.mark.parametrize(
    ("before", "condition", "after"),
    [
        pytest.param((), scheduled(), (scheduled(since=NOW),), id="a first condition is added, as of now"),
        pytest.param(
            (READY,),
            scheduled(since=EARLIER),
            (READY, scheduled(since=EARLIER)),
            id="a time that is given stays",
        ),
        pytest.param(
            (UNSCHEDULABLE, READY),
            scheduled(message="0/2 nodes are available"),
            (scheduled(message="0/2 nodes are available", since=EARLIER), READY),
            id="another message keeps position and time",
        ),
        pytest.param(
            (UNSCHEDULABLE,),
            scheduled(message="new", since=NOW),
            (scheduled(message="new", since=EARLIER),),
            id="the time moves only with the status, whatever the client sends",
        ),
        pytest.param(
            (READY, UNSCHEDULABLE),
            scheduled("True", "", ""),
            (READY, scheduled("True", "", "", since=NOW)),
            id="another status is a transition",
        ),
        pytest.param(
            (UNSCHEDULABLE,),
            scheduled("True", "", "", since=LATER),
            (scheduled("True", "", "", since=LATER),),
            id="which the client may date",
        ),
    ],
)
def test_merges_a_condition(
    before: tuple[Condition, ...], condition: Condition, after: tuple[Condition, ...]
) -> None:
    assert merge_condition(before, condition, NOW) == after


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param(scheduled(), id="the same again"),
        pytest.param(scheduled(since=NOW), id="a later time"),
        pytest.param(scheduled(generation=2), id="an observed generation"),
    ],
)
def test_is_no_news(condition: Condition) -> None:
    before = (UNSCHEDULABLE,)
    assert merge_condition(before, condition, NOW) is before


@pytest.mark.parametrize(
    ("patch", "nominated"),
    [
        pytest.param(PodStatusPatch(nominated_node_name="n2"), "n2", id="a name sets it"),
        pytest.param(PodStatusPatch(nominated_node_name=""), "", id="an empty name clears it"),
        pytest.param(PodStatusPatch(condition=scheduled(message="new")), "n1", id="None leaves it"),
    ],
)
def test_patches_the_nomination(patch: PodStatusPatch, nominated: str) -> None:
    status = make_pod(nominated_node="n1", conditions=[UNSCHEDULABLE]).status
    assert patched_status(status, patch, NOW).nominated_node_name == nominated


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(PodStatusPatch(), id="an empty patch"),
        pytest.param(PodStatusPatch(scheduled(), "n1"), id="what is there already"),
    ],
)
def test_a_patch_without_changes_is_no_update(patch: PodStatusPatch) -> None:
    status = make_pod(nominated_node="n1", conditions=[UNSCHEDULABLE]).status
    assert patched_status(status, patch, NOW) is status


def test_a_bound_pod_is_scheduled_and_nominated_no_more() -> None:
    status = bound_status(make_pod(nominated_node="n1", conditions=[READY, UNSCHEDULABLE]), "", NOW)
    assert status.nominated_node_name == ""
    assert status.conditions == (
        READY,
        Condition(type="PodScheduled", status="True", last_transition_time=NOW),
    )


def test_a_new_pod_with_gates_has_the_condition() -> None:
    (condition,) = initial_status(make_pod(gates=["wait"]), NOW).conditions
    assert condition == Condition(
        type="PodScheduled",
        status="False",
        reason="SchedulingGated",
        message="Scheduling is blocked due to non-empty scheduling gates",
        last_transition_time=NOW,
    )


@pytest.mark.parametrize(
    ("pod", "requested", "seconds"),
    [
        pytest.param(make_pod(), 60, 0, id="a pod without a node has nothing to end"),
        pytest.param(make_pod(node="n1", phase="Failed"), 60, 0, id="nor has one that has ended"),
        pytest.param(make_pod(node="n1"), None, 30, id="half a minute unless the pod sets another"),
        pytest.param(make_pod(node="n1", termination_grace_period_seconds=5), None, 5, id="that of the pod"),
        pytest.param(make_pod(node="n1", termination_grace_period_seconds=5), 7, 7, id="that of the request"),
        pytest.param(make_pod(node="n1"), 0, 0, id="none if that is requested"),
        pytest.param(
            make_pod(node="n1", termination_grace_period_seconds=-3), None, 1, id="at least a second"
        ),
    ],
)
def test_grace_period(pod: Pod, requested: int | None, seconds: int) -> None:
    assert grace_period(pod, requested) == seconds


FREE = make_resource_claim("c")
ALLOCATED = make_resource_claim("c", allocated=[make_allocated_device("gpu-0", "n")], reserved_for=["p"])


def stored(store: MemoryStore) -> ResourceClaim:
    return store.get(ResourceClaim, "c", "default")


def consumers(*uids: str) -> tuple[ResourceClaimConsumerReference, ...]:
    return tuple(ResourceClaimConsumerReference(resource="pods", name=uid, uid=uid) for uid in uids)


def store_with(claim: ResourceClaim) -> tuple[MemoryStore, ResourceClaim]:
    store = MemoryStore()
    created = store.create(claim)
    return store, created


def test_an_update_leaves_the_status_alone_and_the_other_way_round() -> None:
    store, claim = store_with(FREE)
    labelled = replace(claim.metadata, labels={"a": "b"})
    store.update(replace(claim, metadata=labelled, status=ALLOCATED.status))
    assert (stored(store).labels, stored(store).status) == ({"a": "b"}, ResourceClaimStatus())
    unlabelled = replace(stored(store).metadata, labels={})
    store.update_claim_status(replace(claim, metadata=unlabelled, status=ALLOCATED.status))
    assert (stored(store).labels, stored(store).status) == ({"a": "b"}, ALLOCATED.status)


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        pytest.param(
            make_resource_claim("c", allocated=[make_allocated_device("gpu-1", "n")]).status,
            "status.allocation: Invalid value: field is immutable",
            id="another allocation",
        ),
        pytest.param(
            ResourceClaimStatus(reserved_for=consumers("p")),
            "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
            id="reserved without an allocation",
        ),
        pytest.param(
            replace(ALLOCATED.status, reserved_for=consumers("p", "q", "p")),
            'status.reservedFor[2]: Duplicate value: {"uid":"p"}',
            id="reserved twice",
        ),
    ],
)
def test_a_status_that_is_rejected(status: ResourceClaimStatus, problem: str) -> None:
    store, claim = store_with(ALLOCATED)
    with pytest.raises(APIError) as error:
        store.update_claim_status(replace(claim, status=status))
    assert (error.value.code, str(error.value)) == (
        422,
        f'ResourceClaim.resource.k8s.io "c" is invalid: {problem}',
    )
    assert stored(store) is claim


def test_devices_have_no_status_without_an_allocation() -> None:
    devices = (AllocatedDeviceStatus(driver="gpu.example.com", pool="n", device="gpu-0"),)
    store, claim = store_with(replace(ALLOCATED, status=replace(ALLOCATED.status, devices=devices)))
    store.update_claim_status(replace(claim, status=ResourceClaimStatus(devices=devices)))
    assert stored(store).status == ResourceClaimStatus()


def test_a_status_of_another_version_or_claim_is_a_conflict() -> None:
    store, claim = store_with(ALLOCATED)
    store.release_claim("c", "default", "p")
    with pytest.raises(ConflictError):
        store.update_claim_status(claim)
    with pytest.raises(ConflictError):
        store.release_claim("c", "default", "p", claim_uid="another")


def test_releasing_removes_one_consumer() -> None:
    both = replace(ALLOCATED, status=replace(ALLOCATED.status, reserved_for=consumers("p", "q")))
    store, claim = store_with(both)
    store.release_claim("c", "default", "p", claim_uid=claim.uid)
    assert stored(store).status == replace(both.status, reserved_for=consumers("q"))
    before = store.resource_version
    store.release_claim("c", "default", "p")
    assert store.resource_version == before


def test_a_claim_with_a_finalizer_is_deleted_when_that_is_removed() -> None:
    store, claim = store_with(replace(FREE, metadata=replace(FREE.metadata, finalizers=(CLAIM_FINALIZER,))))
    store.delete(ResourceClaim, "c", "default")
    marked = stored(store)
    assert marked.metadata.deletion_timestamp is not None
    with pytest.raises(APIError, match="new entries may not be added"):
        store.update_claim_status(replace(marked, status=ALLOCATED.status))
    store.update(replace(marked, metadata=replace(marked.metadata, finalizers=())))
    with pytest.raises(NotFoundError):
        stored(store)
    assert claim.metadata.deletion_timestamp is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(Pod, "pods", id="a kind of the core group has no group in its name"),
        pytest.param(Node, "nodes", id="nor has a node"),
        pytest.param(PersistentVolumeClaim, "persistentvolumeclaims", id="long names are run together"),
        pytest.param(StorageClass, "storageclasses.storage.k8s.io", id="a class has es, and its group"),
        pytest.param(CSIStorageCapacity, "csistoragecapacities.storage.k8s.io", id="y becomes ies"),
        pytest.param(Event, "events.events.k8s.io", id="events are of their own group"),
    ],
)
def test_resource_name(kind: type[Object], name: str) -> None:
    assert resource_name(kind) == name


def test_not_found() -> None:
    assert str(not_found(Pod, "a")) == 'pods "a" not found'


def test_already_exists() -> None:
    assert str(already_exists(Node, "n1")) == 'nodes "n1" already exists'


def test_another_uid_names_both() -> None:
    stored = make_pod("a", namespace="x", uid="new")
    assert str(another_uid(Pod, stored, "old")) == (
        'Operation cannot be fulfilled on pods "a": StorageError: invalid object, Code: 4, '
        "Key: /registry/pods/x/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
        "UID in precondition: old, UID in object meta: new"
    )
