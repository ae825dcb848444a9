"""VolumeZone: a pod runs in the zone of its volumes.

A cloud volume is in a zone, which its labels name, and can be attached only there. Today volumes use node
affinity (see VolumeBinding), but the labels still count. A node without any such label is assumed to be in a
cluster of one zone.

https://kubernetes.io/docs/reference/labels-annotations-taints/#topologykubernetesiozone
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from bayplan.plugin import (
    SKIP,
    Action,
    BoolColumn,
    ClusterEventWithHint,
    CycleState,
    Dependencies,
    FilterPlugin,
    NodeColumns,
    Plugin,
    Pod,
    PreFilterPlugin,
    Reject,
    Resource,
    Status,
    event_with_hint,
    unresolvable,
)
from bayplan.plugin.objects import Objects
from bayplan.plugin.storage import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    WAIT_FOR_FIRST_CONSUMER,
    ZONE,
    ZONE_DELIMITER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    not_found,
)

REASON: Final = "node(s) had no available volume zone"
NO_CLAIM_NAME: Final = "PersistentVolumeClaim had no name"
NO_VOLUME_AND_NO_CLASS: Final = "PersistentVolumeClaim had no pv name and storageClass name"
NO_BINDING_MODE: Final = 'VolumeBindingMode not set for StorageClass "{name}"'
NO_VOLUME: Final = "PersistentVolume had no name"

LABELS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
CURRENT_LABEL: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class Location(NamedTuple):
    """The location of a volume: the values of a label of which its node must have one."""

    label: str
    values: frozenset[str]


class VolumeZone(Plugin, PreFilterPlugin, FilterPlugin):
    """Rejects nodes in other zones, or regions, than the pod's volumes."""

    depends_on = Dependencies.of("volumes", kinds=(PersistentVolumeClaim, PersistentVolume, StorageClass))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            event_with_hint(Resource.STORAGE_CLASS, Action.ADD, self.added_class_helps),
            event_with_hint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            event_with_hint(
                Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE, self.claim_change_helps
            ),
            event_with_hint(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE, self.volume_change_helps),
        ]

    def added_class_helps(self, pod: Pod, old: None, new: StorageClass) -> bool:
        """Claims of a class that waits for its first consumer need no zone yet."""
        return new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER

    def claim_change_helps(
        self, pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim
    ) -> bool:
        """It is one of the pod's claims."""
        return new.namespace == pod.namespace and new.name in _claim_names(pod)

    def volume_change_helps(self, pod: Pod, old: PersistentVolume | None, new: PersistentVolume) -> bool:
        """A volume was added, or has another location now."""
        return old is None or locations_of(old) != locations_of(new)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        objects = nodes.cluster.objects
        locations: list[Location] = []
        for name in _claim_names(pod):
            volume = _volume_of(objects, name, pod.namespace)
            if isinstance(volume, Status):
                return volume
            if volume is not None:
                locations += locations_of(volume)
        if not locations:
            return SKIP
        state.write(self.name, tuple(dict.fromkeys(locations)))
        return None

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        locations: tuple[Location, ...] = state.read(self.name)
        elsewhere = np.zeros(len(nodes), dtype=np.bool_)
        for location in locations:
            elsewhere |= ~_is_in(location, nodes)
        has_labels = np.zeros(len(nodes), dtype=np.bool_)
        for label in LABELS:
            has_labels |= nodes.label(label).exists()
        # Evicting pods does not move a volume.
        yield Reject(elsewhere & has_labels, unresolvable(REASON))


def locations_of(volume: PersistentVolume) -> list[Location]:
    """The location in a volume's labels. A value with an empty part is ignored."""
    locations = []
    for label in LABELS:
        if label in volume.labels:
            values = frozenset(part.strip() for part in volume.labels[label].split(ZONE_DELIMITER))
            if "" not in values:
                locations.append(Location(label, values))
    return locations


def _claim_names(pod: Pod) -> list[str]:
    """Claims that the pod names; those of ephemeral volumes are ignored."""
    return [
        volume.persistent_volume_claim.claim_name
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    ]


def _volume_of(objects: Objects, name: str, namespace: str) -> PersistentVolume | Status | None:
    """The volume of a claim; None if it will get one on any node; or why it has none."""
    if not name:
        return unresolvable(NO_CLAIM_NAME)
    claim = objects.of(PersistentVolumeClaim).get(name, namespace)
    if claim is None:
        return unresolvable(not_found(PersistentVolumeClaim, name))
    if claim.spec.volume_name:
        volume = objects.of(PersistentVolume).get(claim.spec.volume_name)
        return volume or unresolvable(not_found(PersistentVolume, claim.spec.volume_name))
    if not claim.class_name:
        return unresolvable(NO_VOLUME_AND_NO_CLASS)
    storage_class = objects.of(StorageClass).get(claim.class_name)
    if storage_class is None:
        return unresolvable(not_found(StorageClass, claim.class_name))
    if storage_class.volume_binding_mode is None:
        return unresolvable(NO_BINDING_MODE.format(name=claim.class_name))
    return None if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER else unresolvable(NO_VOLUME)


def _is_in(location: Location, nodes: NodeColumns) -> BoolColumn:
    """Rows with one of the values, under the current label if a node no longer has the deprecated one."""
    values = nodes.label(location.label)
    inside = values.isin(location.values)
    if location.label in CURRENT_LABEL:
        inside |= ~values.exists() & nodes.label(CURRENT_LABEL[location.label]).isin(location.values)
    return inside
