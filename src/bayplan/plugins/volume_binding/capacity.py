"""Scores by storage capacity: with the default shape, nodes with more free storage are preferred.

On a node where free volumes were found for some claims, the claims' sizes are compared with the sizes of
these volumes; elsewhere, with the capacities that the drivers report. Each storage class has a utilization
and so a score, and the node gets their average.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayplan.plugin import IntColumn, NodeColumns, SelectorError, derived
from bayplan.plugin.objects import value
from bayplan.plugin.storage import (
    STORAGE,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageRoom,
    VolumeOffers,
    claims_by_size,
    match_volumes,
)
from bayplan.plugins.volume_binding.claims import bytes_to_check, selected_node

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
