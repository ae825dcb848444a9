"""VolumeRestrictions: exclusive disks and claims are not given to two pods.

That is a disk in pod specs, on one node (unless all pods only read it), and a claim with access mode
ReadWriteOncePod, anywhere in the cluster. A pod that waits for such a claim is rejected by every node;
evicting the pod that has it would help.

https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bayplan.plugin import (
    SKIP,
    SKIP_FOR_SIGNATURE,
    Action,
    AddRemovePodPlugin,
    BoolColumn,
    Cluster,
    ClusterEventWithHint,
    CycleState,
    FilterPlugin,
    NodeColumns,
    NodeInfo,
    Plugin,
    Pod,
    PreFilterPlugin,
    Reject,
    Resource,
    Status,
    derived,
    event_with_hint,
    unresolvable,
    unschedulable,
)
from bayplan.plugin.preemption import Hypothesis
from bayplan.plugin.storage import (
    READ_WRITE_ONCE_POD,
    Disk,
    DiskUses,
    PersistentVolumeClaim,
    disks_clash,
    disks_of,
    not_found,
)

REASON_DISK: Final = "node(s) had no available disk"
REASON_CLAIM: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use "
    "by another pod"
)


@dataclass(frozen=True, slots=True)
class DisksAndClaims:
    """The disks and claims of a pod, by its signature."""

    disks: tuple[Disk, ...]
    claims: tuple[str, ...]


@dataclass(slots=True)
class Exclusive:
    """The pod's exclusive claims, and how many other pods use them."""

    claims: frozenset[str]
    uses: int

    def clone(self) -> Exclusive:
        return Exclusive(self.claims, self.uses)


class VolumeRestrictions(Plugin, PreFilterPlugin, AddRemovePodPlugin, FilterPlugin):
    """Rejects nodes where a disk is in use, and all nodes while a claim is."""

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            event_with_hint(Resource.POD, Action.DELETE, self.deleted_pod_helps),
            event_with_hint(Resource.NODE, Action.ADD),
            event_with_hint(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, self.added_claim_helps),
        ]

    def deleted_pod_helps(self, pod: Pod, old: Pod, new: None) -> bool:
        """A pod was removed that had one of the disks, or a claim of the same name."""
        if old.namespace != pod.namespace:
            return False
        return disks_clash(disks_of(pod), disks_of(old)) or not set(_claims_of(pod)).isdisjoint(
            _claims_of(old)
        )

    def added_claim_helps(self, pod: Pod, old: None, new: PersistentVolumeClaim) -> bool:
        """It is one of the pod's claims."""
        return new.namespace == pod.namespace and new.name in _claims_of(pod)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        wanted = state.memo(self.name, lambda: _disks_and_claims(pod)) if pod.spec.volumes else None
        if wanted is None:
            return SKIP_FOR_SIGNATURE
        claims = nodes.cluster.objects.of(PersistentVolumeClaim)
        exclusive = set()
        for name in wanted.claims:
            claim = claims.get(name, pod.namespace)
            if claim is None:
                return unresolvable(not_found(PersistentVolumeClaim, name))
            if READ_WRITE_ONCE_POD in claim.spec.access_modes:
                exclusive.add(name)
        uses = sum(_is_used(nodes.cluster, f"{pod.namespace}/{name}") for name in exclusive)
        if not uses and not wanted.disks:
            return SKIP
        state.write(self.name, Exclusive(frozenset(exclusive), uses))
        return None

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> None:
        _count(state.read(self.name), added, 1)

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> None:
        _count(state.read(self.name), removed, -1)

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        exclusive: Exclusive = state.read(self.name)
        disks = disks_of(pod)
        taken = _taken(disks, nodes) if disks else np.zeros(len(nodes), dtype=np.bool_)
        yield Reject(taken, unschedulable(REASON_DISK))
        if exclusive.uses > 0:
            yield Reject(~taken, unschedulable(REASON_CLAIM))


def _disks_and_claims(pod: Pod) -> DisksAndClaims | None:
    disks, claims = disks_of(pod), tuple(_claims_of(pod))
    return DisksAndClaims(disks, claims) if disks or claims else None


def _claims_of(pod: Pod) -> list[str]:
    """Claims that the pod names. Those of ephemeral volumes are its own."""
    return [
        volume.persistent_volume_claim.claim_name
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    ]


def _is_used(cluster: Cluster, claim: str) -> bool:
    """Whether a pod on a known node uses the claim. Pods of deleted nodes do not count."""
    uses = cluster.claim_uses.get(claim, 0)
    if uses and len(cluster.nodes.row_of) > cluster.node_count:
        for row in cluster.nodes.row_of.values():
            if cluster.nodes.node[row] is None:
                uses -= sum(pod_claims.count(claim) for pod_claims in _claims_on(cluster, row))
    return uses > 0


def _claims_on(cluster: Cluster, row: int) -> Iterable[tuple[str, ...]]:
    for slot in cluster.row_pods[row]:
        info = cluster.pods.info[slot]
        assert info is not None
        yield info.claims


def _count(exclusive: Exclusive, other: Pod, sign: int) -> None:
    # Namespaces are not compared, as upstream.
    exclusive.uses += sign * sum(name in exclusive.claims for name in _claims_of(other))


def _taken(disks: Sequence[Disk], nodes: NodeColumns) -> BoolColumn:
    """Rows where a pod has one of the disks."""
    rows = derived(nodes.cluster, DiskUses).rows_clashing(disks)
    taken = np.zeros(len(nodes), dtype=np.bool_)
    taken[nodes.positions_of(rows)] = True
    if isinstance(nodes, Hypothesis):
        has_changes = nodes.starts[1:] > nodes.starts[:-1]
        for position in (taken | has_changes).nonzero()[0]:
            taken[position] = any(
                disks_clash(disks, disks_of(other)) for other in nodes.pods_on(int(position))
            )
    return taken
