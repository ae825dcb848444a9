"""Which ResourceClaims a pod has.

A pod names a claim, or a template from which a controller creates a claim for it. The name of such a claim is
in the pod's status.
"""

from __future__ import annotations

from typing import Final

from bayplan.plugin import Cluster, Pod, Status, unresolvable
from bayplan.plugin.devices import ResourceClaim
from bayplan.plugin.objects import Objects

NOT_CREATED: Final = 'pod "{pod}": ResourceClaim not created yet'
NO_SOURCE: Final = 'pod "{pod}", spec.resourceClaim "{name}": none of the supported fields are set'
NOT_FOUND: Final = 'could not find ResourceClaim "{claim}"'
BEING_DELETED: Final = 'resourceclaim "{name}" is being deleted'
NOT_OWNER: Final = "ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)"


def resolve_claims(objects: Objects, pod: Pod) -> tuple[ResourceClaim, ...] | Status:
    """The pod's claims, in the order in which it names them, or why they are not all there."""
    claims, owner_uid, namespace = objects.of(ResourceClaim), pod.metadata.uid, pod.metadata.namespace
    found: list[ResourceClaim] = []
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name
        from_template = name is None
        if name is None:
            if entry.resource_claim_template_name is None:
                return unresolvable(NO_SOURCE.format(pod=pod.key, name=entry.name))
            for status in pod.status.resource_claim_statuses:
                if status.name == entry.name:
                    name = status.resource_claim_name
                    break
            else:
                return unresolvable(NOT_CREATED.format(pod=pod.key))
            if name is None:
                continue
        claim = claims.get(name, namespace)
        if claim is None:
            return unresolvable(NOT_FOUND.format(claim=f"{namespace}/{name}"))
        if claim.metadata.deletion_timestamp is not None:
            return unresolvable(BEING_DELETED.format(name=name))
        if from_template:
            owner = claim.metadata.controller()
            if owner is None or owner.uid != owner_uid:
                return unresolvable(NOT_OWNER.format(claim=claim.key, pod=pod.key))
        found.append(claim)
    return tuple(found)


class LastClaims:
    """The claims of the last pod, until a claim changes: the queue needs them several times at an event."""

    def __init__(self, cluster: Cluster) -> None:
        self._objects = cluster.objects
        self._freshness = cluster.changes.freshness((cluster.changes.kind(ResourceClaim),))
        self._pod: Pod | None = None
        self._claims: tuple[ResourceClaim, ...] | Status = ()

    def of(self, pod: Pod) -> tuple[ResourceClaim, ...] | Status:
        if pod is not self._pod or not self._freshness.is_current:
            self._pod, self._claims = pod, resolve_claims(self._objects, pod)
            self._freshness.mark_current()
        return self._claims


def claim_keys(pod: Pod) -> list[str]:
    """`namespace/name` of the pod's claims, as far as they have been created or are named in its spec."""
    created = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = (entry.resource_claim_name or created.get(entry.name) for entry in pod.spec.resource_claims)
    return [f"{pod.namespace}/{name}" for name in names if name]
