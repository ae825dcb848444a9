"""The claims of a pod: which are bound, which get a volume together with the node; and scores by capacity.

With the default shape, nodes with more free storage are preferred. On a node where free volumes were found
for some claims, the claims' sizes are compared with the sizes of these volumes; elsewhere, with the
capacities that the drivers report. Each storage class has a utilization and so a score, and the node gets
their average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bayplan.plugin import (
    SKIP,
    IntColumn,
    NodeColumns,
    Pod,
    SelectorError,
    Status,
    derived,
    failure,
    unresolvable,
)
from bayplan.plugin.objects import Objects, value
from bayplan.plugin.storage import (
    SELECTED_NODE_ANNOTATION,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    CSIDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageRoom,
    VolumeOffers,
    claims_by_size,
    expected_claim,
    match_volumes,
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


FULL = 100


def capacity_scores(
    delayed: Sequence[PersistentVolumeClaim], nodes: NodeColumns, scores: Sequence[int]
) -> IntColumn:
    """The scores of the rows. `scores` are by utilization in percent."""
    unselected = claims_by_size(claim for claim in delayed if selected_node(claim) is None)
    try:
        matches = match_volumes(unselected, derived(nodes.cluster, VolumeOffers), nodes)
    except SelectorError:
        # Filter reports it, and no node is feasible.
        return np.zeros(len(nodes), dtype=np.int64)
    found = [_volume_score(unselected, volumes, scores) for volumes in matches.chosen]
    if all(score is not None for score in found):
        return np.array(found, dtype=np.int64).take(matches.group_of)
    selected = [claim for claim in delayed if selected_node(claim) is not None]
    result = _provisioning_scores((*selected, *unselected), nodes, np.array(scores, dtype=np.int64))
    for part, score in enumerate(found):
        if score is not None:
            result[matches.group_of == part] = score
    return result


def _volume_score(
    claims: Sequence[PersistentVolumeClaim],
    volumes: Sequence[PersistentVolume | None],
    scores: Sequence[int],
) -> int | None:
    """The score of nodes where the claims get these volumes; None if they get none."""
    requested: dict[str, int] = {}
    capacity: dict[str, int] = {}
    for claim, volume in zip(claims, volumes, strict=True):
        if volume is not None:
            name = volume.class_name
            requested[name] = requested.get(name, 0) + value(claim.spec.resources.requests.get(STORAGE))
            capacity[name] = capacity.get(name, 0) + value(volume.spec.capacity.get(STORAGE))
    if not requested:
        return None
    total = sum(scores[_percent(amount, capacity[name])] for name, amount in requested.items())
    return _rounded(total, len(requested))


def _provisioning_scores(
    claims: Sequence[PersistentVolumeClaim], nodes: NodeColumns, scores: IntColumn
) -> IntColumn:
    """The scores of nodes where all the claims would be provisioned."""
    room = derived(nodes.cluster, StorageRoom)
    requested: dict[str, int] = {}
    capacity: dict[str, IntColumn] = {}
    for claim in claims:
        size = bytes_to_check(claim, nodes)
        if size is not None:
            name = claim.class_name
            requested[name] = requested.get(name, 0) + size
            # The capacity is that of the class, however many claims there are: the last one decides.
            capacity[name] = room.capacities(nodes, name, size)
    total = np.zeros(len(nodes), dtype=np.int64)
    for name, amount in requested.items():
        there = capacity[name]
        percent = np.where(amount > there, FULL, amount * 100 // np.maximum(there, 1))
        total += scores.take(percent)
    if len(requested) < 2:
        return total
    rounded: IntColumn = (2 * total + len(requested)) // (2 * len(requested))
    return rounded


def _percent(requested: int, capacity: int) -> int:
    return FULL if capacity == 0 or requested > capacity else requested * 100 // capacity


def _rounded(total: int, count: int) -> int:
    """The average, rounded half up."""
    return (2 * total + count) // (2 * count)
