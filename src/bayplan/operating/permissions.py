"""Everything a scheduler asks of the API server, in one place: what its roles must allow, and no more.

The manifests in `deploy/` grant exactly this (a test compares them, both ways), and what a scheduler really
asks for is held against it in tests. Kinds that a plugin of one's own wants to see come on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource, as RBAC has it. Without a namespace it is for the whole cluster."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""
    """The only object it is about; empty for all."""


def scheduling_permissions() -> frozenset[Permission]:
    """For scheduling itself: what is watched, and what is written."""
    found = {
        # Where a binding got no answer the pod is read back.
        Permission("", "pods", "get"),
        # Preemption.
        Permission("", "pods", "delete"),
        Permission("", "pods/binding", "create"),
        Permission("", "pods/status", "patch"),
        # A volume gets its claim, a claim its node.
        Permission("", "persistentvolumes", "patch"),
        Permission("", "persistentvolumeclaims", "patch"),
        # Events, and their series. In the old form where there is no other, and about leases.
        Permission("events.k8s.io", "events", "create"),
        Permission("events.k8s.io", "events", "patch"),
        Permission("", "events", "create"),
        Permission("", "events", "patch"),
    }
    for kind in KINDS.watched():
        found |= watching_permissions(kind.record)
    return frozenset(found)


def watching_permissions(kind: type[Object]) -> frozenset[Permission]:
    """For keeping up with all objects of a kind."""
    resource = KINDS.of(kind)
    return frozenset(Permission(resource.group, resource.plural, verb) for verb in ("list", "watch"))


def election_permissions(namespace: str, name: str) -> frozenset[Permission]:
    """For holding a lease. Who creates cannot be held to a name."""
    group = "coordination.k8s.io"
    return frozenset(
        (
            Permission(group, "leases", "create", namespace),
            Permission(group, "leases", "get", namespace, name),
            Permission(group, "leases", "update", namespace, name),
        )
    )


def serving_permissions() -> frozenset[Permission]:
    """For finding out who asks us something, and whether they may."""
    return frozenset(
        (
            Permission("authentication.k8s.io", "tokenreviews", "create"),
            Permission("authorization.k8s.io", "subjectaccessreviews", "create"),
            Permission("", "configmaps", "get", "kube-system", "extension-apiserver-authentication"),
        )
    )
