"""The claims of a pod: which are bound, and which get a volume together with the pod's node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bayplan.plugin import SKIP, NodeColumns, Pod, Status, failure, unresolvable
from bayplan.plugin.objects import Objects, value
from bayplan.plugin.storage import (
    SELECTED_NODE_ANNOTATION,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    CSIDriver,
    PersistentVolumeClaim,
    StorageClass,
    expected_claim,
    not_found,
    not_made_for,
)

WAITING: Final = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
LOST: Final = 'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
DELETED: Final = 'persistentvolumeclaim "{name}" is being deleted'
NO_BINDING_MODE: Final = 'VolumeBindingMode not set for StorageClass "{name}"'
UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"
CLAIM_LOST: Final = "Lost"


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The pod's claims, in the order of its volumes."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]
    """Those that get a volume together with the pod's node."""


def claims_of(objects: Objects, pod: Pod) -> PodClaims | Status:
    """The pod's claims; SKIP if it has none; or why it cannot be scheduled now."""
    names = []
    for volume in pod.spec.volumes:
        name = pod.claim_name(volume)
        if name is None:
            continue
        names.append(name)
        is_ephemeral = volume.persistent_volume_claim is None
        claim = objects.of(PersistentVolumeClaim).get(name, pod.namespace)
        if claim is None:
            missing = not_found(PersistentVolumeClaim, name)
            return unresolvable(WAITING.format(name=name) if is_ephemeral else missing)
        if claim.status.phase == CLAIM_LOST:
            return unresolvable(LOST.format(name=name, volume=claim.spec.volume_name))
        if claim.metadata.deletion_timestamp is not None:
            return unresolvable(DELETED.format(name=name))
        if is_ephemeral and not claim.was_made_for(pod):
            return unresolvable(not_made_for(claim, pod))
    if not names:
        return SKIP
    bound: list[PersistentVolumeClaim] = []
    delayed: list[PersistentVolumeClaim] = []
    immediate: list[PersistentVolumeClaim] = []
    for name in names:
        claim = expected_claim(objects, name, pod.namespace)
        assert claim is not None
        if claim.is_fully_bound:
            bound.append(claim)
            continue
        storage_class = objects.of(StorageClass).get(claim.class_name) if claim.class_name else None
        if storage_class is not None and storage_class.volume_binding_mode is None:
            return failure(NO_BINDING_MODE.format(name=claim.class_name))
        waits = storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        (delayed if waits and not claim.spec.volume_name else immediate).append(claim)
    if immediate:
        return unresolvable(UNBOUND_IMMEDIATE)
    return PodClaims(tuple(bound), tuple(delayed))


def class_of(claim: PersistentVolumeClaim, nodes: NodeColumns) -> StorageClass:
    storage_class = nodes.cluster.objects.of(StorageClass).get(claim.class_name)
    assert storage_class is not None  # a claim without class is never delayed
    return storage_class


def selected_node(claim: PersistentVolumeClaim) -> str | None:
    """The node where a volume is already being provisioned for the claim."""
    return claim.annotations.get(SELECTED_NODE_ANNOTATION)


def bytes_to_check(claim: PersistentVolumeClaim, nodes: NodeColumns) -> int | None:
    """The size to compare with the capacity that the claim's driver reports; None if nothing is compared."""
    driver = nodes.cluster.objects.of(CSIDriver).get(class_of(claim, nodes).provisioner)
    wanted = claim.spec.resources.requests.get(STORAGE)
    if wanted is None or driver is None or not driver.spec.storage_capacity:
        return None
    return value(wanted)
