"""ResourceClaims of pod groups: which are reserved for the group, and which may be freed for it.

A PodGroup may list claims and templates of its own (gate DRAWorkloadResourceClaims). A pod's entry that is
equal to one of them, name included, stands for the claim of the group: it is created once, and is reserved
for the PodGroup instead of for each pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bayplan.plugin import Cluster, Pod
from bayplan.plugin.devices import ResourceClaim, ResourceClaimConsumerReference
from bayplan.plugin.groups import Group, PodGroup

GATE: Final = "DRAWorkloadResourceClaims"
API_GROUP: Final = "scheduling.k8s.io"
RESOURCE: Final = "podgroups"


def consumers(cluster: Cluster, pod: Pod) -> dict[str, ResourceClaimConsumerReference]:
    """By name: the pod's claims that are reserved for its group."""
    group = None
    if cluster.groups is not None and GATE in cluster.release.gates:
        group = cluster.groups.group_of(pod)
    if group is None:
        return {}
    assert isinstance(group.source, PodGroup)
    own = group.source.spec.resource_claims
    listed = {(one.name, one.resource_claim_name, one.resource_claim_template_name) for one in own}
    reference = ResourceClaimConsumerReference(
        api_group=API_GROUP, resource=RESOURCE, name=group.key.name, uid=group.uid
    )
    created = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    found = {}
    for entry in pod.spec.resource_claims:
        if (entry.name, entry.resource_claim_name, entry.resource_claim_template_name) in listed:
            name = entry.resource_claim_name or created.get(entry.name)
            if name:
                found[name] = reference
    return found


def reserved_claims(cluster: Cluster, group: Group) -> Iterator[ResourceClaim]:
    """The allocated claims of a group that are reserved for it."""
    claims, source = cluster.objects.of(ResourceClaim), group.source
    assert isinstance(source, PodGroup), "composite groups have no claims"
    created = {status.name: status.resource_claim_name for status in source.status.resource_claim_statuses}
    for entry in source.spec.resource_claims:
        claim = claims.get(entry.resource_claim_name or created.get(entry.name) or "", group.key.namespace)
        if claim is None or claim.status.allocation is None or not claim.is_reserved_for(group.uid):
            continue
        owner = claim.metadata.controller()
        if entry.resource_claim_name or (owner is not None and owner.uid == group.uid):
            yield claim
