"""Which volumes the pods of each node use, as far as CSI drivers limit how many they attach.

Volumes are told apart by driver and handle, so that one which two pods share counts once. A claim that has no
volume yet counts under its own name. What stands in a pod or a PersistentVolume in the words of an in-tree
plugin counts as its CSI driver's (`api/in_tree_volumes.py`): on every node with a CSINode, and the others
have no limits.

`VolumeUses` keeps the count of every node in columns and renews only rows where something changed: a pod came
or went, a claim got its volume, a volume was attached.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import numpy as np

from bayplan.api.in_tree_volumes import (
    IN_TREE_PLUGINS,
    TranslationError,
    in_tree_plugin,
    inline_handle,
    volume_handle,
)
from bayplan.api.pod import Pod
from bayplan.api.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    not_found,
    not_made_for,
)
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.derived import LogReader
from bayplan.snapshot.objects import Objects
from bayplan.snapshot.table import Column
from bayplan.snapshot.what_if import Hypothesis

NO_CLAIM_NAME: Final = "PersistentVolumeClaim had no name"
CLAIM_LOOKUP: Final = "looking up PVC {namespace}/{name}: {problem}"
INLINE_TRANSLATION: Final = "converting volume({name}) from inline to csi: {problem}"


class VolumeId(NamedTuple):
    """One volume, whoever uses it under whatever name."""

    driver: str
    handle: str
    claim: str = ""
    """Instead of a handle: `namespace/name` of the claim that a volume is yet to be made for."""


@dataclass(frozen=True, slots=True)
class ClaimedVolume:
    """A volume of a pod that stands for a claim."""

    name: str
    """The claim's, in the pod's namespace."""
    is_ephemeral: bool


@dataclass(frozen=True, slots=True)
class InlineVolume:
    """A volume that stands in the pod itself, in the words of an in-tree plugin."""

    id: VolumeId | None
    """None where it does not count."""
    problem: str = ""
    """Why it cannot be told which volume is meant; nodes with a CSINode cannot take such a pod."""


@dataclass(frozen=True, slots=True)
class VolumeProblem:
    """Why it cannot be told which volumes a pod uses."""

    text: str
    is_missing_claim: bool = False


_Thing = TypeVar("_Thing", bound=Hashable)

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
    """The volumes that a waiting pod would use on a node with, or without, a CSINode."""
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
        found.add(ResolvedClaim.of(objects, claim).id)
    return frozenset(volume_id for volume_id in found if volume_id is not None)


@dataclass(frozen=True, slots=True)
class ResolvedClaim:
    """A claim, and what decides which volume it stands for."""

    claim: PersistentVolumeClaim | None
    volume: PersistentVolume | None = None
    storage_class: StorageClass | None = None
    id: VolumeId | None = None

    @classmethod
    def of(cls, objects: Objects, claim: PersistentVolumeClaim | None) -> ResolvedClaim:
        if claim is None:
            return cls(None)
        volume = objects.of(PersistentVolume).get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            return cls(claim, volume, None, _id_of(volume))
        storage_class = objects.of(StorageClass).get(claim.class_name)
        if storage_class is None:
            return cls(claim)
        driver = storage_class.provisioner
        plugin = IN_TREE_PLUGINS.get(driver)
        if plugin is not None:
            driver = plugin.driver if plugin.is_counted else ""
        volume_id = VolumeId(driver, "", claim.key) if driver else None
        return cls(claim, None, storage_class, volume_id)

    def still_holds(self, objects: Objects, name: str, namespace: str) -> bool:
        """Whether all that it rests on is as it was."""
        claim = objects.of(PersistentVolumeClaim).get(name, namespace)
        if claim is not self.claim or claim is None:
            return claim is self.claim
        if objects.of(PersistentVolume).get(claim.spec.volume_name) is not self.volume:
            return False
        if self.volume is not None:
            return True
        return objects.of(StorageClass).get(claim.class_name) is self.storage_class


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


@dataclass(slots=True)
class NodeVolumes:
    """What is attached to one node, or will be for the pods that are there."""

    used: frozenset[VolumeId] = frozenset()
    """By pods."""
    counts: dict[str, int] = field(default_factory=dict)
    """For each driver, those that are attached and used by no pod among them."""
    problem: str = ""
    """Why it cannot be told what a pod there uses."""
    claims: frozenset[tuple[str, str]] = frozenset()
    """Namespace and name of the claims on which this rests."""


@dataclass(frozen=True, slots=True)
class _Attachment:
    attachment: VolumeAttachment
    volume: PersistentVolume | None

    @property
    def node_name(self) -> str:
        return self.attachment.spec.node_name

    @property
    def id(self) -> VolumeId | None:
        """The volume that is attached; only CSI volumes count."""
        driver = self.attachment.spec.attacher
        csi = self.volume.spec.csi if self.volume is not None else None
        return VolumeId(driver, csi.volume_handle) if driver and csi is not None else None


class VolumeUses:
    """The volumes of every row, and for each volume its rows."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = cluster.nodes
        self._usage = LogReader()
        self._node_changes = LogReader()
        self._on_row: dict[int, NodeVolumes] = {}
        self._counts: dict[str, Column] = {}
        self._rows: dict[VolumeId, set[int]] = {}
        self._claims: dict[tuple[str, str], ResolvedClaim] = {}
        self._claim_rows: dict[tuple[str, str], set[int]] = {}
        self._claim_versions: tuple[int, ...] = ()
        self._attachments: dict[str, _Attachment] = {}
        self._attached: dict[str, dict[str, VolumeId]] = {}
        self._attachment_versions: tuple[int, ...] = ()
        self.problems: dict[int, str] = {}
        """Rows with a pod of which it cannot be told what it uses, and why."""

    def count(self, driver: str) -> Column | None:
        """How many volumes of a driver each row has; None where no row ever had one."""
        return self._counts.get(driver)

    def rows_using(self, volume: VolumeId) -> Iterable[int]:
        """Rows where a pod uses the volume."""
        return self._rows.get(volume, ())

    def update(self, cluster: Cluster) -> None:
        rows = {
            *self._usage.changed(cluster.usage_log, cluster.nodes.high),
            *self._node_changes.changed(cluster.node_log, cluster.nodes.high),
            *self._rows_with_changed_claims(cluster.objects),
        }
        for node_name in self._changed_attachments(cluster.objects):
            row = cluster.nodes.row_of.get(node_name)
            if row is not None:
                rows.add(row)
        for row in rows:
            self._write(row, self.on_node(cluster, cluster.row_pods[row], cluster.nodes.name[row]))

    def on_node(self, cluster: Cluster, slots: Iterable[int], node_name: str) -> NodeVolumes:
        """What a node would have if these pods were there."""
        used: set[VolumeId] = set()
        claims: set[tuple[str, str]] = set()
        problem = ""
        for slot in slots:
            for volume in _volumes_in(cluster, slot):
                pod = cluster.pods.pod[slot]
                assert pod is not None
                if isinstance(volume, InlineVolume):
                    volume_id, trouble = volume.id, volume.problem
                else:
                    claims.add((pod.namespace, volume.name))
                    volume_id, trouble = self._claimed(cluster.objects, pod, volume)
                problem = problem or trouble
                if volume_id is not None:
                    used.add(volume_id)
        counts: dict[str, int] = {}
        attached = self._attached.get(node_name)
        for volume_id in used.union(attached.values()) if attached else used:
            counts[volume_id.driver] = counts.get(volume_id.driver, 0) + 1
        return NodeVolumes(frozenset(used), counts, problem, frozenset(claims))

    def supposed(self, nodes: Hypothesis) -> dict[int, NodeVolumes]:
        """What the rows would have (by position), as far as the pods in question use volumes at all."""
        cluster = nodes.cluster
        positions = np.repeat(np.arange(len(nodes)), nodes.starts[1:] - nodes.starts[:-1])
        gone: dict[int, list[int]] = {}
        added: dict[int, list[int]] = {}
        for slot, sign, position in zip(
            nodes.slots.tolist(), nodes.signs.tolist(), positions.tolist(), strict=True
        ):
            if sign and _volumes_in(cluster, slot):
                (gone if sign < 0 else added).setdefault(position, []).append(slot)
        found = {}
        for position in gone.keys() | added.keys():
            row = int(nodes.rows[position])
            left = [slot for slot in cluster.row_pods[row] if slot not in gone.get(position, ())]
            slots = left + added.get(position, [])
            found[position] = self.on_node(cluster, slots, cluster.nodes.name[row])
        return found

    def _claimed(self, objects: Objects, pod: Pod, volume: ClaimedVolume) -> tuple[VolumeId | None, str]:
        """The volume of a claim that a placed pod uses, or why that cannot be told."""
        if not volume.name:
            return None, NO_CLAIM_NAME
        key = (pod.namespace, volume.name)
        resolved = self._claims.get(key)
        if resolved is None:
            claim = objects.of(PersistentVolumeClaim).get(volume.name, pod.namespace)
            resolved = self._claims[key] = ResolvedClaim.of(objects, claim)
        if resolved.claim is None:
            # A pod that runs has had its claim; what became of it is not the newcomer's business.
            return None, ""
        if volume.is_ephemeral and not resolved.claim.was_made_for(pod):
            return None, not_made_for(resolved.claim, pod)
        return resolved.id, ""

    def _rows_with_changed_claims(self, objects: Objects) -> set[int]:
        versions = objects.versions((PersistentVolumeClaim, PersistentVolume, StorageClass))
        rows: set[int] = set()
        if versions == self._claim_versions:
            return rows
        self._claim_versions = versions
        for key, resolved in list(self._claims.items()):
            users = self._claim_rows.get(key)
            if not users or not resolved.still_holds(objects, key[1], key[0]):
                del self._claims[key]
                rows.update(users or ())
        return rows

    def _changed_attachments(self, objects: Objects) -> set[str]:
        """Takes in new, changed and vanished attachments, and says which nodes they are about."""
        versions = objects.versions((VolumeAttachment, PersistentVolume))
        if versions == self._attachment_versions:
            return set()
        self._attachment_versions = versions
        volumes = objects.of(PersistentVolume)
        fresh: list[_Attachment] = []
        outdated, self._attachments = self._attachments, {}
        for attachment in objects.of(VolumeAttachment):
            volume = volumes.get(attachment.spec.source.persistent_volume_name or "")
            known = outdated.get(attachment.name)
            if known is not None and known.attachment is attachment and known.volume is volume:
                del outdated[attachment.name]
            else:
                known = _Attachment(attachment, volume)
                fresh.append(known)
            self._attachments[attachment.name] = known
        nodes: set[str] = set()
        for known in outdated.values():
            if self._attached.get(known.node_name, {}).pop(known.attachment.name, None) is not None:
                nodes.add(known.node_name)
        for known in fresh:
            if known.id is not None:
                self._attached.setdefault(known.node_name, {})[known.attachment.name] = known.id
                nodes.add(known.node_name)
        return nodes

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


def _volumes_in(cluster: Cluster, slot: int) -> PodVolumes:
    """The volumes of a placed pod that may count, found once for all pods of its template."""
    facts = cluster.pods.facts[slot]
    assert facts is not None
    found: PodVolumes | None = facts.kept.get(VolumeUses)
    if found is None:
        pod = cluster.pods.pod[slot]
        assert pod is not None
        found = facts.kept[VolumeUses] = limited_volumes(pod)
    return found


def _move(rows_of: dict[_Thing, set[int]], row: int, before: Set[_Thing], now: Set[_Thing]) -> None:
    """Brings an index from things to rows up to date with what the row has now."""
    for thing in before - now:
        rows_of[thing].discard(row)
        if not rows_of[thing]:
            del rows_of[thing]
    for thing in now - before:
        rows_of.setdefault(thing, set()).add(row)
