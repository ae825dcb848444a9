"""The volumes that the pods of each node use, and how many of them CSI drivers attach there.

A volume is identified by driver and handle (`VolumeId`). A volume that two pods share counts once. A claim
that has no volume yet counts under its own name. An in-tree volume of a pod or a PersistentVolume counts as
its CSI driver's (`api/storage.py`), on every node that has a CSINode. On the others it does not
count, but they have no limits either.

`CSINodes` has the CSINode objects as columns: which node has which drivers, and how many volumes each
attaches. `VolumeUses` keeps the counts of every node in columns and updates only rows where something
changed: a pod was added or removed, a claim got its volume, a volume was attached.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import numpy as np

from bayplan.api.pod import Pod
from bayplan.api.storage import (
    IN_TREE_PLUGINS,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TranslationError,
    VolumeAttachment,
    in_tree_plugin,
    inline_handle,
    migrated_plugins,
    not_found,
    not_made_for,
    volume_handle,
)
from bayplan.state.cluster import Cluster
from bayplan.state.columns import ABSENT, Column, Interner
from bayplan.state.derived import Groups, ObjectReader
from bayplan.state.hypothesis import Hypothesis
from bayplan.state.objects import Objects

NO_CLAIM_NAME: Final = "PersistentVolumeClaim had no name"
CLAIM_LOOKUP: Final = "looking up PVC {namespace}/{name}: {problem}"
INLINE_TRANSLATION: Final = "converting volume({name}) from inline to csi: {problem}"


class VolumeId(NamedTuple):
    """One volume, whichever pod uses it."""

    driver: str
    handle: str
    claim: str = ""
    """Instead of a handle: `namespace/name` of a claim without a volume yet."""


@dataclass(frozen=True, slots=True)
class ClaimedVolume:
    """A volume of a pod that refers to a claim."""

    name: str
    """The claim's, in the pod's namespace."""
    is_ephemeral: bool


@dataclass(frozen=True, slots=True)
class InlineVolume:
    """An inline volume of an in-tree plugin."""

    id: VolumeId | None
    """None if it does not count."""
    problem: str = ""
    """Why the volume cannot be identified; nodes with a CSINode cannot take such a pod."""


@dataclass(frozen=True, slots=True)
class VolumeProblem:
    """The volumes of a pod cannot be identified."""

    text: str
    is_missing_claim: bool = False


PodVolumes = tuple[ClaimedVolume | InlineVolume, ...]


def limited_volumes(pod: Pod) -> PodVolumes:
    """The volumes of a pod that may count against a driver's limit, in order."""
    found: list[ClaimedVolume | InlineVolume] = []
    for volume in pod.spec.volumes:
        claim_name = pod.claim_name(volume)
        plugin = in_tree_plugin(volume)
        if claim_name is not None:
            found.append(ClaimedVolume(claim_name, volume.persistent_volume_claim is None))
        elif plugin is not None and not plugin.is_counted:
            found.append(InlineVolume(None))
        elif plugin is not None:
            try:
                found.append(InlineVolume(VolumeId(plugin.driver, inline_handle(plugin, volume))))
            except TranslationError as error:
                found.append(InlineVolume(None, INLINE_TRANSLATION.format(name=volume.name, problem=error)))
    return tuple(found)


def wanted_volumes(
    objects: Objects, pod: Pod, volumes: PodVolumes, *, has_csi_node: bool
) -> frozenset[VolumeId] | VolumeProblem:
    """The volumes that a pending pod would use on a node with, or without, a CSINode."""
    found: set[VolumeId | None] = set()
    for volume in volumes:
        if isinstance(volume, InlineVolume):
            if has_csi_node and volume.problem:
                return VolumeProblem(volume.problem)
            found.add(volume.id if has_csi_node else None)
            continue
        if not volume.name:
            return VolumeProblem(NO_CLAIM_NAME)
        claim = objects.of(PersistentVolumeClaim).get(volume.name, pod.namespace)
        if claim is None:
            problem = not_found(PersistentVolumeClaim, volume.name)
            text = CLAIM_LOOKUP.format(namespace=pod.namespace, name=volume.name, problem=problem)
            return VolumeProblem(text, is_missing_claim=True)
        if volume.is_ephemeral and not claim.was_made_for(pod):
            return VolumeProblem(not_made_for(claim, pod))
        found.add(volume_of_claim(objects, claim))
    return frozenset(volume_id for volume_id in found if volume_id is not None)


def used_volume(
    objects: Objects, pod: Pod, volume: ClaimedVolume | InlineVolume
) -> tuple[VolumeId | None, str]:
    """The volume that a pod on a node with a CSINode uses, or why it cannot be identified."""
    if isinstance(volume, InlineVolume):
        return volume.id, volume.problem
    if not volume.name:
        return None, NO_CLAIM_NAME
    claim = objects.of(PersistentVolumeClaim).get(volume.name, pod.namespace)
    if claim is None:
        # A running pod has had its claim; what happened to it does not matter to the incoming pod.
        return None, ""
    if volume.is_ephemeral and not claim.was_made_for(pod):
        return None, not_made_for(claim, pod)
    return volume_of_claim(objects, claim), ""


def volume_of_claim(objects: Objects, claim: PersistentVolumeClaim) -> VolumeId | None:
    """The volume of a claim, or None if it does not count."""
    volume = objects.of(PersistentVolume).get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        return _id_of(volume)
    storage_class = objects.of(StorageClass).get(claim.class_name)
    driver = "" if storage_class is None else storage_class.provisioner
    plugin = IN_TREE_PLUGINS.get(driver)
    if plugin is not None:
        driver = plugin.driver if plugin.is_counted else ""
    return VolumeId(driver, "", claim.key) if driver else None


def _id_of(volume: PersistentVolume) -> VolumeId | None:
    csi = volume.spec.csi
    if csi is not None:
        return VolumeId(csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
    plugin = in_tree_plugin(volume.spec)
    if plugin is None or not plugin.is_counted:
        return None
    try:
        handle = volume_handle(plugin, volume)
    except TranslationError:
        return None
    return VolumeId(plugin.driver, handle) if handle else None


NO_LIMIT: Final = -1


class CSINodes:
    """Columns over node rows.

    | column | dtype | meaning |
    |---|---|---|
    | present | bool | the node has a CSINode |
    | is_limited | bool | some driver takes a limited number of volumes there |
    | installed(driver) | bool | the driver is installed there |
    | limit(driver) | int64 | that number, or NO_LIMIT |
    | migrated | id | which in-tree plugins have moved to CSI, of `plugin_sets` |
    """

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = cluster.nodes
        changes = cluster.changes
        self.freshness = changes.freshness(rows=(changes.nodes,), objects=(changes.kind(CSINode),))
        self._objects: ObjectReader[CSINode] = ObjectReader(self.freshness)
        self._limits: dict[str, Column] = {}
        self._installed: dict[str, Column] = {}
        self.plugin_sets: Interner[frozenset[str]] = Interner()
        self.present = cluster.nodes.column(np.bool_, False)
        self.is_limited = cluster.nodes.column(np.bool_, False)
        self.migrated = cluster.nodes.column(np.intp, ABSENT)

    def limit(self, driver: str) -> Column | None:
        """The maximum number of volumes of a driver on each node; None if no node ever limited it."""
        return self._limits.get(driver)

    def installed(self, driver: str) -> Column | None:
        """Whether each node has the driver; None if no node ever had it."""
        return self._installed.get(driver)

    def limits_of(self, row: int) -> dict[str, int]:
        """The limits of one row, by driver."""
        limits = ((driver, column.cell[row]) for driver, column in self._limits.items())
        return {driver: limit for driver, limit in limits if limit != NO_LIMIT}

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        nodes, csi_nodes = cluster.nodes, cluster.objects.of(CSINode)
        for changed in self._objects.changed(csi_nodes):
            rows.update(nodes.row_of[item.name] for item in changed if item.name in nodes.row_of)
        for row in rows:
            self._write(row, csi_nodes.get(nodes.name[row]))

    def _write(self, row: int, csi_node: CSINode | None) -> None:
        for column in self._limits.values():
            column.cell[row] = NO_LIMIT
        for column in self._installed.values():
            column.cell[row] = False
        self.present.cell[row] = csi_node is not None
        self.migrated.cell[row] = ABSENT
        is_limited = False
        if csi_node is not None:
            self.migrated.cell[row] = self.plugin_sets.intern(migrated_plugins(csi_node))
            for driver in csi_node.spec.drivers:
                self._installed_column(driver.name).cell[row] = True
                if driver.allocatable is not None and driver.allocatable.count is not None:
                    is_limited = True
                    self._limit_column(driver.name).cell[row] = driver.allocatable.count
        self.is_limited.cell[row] = is_limited

    def _installed_column(self, driver: str) -> Column:
        column = self._installed.get(driver)
        if column is None:
            column = self._installed[driver] = self._nodes.column(np.bool_, False)
        return column

    def _limit_column(self, driver: str) -> Column:
        column = self._limits.get(driver)
        if column is None:
            column = self._limits[driver] = self._nodes.column(np.int64, NO_LIMIT)
        return column


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
        self.freshness = changes.freshness(rows=(changes.usage, changes.nodes), objects=kinds)
        self._on_row: dict[int, NodeVolumes] = {}
        self._counts: dict[str, Column] = {}
        self._rows: dict[VolumeId, set[int]] = {}
        self._claims: ObjectReader[PersistentVolumeClaim] = ObjectReader(self.freshness)
        self._volumes: ObjectReader[PersistentVolume] = ObjectReader(self.freshness)
        self._classes: ObjectReader[StorageClass] = ObjectReader(self.freshness)
        self._attachments: ObjectReader[VolumeAttachment] = ObjectReader(self.freshness)
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

    def update(self, cluster: Cluster, rows: set[int]) -> None:
        nodes, objects = cluster.nodes, cluster.objects
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
