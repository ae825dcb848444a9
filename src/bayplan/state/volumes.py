"""The volumes that the pods of each node use, if CSI drivers limit their number.

`VolumeUses` keeps the counts of every node in columns and updates only rows where something changed: a pod
was added or removed, a claim got its volume, a volume was attached. `volume_ids.py` identifies volumes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from bayplan.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from bayplan.state.cluster import Cluster
from bayplan.state.derived import Groups, ObjectReader, changed_rows
from bayplan.state.objects import Objects
from bayplan.state.table import Column
from bayplan.state.volume_ids import ClaimedVolume, PodVolumes, VolumeId, limited_volumes, used_volume
from bayplan.state.what_if import Hypothesis

_ItemT = TypeVar("_ItemT", bound=Hashable)

ClaimKey = tuple[str, str]
"""Namespace and name."""


@dataclass(slots=True)
class NodeVolumes:
    """The volumes that are attached to one node, or will be for its pods."""

    used: frozenset[VolumeId] = frozenset()
    """By pods."""
    counts: dict[str, int] = field(default_factory=dict)
    """For each driver, including attached ones that no pod uses."""
    problem: str = ""
    """Why the volumes of a pod there cannot be identified."""
    claims: frozenset[ClaimKey] = frozenset()
    """The claims that this depends on."""


class VolumeUses:
    """The volumes of every row, and for each volume its rows."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = cluster.nodes
        changes = cluster.changes
        kinds = changes.kinds((PersistentVolumeClaim, PersistentVolume, StorageClass, VolumeAttachment))
        self._freshness = changes.freshness(rows=(changes.usage, changes.nodes), objects=kinds)
        self._on_row: dict[int, NodeVolumes] = {}
        self._counts: dict[str, Column] = {}
        self._rows: dict[VolumeId, set[int]] = {}
        self._claims: ObjectReader[PersistentVolumeClaim] = ObjectReader(self._freshness)
        self._volumes: ObjectReader[PersistentVolume] = ObjectReader(self._freshness)
        self._classes: ObjectReader[StorageClass] = ObjectReader(self._freshness)
        self._attachments: ObjectReader[VolumeAttachment] = ObjectReader(self._freshness)
        self._claim_rows: dict[ClaimKey, set[int]] = {}
        self._claims_on: Groups[str, ClaimKey] = Groups()
        self._attached_to: Groups[str, VolumeAttachment] = Groups()
        self._attachments_of: Groups[str, VolumeAttachment] = Groups()
        self.problems: dict[int, str] = {}
        """Rows with a pod whose volumes cannot be identified, and why."""

    def count(self, driver: str) -> Column | None:
        """The number of volumes of a driver on each row; None if no row ever had one."""
        return self._counts.get(driver)

    def rows_using(self, volume: VolumeId) -> Iterable[int]:
        """Rows where a pod uses the volume."""
        return self._rows.get(volume, ())

    def update(self, cluster: Cluster) -> None:
        nodes, objects = cluster.nodes, cluster.objects
        with self._freshness as stale:
            rows = changed_rows(stale, cluster)
            changed_volumes = self._volumes.changed(objects.of(PersistentVolume))
            volumes = {volume.name for changed in changed_volumes for volume in changed}
            for key in self._changed_claims(objects, volumes):
                rows.update(self._claim_rows.get(key, ()))
            for node_name in self._changed_attachments(objects, volumes):
                if node_name in nodes.row_of:
                    rows.add(nodes.row_of[node_name])
            for row in rows:
                self._write(row, self.on_node(cluster, cluster.row_pods[row], nodes.name[row]))

    def on_node(self, cluster: Cluster, slots: Iterable[int], node_name: str) -> NodeVolumes:
        """The volumes of a node with these hypothetical pods."""
        used: set[VolumeId] = set()
        claims: set[ClaimKey] = set()
        problem = ""
        for slot in slots:
            for volume in _volumes_in(cluster, slot):
                pod = cluster.pods.pod[slot]
                assert pod is not None
                if isinstance(volume, ClaimedVolume):
                    claims.add((pod.namespace, volume.name))
                volume_id, volume_problem = used_volume(cluster.objects, pod, volume)
                problem = problem or volume_problem
                if volume_id is not None:
                    used.add(volume_id)
        counts: dict[str, int] = {}
        for volume_id in used.union(self._attached(cluster.objects, node_name)):
            counts[volume_id.driver] = counts.get(volume_id.driver, 0) + 1
        return NodeVolumes(frozenset(used), counts, problem, frozenset(claims))

    def in_hypothesis(self, nodes: Hypothesis) -> dict[int, NodeVolumes]:
        """The volumes of the rows, by position, on which the hypothesis changes pods with volumes."""
        cluster = nodes.cluster
        positions = np.repeat(np.arange(len(nodes)), nodes.starts[1:] - nodes.starts[:-1])
        removed: dict[int, list[int]] = {}
        added: dict[int, list[int]] = {}
        for slot, sign, position in zip(
            nodes.slots.tolist(), nodes.signs.tolist(), positions.tolist(), strict=True
        ):
            if sign and _volumes_in(cluster, slot):
                (removed if sign < 0 else added).setdefault(position, []).append(slot)
        found = {}
        for position in removed.keys() | added.keys():
            row = int(nodes.rows[position])
            left = [slot for slot in cluster.row_pods[row] if slot not in removed.get(position, ())]
            slots = left + added.get(position, [])
            found[position] = self.on_node(cluster, slots, cluster.nodes.name[row])
        return found

    def _attached(self, objects: Objects, node_name: str) -> Iterator[VolumeId]:
        """The volumes attached to a node. Only CSI volumes count."""
        for attachment in self._attached_to.of(node_name):
            driver = attachment.spec.attacher
            volume = objects.of(PersistentVolume).get(_volume_name(attachment))
            if driver and volume is not None and volume.spec.csi is not None:
                yield VolumeId(driver, volume.spec.csi.volume_handle)

    def _changed_claims(self, objects: Objects, volumes: set[str]) -> set[ClaimKey]:
        """Claims whose volume may have changed, because these volumes have changed."""
        removed, added = self._claims.changed(objects.of(PersistentVolumeClaim))
        for claim in removed:
            self._claims_on.discard(claim.spec.volume_name, claim.key)
        for claim in added:
            self._claims_on.put(claim.spec.volume_name, claim.key, (claim.namespace, claim.name))
        changed = {(claim.namespace, claim.name) for claim in (*removed, *added)}
        changed.update(key for name in volumes for key in self._claims_on.of(name))
        if any(self._classes.changed(objects.of(StorageClass))):
            # Classes matter for claims without a volume. They rarely change.
            changed.update(self._claim_rows)
        return changed

    def _changed_attachments(self, objects: Objects, volumes: set[str]) -> set[str]:
        """Nodes whose attached volumes may have changed, because these volumes have changed."""
        removed, added = self._attachments.changed(objects.of(VolumeAttachment))
        for attachment in removed:
            self._attached_to.discard(attachment.spec.node_name, attachment.name)
            self._attachments_of.discard(_volume_name(attachment), attachment.name)
        for attachment in added:
            self._attached_to.put(attachment.spec.node_name, attachment.name, attachment)
            self._attachments_of.put(_volume_name(attachment), attachment.name, attachment)
        of_volumes = (attachment for name in volumes for attachment in self._attachments_of.of(name))
        return {attachment.spec.node_name for attachment in (*removed, *added, *of_volumes)}

    def _write(self, row: int, now: NodeVolumes) -> None:
        before = self._on_row.get(row, NodeVolumes())
        for driver in {*before.counts, *now.counts}:
            self._count_column(driver).cell[row] = now.counts.get(driver, 0)
        _move(self._rows, row, before.used, now.used)
        _move(self._claim_rows, row, before.claims, now.claims)
        if now.problem:
            self.problems[row] = now.problem
        else:
            self.problems.pop(row, None)
        if now.counts or now.claims or now.problem:
            self._on_row[row] = now
        else:
            self._on_row.pop(row, None)

    def _count_column(self, driver: str) -> Column:
        column = self._counts.get(driver)
        if column is None:
            column = self._counts[driver] = self._nodes.column(np.int64)
        return column


def _volume_name(attachment: VolumeAttachment) -> str:
    return attachment.spec.source.persistent_volume_name or ""


def _volumes_in(cluster: Cluster, slot: int) -> PodVolumes:
    """The volumes of an assigned pod that may count, computed once for all pods of its signature."""
    info = cluster.pods.info[slot]
    assert info is not None
    if info.limited_volumes is None:
        pod = cluster.pods.pod[slot]
        assert pod is not None
        info.limited_volumes = limited_volumes(pod)
    return info.limited_volumes


def _move(rows_of: dict[_ItemT, set[int]], row: int, before: Set[_ItemT], now: Set[_ItemT]) -> None:
    """Updates an index from items to rows with the current items of a row."""
    for item in before - now:
        rows_of[item].discard(row)
        if not rows_of[item]:
            del rows_of[item]
    for item in now - before:
        rows_of.setdefault(item, set()).add(row)
