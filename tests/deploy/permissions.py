"""All requests of a scheduler to the API server: what its roles must allow, and no more.

The manifests in `deploy/` grant exactly this (a test compares them in both directions), and tests compare the
actual requests of a scheduler with it. Kinds that your own plugins watch are added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bayplan.answers.sources.live import read_kinds
from bayplan.api.groups import CompositePodGroup, PodGroup
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object
from bayplan.api.releases import RELEASES
from bayplan.api.volcano import PodGroup as VolcanoPodGroup
from bayplan.api.volcano import Queue as VolcanoQueue
from bayplan.api.workloads import PriorityClass

_DEVICES: Final = "resource.k8s.io"


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource, as in RBAC. Without a namespace it is cluster-wide."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""
    """The name of the only object; empty for all."""


def scheduling_permissions() -> frozenset[Permission]:
    """For scheduling: what is watched, and what is written."""
    found = {
        # A pod is read back if its binding got no response.
        Permission("", "pods", "get"),
        # Preemption.
        Permission("", "pods", "delete"),
        Permission("", "pods/binding", "create"),
        Permission("", "pods/status", "patch"),
        # A volume is written with its claim, a claim with its node.
        Permission("", "persistentvolumes", "patch"),
        Permission("", "persistentvolumeclaims", "patch"),
        # A claim gets devices and is reserved for its pod; one for extended resources is created and deleted.
        # The API server checks changes of allocation and reservation as `resourceclaims/binding`.
        Permission(_DEVICES, "resourceclaims", "get"),
        Permission(_DEVICES, "resourceclaims", "create"),
        Permission(_DEVICES, "resourceclaims", "update"),
        Permission(_DEVICES, "resourceclaims", "delete"),
        Permission(_DEVICES, "resourceclaims/status", "update"),
        Permission(_DEVICES, "resourceclaims/status", "patch"),
        Permission(_DEVICES, "resourceclaims/binding", "update"),
        Permission(_DEVICES, "resourceclaims/binding", "patch"),
        # Events and their series; core/v1 for leases, and if the server has no other version.
        Permission("events.k8s.io", "events", "create"),
        Permission("events.k8s.io", "events", "patch"),
        Permission("", "events", "create"),
        Permission("", "events", "patch"),
    }
    for kind in KINDS.watched():
        if not kind.gate or any(kind.gate in release.gates for release in RELEASES.values()):
            found |= watching_permissions(kind.record)
    return frozenset(found)


def group_permissions() -> frozenset[Permission]:
    """For pod groups, with the feature gates GenericWorkload and CompositePodGroup."""
    return (
        watching_permissions(PodGroup)
        | watching_permissions(CompositePodGroup)
        | _written("scheduling.k8s.io")
    )


def volcano_permissions() -> frozenset[Permission]:
    """For groups and queues of Volcano."""
    return (
        watching_permissions(VolcanoPodGroup)
        | watching_permissions(VolcanoQueue)
        | watching_permissions(PriorityClass)
        | _written("scheduling.volcano.sh")
    )


def yunikorn_permissions() -> frozenset[Permission]:
    """For the queues.yaml of YuniKorn's ConfigMap, and pods that are spared by their PriorityClass."""
    config_map = Permission("", "configmaps", "get", "yunikorn", "yunikorn-configs")
    return watching_permissions(PriorityClass) | {config_map}


def _written(group: str) -> frozenset[Permission]:
    """A group is read before its status is replaced."""
    return frozenset((Permission(group, "podgroups", "get"), Permission(group, "podgroups/status", "update")))


def watching_permissions(kind: type[Object]) -> frozenset[Permission]:
    """For syncing all objects of a kind."""
    resource = KINDS.of(kind)
    return frozenset(Permission(resource.group, resource.plural, verb) for verb in ("list", "watch"))


def reading_permissions() -> frozenset[Permission]:
    """For reading a live cluster (`bayplan snapshot`, `bayplan explain`): lists, and no watch."""
    return frozenset(Permission(kind.group, kind.plural, "list") for kind in read_kinds())


def copying_permissions() -> frozenset[Permission]:
    """For a copy of a live cluster that follows it (`bayplan fleet estimator`, `bayplan deschedule run`)."""
    return frozenset().union(*(watching_permissions(kind.record) for kind in read_kinds()))


def descheduling_permissions() -> frozenset[Permission]:
    """For evicting pods and reporting it, with measured usage if the policy asks for it."""
    return copying_permissions() | {
        Permission("", "pods/eviction", "create"),
        Permission("", "events", "create"),
        Permission("events.k8s.io", "events", "create"),
        Permission("metrics.k8s.io", "nodes", "list"),
        Permission("metrics.k8s.io", "pods", "list"),
    }


def election_permissions(namespace: str, name: str) -> frozenset[Permission]:
    """For holding a lease. A create request cannot be restricted to a name."""
    group = "coordination.k8s.io"
    return frozenset(
        (
            Permission(group, "leases", "create", namespace),
            Permission(group, "leases", "get", namespace, name),
            Permission(group, "leases", "update", namespace, name),
        )
    )


def serving_permissions() -> frozenset[Permission]:
    """For authentication and authorization of incoming requests."""
    return frozenset(
        (
            Permission("authentication.k8s.io", "tokenreviews", "create"),
            Permission("authorization.k8s.io", "subjectaccessreviews", "create"),
            Permission("", "configmaps", "get", "kube-system", "extension-apiserver-authentication"),
        )
    )
