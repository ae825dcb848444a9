"""Which DeviceClass serves which extended resource.

A class always offers `deviceclass.resource.kubernetes.io/<name>`, and the extended resource in its spec. If
several name the same resource, the newest is used, or the first by name if they are equally old. Upstream
updates this map event by event, and the result depends on the order of events. This map is updated in the
same way: a class that is not used does not even offer its own name, and an update that keeps the resource
name changes nothing.
"""

from __future__ import annotations

from typing import Final

from bayplan.api.devices import DeviceClass
from bayplan.api.meta import OwnerReference
from bayplan.api.pod import Pod
from bayplan.api.quantity import is_extended_resource
from bayplan.api.resource_claims import EXTENDED_RESOURCE_CLAIM_ANNOTATION, ResourceClaim
from bayplan.state.cluster import Cluster
from bayplan.state.derived import Groups, ObjectReader

IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""With the name of a DeviceClass: the extended resource that it always offers."""


def is_device_resource(name: str) -> bool:
    """Whether a DeviceClass may serve a resource of this name."""
    return name.startswith(IMPLICIT_PREFIX) or is_extended_resource(name)


class ExtendedResources:
    """The classes by resource name (an index for `derived`)."""

    def __init__(self, cluster: Cluster) -> None:
        self._classes: dict[str, DeviceClass] = {}
        self._freshness = cluster.changes.freshness(objects=cluster.changes.kinds((DeviceClass,)))
        self._is_on = "DRAExtendedResource" in cluster.release.gates

    def __len__(self) -> int:
        return len(self._classes)

    def class_for(self, resource: str) -> DeviceClass | None:
        """The class whose devices serve a resource; None if none does."""
        return self._classes.get(resource)

    def update(self, cluster: Cluster) -> None:
        if not self._is_on or self._freshness.is_current:
            return
        lister = cluster.objects.of(DeviceClass)
        with self._freshness:
            recorded = self._freshness.recorded(lister.changes)
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
    """Claims that the scheduler created for extended resources, by the pod's uid (an index for `derived`)."""

    def __init__(self, cluster: Cluster) -> None:
        self._claims: Groups[str, ResourceClaim] = Groups()
        self._freshness = cluster.changes.freshness(objects=cluster.changes.kinds((ResourceClaim,)))
        self._objects: ObjectReader[ResourceClaim] = ObjectReader(self._freshness)

    def of(self, pod: Pod) -> ResourceClaim | None:
        """The claim of a pod; None if it has none."""
        for claim in self._claims.of(pod.uid):
            owner = _owner(claim)
            if owner is not None and owner.name == pod.name:
                return claim
        return None

    def update(self, cluster: Cluster) -> None:
        if self._freshness.is_current:
            return
        with self._freshness:
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
