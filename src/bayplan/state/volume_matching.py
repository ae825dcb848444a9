"""Matches claims with volumes: each claim gets the smallest suitable volume that reaches a node.

`volume_binding.py` has what there is: the volumes that are offered, and what was assumed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import numpy as np

from bayplan.api.quantity import parse_quantity
from bayplan.api.selectors import EVERYTHING, Operator, Selector, compile_selector
from bayplan.api.storage import STORAGE, PersistentVolume, PersistentVolumeClaim
from bayplan.errors import SelectorError
from bayplan.state.columns import IdColumn
from bayplan.state.node_matching import rows_matching_terms
from bayplan.state.view import BoolColumn, IntColumn, NodeColumns
from bayplan.state.volume_binding import EVERYWHERE, Offer, Reach, VolumeOffers

AVAILABLE: Final = "Available"
FILESYSTEM: Final = "Filesystem"


def claims_by_size(claims: Iterable[PersistentVolumeClaim]) -> list[PersistentVolumeClaim]:
    """The claims in the order in which they are processed, the smallest first."""
    return sorted(claims, key=_size)


@dataclass(frozen=True, slots=True)
class VolumeMatches:
    """The volume of each claim on each row."""

    group_of: IdColumn
    """For each row its group."""
    chosen: list[tuple[PersistentVolume | None, ...]]
    """For each group the volume of each claim, or None."""

    def missing(self, claim: int) -> BoolColumn:
        """Rows without a volume for the claim at this index."""
        table = np.array([volumes[claim] is None for volumes in self.chosen], dtype=np.bool_)
        return table.take(self.group_of)

    def at(self, position: int) -> tuple[PersistentVolume | None, ...]:
        """The volume of each claim on one row."""
        return self.chosen[int(self.group_of[position])]


def match_volumes(
    claims: Sequence[PersistentVolumeClaim], offers: VolumeOffers, nodes: NodeColumns
) -> VolumeMatches:
    """Matches the claims, in the given order, on every row: each gets the smallest suitable volume that
    reaches the node.

    Nodes that no volume distinguishes get the same volumes. So the rows are grouped by the node affinity of
    the volumes, and the claims are processed once for each group: for volumes of three zones that is three
    times, for local disks once for each node that has a free one.

    Raises:
        SelectorError: a claim's selector is malformed; its `object_key` is the claim's.
    """
    shared: dict[tuple[object, ...], _FreeVolumes] = {}
    candidates = [_Candidates(claim, offers, shared) for claim in claims]
    reaches = {reach: offers.reaches.values[reach] for of_claim in candidates for reach in of_claim.reaches}
    group_of, reached_by = _group_rows(nodes, reaches)
    return VolumeMatches(group_of, [_choose(candidates, reaching) for reaching in reached_by])


class _FreeVolumes:
    """The free volumes for claims that differ only in their size, in order of preference."""

    __slots__ = ("by_reach", "capacities")

    def __init__(self, claim: PersistentVolumeClaim, selector: Selector, offers: VolumeOffers) -> None:
        is_suitable, modes = _Suitability(claim, 0), set(claim.spec.access_modes)
        free = [
            offer
            for offer in offers.free(claim.class_name)
            if is_suitable(offer)
            and offer.volume.status.phase == AVAILABLE
            and selector.matches(offer.volume.labels)
            and modes.issubset(offer.volume.spec.access_modes)
        ]
        free.sort(key=_preference)
        self.by_reach: dict[int, list[Offer]] = {}
        for offer in free:
            self.by_reach.setdefault(offer.reach, []).append(offer)
        self.capacities = {
            reach: [offer.capacity for offer in found] for reach, found in self.by_reach.items()
        }


class _Cursors:
    """Where the next volume is, in lists of free volumes.

    Claims are processed by size, so that what was passed over is taken or too small: each volume is looked at
    once, however many claims there are.
    """

    __slots__ = ("_at", "taken")

    def __init__(self) -> None:
        self.taken: set[str] = set()
        """Names of volumes."""
        self._at: dict[tuple[int, int], tuple[int, int]] = {}

    def next(self, free: _FreeVolumes, reach: int, size: int) -> Offer | None:
        """The best volume of a reach that is large enough and not taken."""
        found = free.by_reach.get(reach)
        if found is None:
            return None
        last_size, index = self._at.get((id(free), reach), (-1, 0))
        if size != last_size:
            first = bisect_left(free.capacities[reach], size)
            index = max(index, first) if size > last_size else first
        while index < len(found) and found[index].volume.name in self.taken:
            index += 1
        self._at[id(free), reach] = size, index
        return found[index] if index < len(found) else None


class _Candidates:
    """The volumes that could serve one claim, in order of preference."""

    __slots__ = ("_free", "_reserved", "_size")

    def __init__(
        self,
        claim: PersistentVolumeClaim,
        offers: VolumeOffers,
        shared: dict[tuple[object, ...], _FreeVolumes],
    ) -> None:
        self._size = _size(claim)
        is_suitable, selector = _Suitability(claim, self._size), _selector(claim)
        self._reserved = [
            offer
            for offer in sorted(offers.reserved_for(claim.namespace, claim.name), key=_preference)
            if offer.volume.is_for(claim)
            and offer.volume.class_name == claim.class_name
            and is_suitable(offer)
        ]
        spec = claim.spec
        wanted = (
            claim.class_name,
            frozenset(spec.access_modes),
            spec.volume_mode or FILESYSTEM,
            spec.volume_attributes_class_name or "",
            None if spec.selector is None else msgspec.msgpack.encode(spec.selector),
        )
        free = shared.get(wanted)
        if free is None:
            free = shared[wanted] = _FreeVolumes(claim, selector, offers)
        self._free = free

    @property
    def reaches(self) -> set[int]:
        """The node affinity of their volumes."""
        large = (reach for reach, sizes in self._free.capacities.items() if sizes[-1] >= self._size)
        return {offer.reach for offer in self._reserved}.union(large) - {EVERYWHERE}

    def best(self, reaching: frozenset[int], cursors: _Cursors) -> PersistentVolume | None:
        """The volume to use where volumes of these reaches are available."""
        for offer in self._reserved:
            if offer.volume.name not in cursors.taken:
                # If a volume is reserved for the claim, no other is used.
                return offer.volume if offer.reach in reaching or offer.reach == EVERYWHERE else None
        found = (cursors.next(self._free, reach, self._size) for reach in (EVERYWHERE, *reaching))
        best = min((offer for offer in found if offer is not None), key=_preference, default=None)
        return None if best is None else best.volume


class _Suitability:
    """Whether a volume satisfies a claim, wherever it is."""

    __slots__ = ("_attributes_class", "_mode", "_size")

    def __init__(self, claim: PersistentVolumeClaim, size: int) -> None:
        self._size = size
        self._mode = claim.spec.volume_mode or FILESYSTEM
        self._attributes_class = claim.spec.volume_attributes_class_name or ""

    def __call__(self, offer: Offer) -> bool:
        volume = offer.volume
        return (
            offer.capacity >= self._size
            and (volume.spec.volume_mode or FILESYSTEM) == self._mode
            and (volume.spec.volume_attributes_class_name or "") == self._attributes_class
            and volume.metadata.deletion_timestamp is None
        )


def _size(claim: PersistentVolumeClaim) -> int:
    return parse_quantity(claim.spec.resources.requests.get(STORAGE))


def _preference(offer: Offer) -> tuple[int, str]:
    """The smallest first. Equals are ordered by name, so that the result does not depend on the order of
    arrival."""
    return offer.capacity, offer.volume.name


def _selector(claim: PersistentVolumeClaim) -> Selector:
    if claim.spec.selector is None:
        return EVERYTHING
    try:
        return compile_selector(claim.spec.selector)
    except SelectorError as error:
        raise error.at(object_key=claim.key) from error.__cause__


def _choose(
    candidates: Iterable[_Candidates], reaching: frozenset[int]
) -> tuple[PersistentVolume | None, ...]:
    chosen: list[PersistentVolume | None] = []
    cursors = _Cursors()
    for of_claim in candidates:
        volume = of_claim.best(reaching, cursors)
        chosen.append(volume)
        if volume is not None:
            cursors.taken.add(volume.name)
    return tuple(chosen)


def _group_rows(nodes: NodeColumns, reaches: dict[int, Reach]) -> tuple[IdColumn, list[frozenset[int]]]:
    """Groups the rows by the volumes that reach them: each row's group, and each group's reaches."""
    group_of: IdColumn = np.zeros(len(nodes), dtype=np.intp)
    reached_by: list[frozenset[int]] = [frozenset()]

    def refine(answers: IntColumn, meaning: Sequence[Iterable[int]]) -> None:
        nonlocal group_of, reached_by
        distinct, found = np.unique(group_of * len(meaning) + answers, return_inverse=True)
        pairs = [divmod(pair, len(meaning)) for pair in distinct.tolist()]
        group_of = found.astype(np.intp).reshape(-1)
        reached_by = [reached_by[old].union(meaning[answer]) for old, answer in pairs]

    by_label: dict[str, dict[str, list[int]]] = {}
    for number, alternatives in reaches.items():
        label = _only_label(alternatives)
        if label is None:
            refine(rows_matching_terms(nodes, alternatives).astype(np.int64), ((), (number,)))
            continue
        for label_value in alternatives[0].expressions[0].values:
            by_label.setdefault(label, {}).setdefault(label_value, []).append(number)
    for label, by_value in by_label.items():
        # The usual case, a zone or a host: one lookup per distinct value of the label serves all volumes.
        meaning: dict[tuple[int, ...], int] = {(): 0}
        answer = {value: meaning.setdefault(tuple(n), len(meaning)) for value, n in by_value.items()}
        refine(nodes.label(label).map(partial(_answer, answer)), list(meaning))
    return group_of, reached_by


def _answer(answers: dict[str, int], value: str) -> int:
    return answers.get(value, 0)


def _only_label(alternatives: Reach) -> str | None:
    """The label, if the only requirement is that it has one of some values."""
    if len(alternatives) != 1 or alternatives[0].error is not None or len(alternatives[0].expressions) != 1:
        return None
    requirement = alternatives[0].expressions[0]
    return requirement.key if requirement.operator is Operator.IN else None
