"""The devices of the cluster: what drivers offer, what claims have, and the rows where that changed.

`bayplan.dra` finds devices for claims and does not depend on columns. `ClusterDevices` passes it the
cluster's objects. Most pools belong to one node, so that an allocation affects one row; devices that several
nodes can use affect all rows.

When a pod gets a node, devices are allocated to its claims, and writing that to the API server takes a while.
Until then no other claim may get the same devices. Like assumed volumes (`volume_binding.py`), these
decisions are objects of their own kind (`ClaimInFlight`), so that everything derived from allocated devices
is updated when one is added or removed.

Extended resources may be served by devices: `ExtendedResources` knows the DeviceClass of each,
`ExtendedResourceClaims` the claims that were created for them, and `DeviceCounts` the amounts for scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final, NamedTuple, cast

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bayplan.api.devices import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    AllocationResult,
    Device,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from bayplan.api.meta import NodeSelector, Object, ObjectMeta, OwnerReference
from bayplan.api.node_selectors import compile_terms_strict
from bayplan.api.pod import Pod
from bayplan.api.quantity import is_extended_resource
from bayplan.api.release import device_features
from bayplan.clock import Log
from bayplan.dra.content import device_content, selector_set
from bayplan.dra.state import DeviceState
from bayplan.errors import SelectorError
from bayplan.state.cluster import Cluster
from bayplan.state.derived import Groups, ObjectReader, derived
from bayplan.state.node_matching import rows_matching_terms
from bayplan.state.objects import Lister, Objects
from bayplan.state.view import BoolColumn, NodeColumns


class ClaimInFlight(Object, frozen=True):
    """A claim with the allocation that it is about to get. Its name is the claim's uid."""

    is_per_pod: ClassVar[bool] = True

    claim: ResourceClaim = ResourceClaim()
    users: tuple[str, ...] = ()
    """The uids of the pods that wait for it: members of a group may share it."""


def is_in_flight(objects: Objects, uid: str) -> bool:
    """Whether an allocation of the claim with this uid is about to be written."""
    return objects.of(ClaimInFlight).get(uid) is not None


def in_flight(objects: Objects, uid: str) -> ResourceClaim | None:
    """The claim with this uid and the allocation that is about to be written; None if there is none."""
    found = objects.of(ClaimInFlight).get(uid)
    return None if found is None else found.claim


def put_in_flight(objects: Objects, uid: str, claim: ResourceClaim, user: str = "") -> None:
    """The claim (with an allocation) is about to be written for this pod. If it is in flight already, the pod
    shares it."""
    found = objects.of(ClaimInFlight).get(uid)
    if found is None:
        objects.put(ClaimInFlight(metadata=ObjectMeta(name=uid), claim=claim, users=(user,)))
    elif user not in found.users:
        objects.put(replace(found, users=(*found.users, user)))


def remove_in_flight(objects: Objects, uid: str, user: str = "") -> ResourceClaim | None:
    """The claim was written for this pod, or will not be.

    Returns it with its allocation if no other pod waits for it; None if one does, or if it was not in flight.
    """
    found = objects.of(ClaimInFlight).get(uid)
    if found is None:
        return None
    left = tuple(each for each in found.users if each != user)
    if left:
        objects.put(replace(found, users=left))
        return None
    objects.remove(found)
    return found.claim


DEVICE_KINDS: Final[tuple[type[Object], ...]] = (
    DeviceClass,
    ResourceSlice,
    DeviceTaintRule,
    ResourceClaim,
    ClaimInFlight,
)
"""The kinds that devices and their allocations depend on."""


class ClusterDevices:
    """Inventory and allocated devices."""

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self.freshness = changes.freshness(objects=changes.kinds(DEVICE_KINDS))
        self._state = DeviceState(device_features(cluster.release), changes.clock)
        self.inventory = self._state.inventory
        self.allocated = self._state.allocated
        self.rows: Log[int] = Log(changes.clock)
        """Rows of nodes whose own devices changed."""
        self.everywhere = self._state.changes.everywhere
        """Devices that all nodes may use have changed."""
        self._rows_freshness = changes.freshness(objects=(self._state.changes.nodes,))
        self._slices: ObjectReader[ResourceSlice] = ObjectReader(self.freshness)
        self._taint_rules: ObjectReader[DeviceTaintRule] = ObjectReader(self.freshness)
        self._allocations: dict[str, tuple[str, AllocationResult]] = {}
        """The allocated claims by uid."""

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        objects = cluster.objects
        # A changed rule is in both lists, with the devices that it selected before and selects now.
        old_rules, new_rules = self._taint_rules.changed(objects.of(DeviceTaintRule))
        for rule in old_rules:
            self._state.remove_taint_rule(rule)
        for rule in new_rules:
            self._state.put_taint_rule(rule)
        removed, added = self._slices.changed(objects.of(ResourceSlice))
        replaced = {item.name for item in added}
        for item in removed:
            if item.name not in replaced:
                self._state.remove_slice(item.name)
        for item in added:
            self._state.put_slice(item)
        self._read_claims(cluster)
        self._record_rows(cluster)

    def _read_claims(self, cluster: Cluster) -> None:
        """Brings allocated devices up to date. Most changes of a claim are about something else."""
        claims, in_flight = cluster.objects.of(ResourceClaim), cluster.objects.of(ClaimInFlight)
        changed = self.freshness.recorded(claims.changes)
        started_or_ended = self.freshness.recorded(in_flight.changes)
        if changed is None or started_or_ended is None:
            self._read_all_claims(claims, in_flight)
            return
        uids: dict[str, None] = {}
        for before, after in cast(Sequence[tuple[ResourceClaim | None, ResourceClaim | None]], changed):
            had = None if before is None else before.status.allocation
            has = None if after is None else after.status.allocation
            if before is not None and had is not None:
                uid = before.metadata.uid
                if after is None or has is None or after.metadata.uid != uid:
                    self._allocations.pop(uid, None)
                    uids[uid] = None
            if after is not None and has is not None:
                uid = after.metadata.uid
                self._allocations[uid] = after.key, has
                uids[uid] = None
        for ended, started in started_or_ended:
            item = ended if started is None else started
            assert item is not None
            uids[item.metadata.name] = None
        self._put(uids, in_flight)

    def _read_all_claims(self, claims: Lister[ResourceClaim], in_flight: Lister[ClaimInFlight]) -> None:
        self._allocations = {
            claim.uid: (claim.key, claim.status.allocation)
            for claim in claims
            if claim.status.allocation is not None
        }
        uids = dict.fromkeys(self.allocated.uids())
        uids.update(dict.fromkeys(self._allocations))
        uids.update(dict.fromkeys(item.name for item in in_flight))
        self._put(uids, in_flight)

    def _put(self, uids: Iterable[str], in_flight: Lister[ClaimInFlight]) -> None:
        """These claims may have other devices now."""
        for uid in uids:
            known, pending = self._allocations.get(uid), in_flight.get(uid)
            if known is not None:
                self._state.put_claim(uid, *known)
            elif pending is not None:
                self._state.put_claim(uid, pending.claim.key, pending.claim.status.allocation)
            else:
                self._state.remove_claim(uid)

    def _record_rows(self, cluster: Cluster) -> None:
        """Records the rows of the nodes whose devices changed."""
        names = self._rows_freshness.recorded(self._state.changes.nodes)
        if names is None:
            self.everywhere.change()
        else:
            for name in dict.fromkeys(names):
                row = cluster.nodes.row_of.get(name)
                if row is not None:
                    self.rows.record(row)
        self._rows_freshness.mark_current()


IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""With the name of a DeviceClass: the extended resource that it always offers."""


def is_device_resource(name: str) -> bool:
    """Whether a DeviceClass may serve a resource of this name."""
    return name.startswith(IMPLICIT_PREFIX) or is_extended_resource(name)


class ExtendedResources:
    """Which DeviceClass serves which extended resource.

    A class always offers `deviceclass.resource.kubernetes.io/<name>`, and the extended resource in its spec.
    If several name the same resource, the newest is used, or the first by name if they are equally old.
    Upstream updates this map event by event, and the result depends on the order of events. This map is
    updated in the same way: a class that is not used does not even offer its own name, and an update that
    keeps the resource name changes nothing.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._classes: dict[str, DeviceClass] = {}
        self.freshness = cluster.changes.freshness(objects=cluster.changes.kinds((DeviceClass,)))
        self._is_on = "DRAExtendedResource" in cluster.release.gates

    def __len__(self) -> int:
        return len(self._classes)

    def class_for(self, resource: str) -> DeviceClass | None:
        """The class whose devices serve a resource; None if none does."""
        return self._classes.get(resource)

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        if not self._is_on:
            return
        lister = cluster.objects.of(DeviceClass)
        recorded = self.freshness.recorded(lister.changes)
        if recorded is None:
            self._classes.clear()
            recorded = lister.changes.history() or [(None, item) for item in lister]
        for before, after in recorded:
            assert before is None or isinstance(before, DeviceClass)
            assert after is None or isinstance(after, DeviceClass)
            if after is not None:
                self._put(before, after)
            elif before is not None:
                self._drop(before)

    def _put(self, before: DeviceClass | None, after: DeviceClass) -> None:
        resource = after.spec.extended_resource_name
        if resource is not None:
            holder = self._classes.get(resource)
            if holder is not None and not _takes_precedence(after, holder):
                return
        if before is not None:
            self._drop(before)
        if resource is not None:
            self._classes[resource] = after
        self._classes[IMPLICIT_PREFIX + after.name] = after

    def _drop(self, item: DeviceClass) -> None:
        self._classes.pop(IMPLICIT_PREFIX + item.name, None)
        if item.spec.extended_resource_name is not None:
            self._classes.pop(item.spec.extended_resource_name, None)


class ExtendedResourceClaims:
    """Claims that the scheduler created for extended resources, by the pod's uid."""

    def __init__(self, cluster: Cluster) -> None:
        self._claims: Groups[str, ResourceClaim] = Groups()
        self.freshness = cluster.changes.freshness(objects=cluster.changes.kinds((ResourceClaim,)))
        self._objects: ObjectReader[ResourceClaim] = ObjectReader(self.freshness)

    def of(self, pod: Pod) -> ResourceClaim | None:
        """The claim of a pod; None if it has none."""
        for claim in self._claims.of(pod.uid):
            owner = _owner(claim)
            if owner is not None and owner.name == pod.name:
                return claim
        return None

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        removed, added = self._objects.changed(cluster.objects.of(ResourceClaim))
        for claim in removed:
            if (owner := _owner(claim)) is not None:
                self._claims.discard(owner.uid, claim.key)
        for claim in added:
            if (owner := _owner(claim)) is not None:
                self._claims.put(owner.uid, claim.key, claim)


def _owner(claim: ResourceClaim) -> OwnerReference | None:
    """The pod whose extended resources the claim is for; None if it is another claim."""
    if claim.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) != "true":
        return None
    return claim.metadata.controller()


def _takes_precedence(new: DeviceClass, holder: DeviceClass) -> bool:
    """Whether a class replaces the one that currently serves the resource."""
    created, held_since = (
        0.0 if item.metadata.creation_timestamp is None else item.metadata.creation_timestamp.timestamp()
        for item in (new, holder)
    )
    if created != held_since:
        return created > held_since
    return new.name < holder.name


_Counts = NDArray[np.int64]


class DeviceCount(NamedTuple):
    """Devices of a class by row."""

    capacity: _Counts
    used: _Counts


class DeviceCounts:
    """The number of devices of a class on each node, and how many are in use: for scores, not for filtering.

    Extended resources that are served by devices are scored like others, by the amount that a node has. As
    upstream, all devices of all slices of the node count, of any generation, and selectors see them as
    devices that can be allocated only once.
    """

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self.freshness = changes.freshness((changes.size, *changes.kinds(DEVICE_KINDS)), (changes.nodes,))
        self._counts: dict[str, DeviceCount] = {}
        """By the name of the class."""

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        self._counts.clear()

    def of(self, cluster: Cluster, device_class: DeviceClass) -> DeviceCount:
        known = self._counts.get(device_class.name)
        if known is None:
            known = self._counts[device_class.name] = _count(cluster, device_class)
        return known


def _count(cluster: Cluster, device_class: DeviceClass) -> DeviceCount:
    expressions = [one.cel.expression for one in device_class.spec.selectors if one.cel is not None]
    selectors = selector_set(tuple(expressions), ())
    allocated = derived(cluster, ClusterDevices).allocated
    nodes = NodeColumns(cluster)
    capacity, used = (np.zeros(len(nodes), dtype=np.int64) for _ in range(2))
    errored = np.zeros(len(nodes), dtype=np.bool_)
    for item in cluster.objects.of(ResourceSlice):
        spec = item.spec
        try:
            for devices, rows in _offers(item, nodes):
                for device in devices:
                    content = device_content(spec.driver, replace(device, allow_multiple_allocations=False))
                    matches = content.matches(selectors)
                    if not isinstance(matches, bool):
                        errored |= rows
                    elif matches:
                        capacity += rows
                        if allocated.is_in_use((spec.driver, spec.pool.name, device.name)):
                            used += rows
        except SelectorError:
            errored[:] = True
    capacity[errored] = used[errored] = 0
    return DeviceCount(capacity, used)


def _offers(item: ResourceSlice, nodes: NodeColumns) -> Iterator[tuple[tuple[Device, ...], BoolColumn]]:
    """The devices of a slice, with the rows that can use them."""
    spec = item.spec
    if not spec.per_device_node_selection:
        yield spec.devices, _rows(nodes, spec.node_name, spec.all_nodes, spec.node_selector, otherwise=True)
        return
    for device in spec.devices:
        yield (
            (device,),
            _rows(nodes, device.node_name, device.all_nodes, device.node_selector, otherwise=False),
        )


def _rows(
    nodes: NodeColumns, name: str, all_nodes: bool, selector: NodeSelector | None, *, otherwise: bool
) -> BoolColumn:
    """The rows that the node fields select; `otherwise` if none of them is set."""
    if all_nodes:
        return np.ones(len(nodes), dtype=np.bool_)
    rows = nodes.is_named(name) if name else np.zeros(len(nodes), dtype=np.bool_)
    if selector is not None:
        rows = rows | rows_matching_terms(nodes, compile_terms_strict(selector.node_selector_terms))
    elif not name and otherwise:
        rows = np.ones(len(nodes), dtype=np.bool_)
    return rows


def with_devices(nodes: NodeColumns, resource: str, device_class: DeviceClass) -> tuple[_Counts, _Counts]:
    """The allocatable and used amounts of a resource on each row; devices count if there are no others."""
    cluster = nodes.cluster
    count = derived(cluster, DeviceCounts).of(cluster, device_class)
    allocatable, capacity = nodes.allocatable(resource), nodes.gather(count.capacity)
    by_devices = (allocatable == 0) & (capacity > 0)
    used = np.where(by_devices, nodes.gather(count.used), nodes.requested(resource))
    return np.where(by_devices, capacity, allocatable), used
