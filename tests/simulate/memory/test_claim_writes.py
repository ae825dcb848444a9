"""ResourceClaims in the store: the API server's rules for their status, and finalizers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.resource_claims import (
    CLAIM_FINALIZER,
    AllocatedDeviceStatus,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from bayplan.errors import APIError, ConflictError, NotFoundError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_allocated_device, make_resource_claim

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
