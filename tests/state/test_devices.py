"""Allocated devices follow the claims, whatever comes in between."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from bayplan import clock
from bayplan.api.devices import ResourceClaim
from bayplan.state.cluster import Cluster
from bayplan.state.derived import derived
from bayplan.state.devices import ClaimInFlight, ClusterDevices, put_in_flight, remove_in_flight
from bayplan.testing.builders import (
    make_allocated_device,
    make_device,
    make_device_request,
    make_node,
    make_resource_claim,
    make_resource_slice,
)

DEVICES = [f"gpu-{i}" for i in range(4)]


def claim(name: str, uid: str, device: str | None) -> ResourceClaim:
    allocated = () if device is None else [make_allocated_device(device, "n")]
    found = make_resource_claim(name, make_device_request(), allocated=allocated)
    return replace(found, metadata=replace(found.metadata, uid=uid))


def change(rng: random.Random, cluster: Cluster) -> None:
    """A claim is added, updated, deleted, or added again by name; or an allocation is in flight."""
    objects = cluster.objects
    name = rng.choice("abc")
    uid = f"{name}{rng.randint(0, 1)}"
    verb = rng.randint(0, 4)
    known = objects.of(ResourceClaim).get(name, "default")
    if verb == 0:
        put_in_flight(objects, uid, claim(name, uid, rng.choice(DEVICES)))
    elif verb == 1:
        remove_in_flight(objects, uid)
    elif verb == 2 and known is not None:
        objects.remove(known)
    else:
        objects.put(claim(name, uid, rng.choice([None, *DEVICES])))


def holders(cluster: Cluster) -> dict[str, set[str]]:
    expected: dict[str, set[str]] = {}
    for item in (
        *(one.claim for one in cluster.objects.of(ClaimInFlight)),
        *cluster.objects.of(ResourceClaim),
    ):
        if item.status.allocation is not None:
            # What is written counts more than what is in flight.
            for uids in expected.values():
                uids.discard(item.uid)
            for result in item.status.allocation.devices.results:
                expected.setdefault(result.device, set()).add(item.uid)
    return {device: uids for device, uids in expected.items() if uids}


@pytest.mark.parametrize("history", [2, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_allocated_devices_follow_claims(seed: int, history: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "MAX_HISTORY", history)
    rng, cluster = random.Random(seed), Cluster()
    cluster.set_node(make_node("n"))
    cluster.objects.put(make_resource_slice("s", *map(make_device, DEVICES), node="n"))
    for _ in range(60):
        for _ in range(rng.randint(1, 4)):
            change(rng, cluster)
        taken = derived(cluster, ClusterDevices).allocated.taken
        assert {key[2]: set(uids) for key, uids in taken.items()} == holders(cluster)


def test_changes_of_claims_that_concern_no_device_change_no_row() -> None:
    cluster = Cluster()
    cluster.set_node(make_node("n"))
    cluster.objects.put(make_resource_slice("s", *map(make_device, DEVICES), node="n"))
    cluster.objects.put(claim("a", "a", "gpu-0"))
    before = derived(cluster, ClusterDevices).rows.changed_at
    held = claim("a", "a", "gpu-0")
    for item in (
        replace(held, metadata=replace(held.metadata, finalizers=("x",))),
        claim("b", "b", None),
    ):
        cluster.objects.put(item)
        assert derived(cluster, ClusterDevices).rows.changed_at == before
