"""Which free volumes a pod's claims would get, on every node at once.

Claims are served in the order of their size, the smallest first, each with the smallest volume that will do
and that reaches the node. Nodes which none of the volumes tells apart get the same volumes. So the rows are
split by what volumes demand of a node's labels, and the claims are served once for each part: for volumes of
three zones that is three times, for disks that stand in the nodes once for each node that has a free one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import numpy as np

from bayplan.api.meta import NodeSelector
from bayplan.api.node_selectors import CompiledTerm, compile_terms
from bayplan.api.quantity import parse_quantity
from bayplan.api.selectors import EVERYTHING, Operator, Selector, compile_selector
from bayplan.api.storage import STORAGE, PersistentVolume, PersistentVolumeClaim
from bayplan.errors import SelectorError
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.node_matching import rows_matching_terms
from bayplan.snapshot.view import BoolColumn, IntColumn, NodeColumns
from bayplan.snapshot.volume_offers import Offer, VolumeOffers

AVAILABLE: Final = "Available"
FILESYSTEM: Final = "Filesystem"

Reach = tuple[CompiledTerm, ...]
"""Alternatives of what a volume demands of a node's labels."""


@lru_cache(maxsize=16384)
def reach(affinity: NodeSelector) -> Reach:
    """What a volume's node affinity means. It is about labels: the name of a node is not looked at."""
    return tuple(
        CompiledTerm(expressions=term.expressions, error=term.error)
        for term in compile_terms(affinity.node_selector_terms)
    )


def rows_reached(nodes: NodeColumns, affinity: NodeSelector | None) -> BoolColumn:
    """Rows that a volume with this node affinity can be attached to; without one, all."""
    if affinity is None:
        return np.ones(len(nodes), dtype=np.bool_)
    return rows_matching_terms(nodes, reach(affinity))


def by_size(claims: Iterable[PersistentVolumeClaim]) -> list[PersistentVolumeClaim]:
    """The claims in the order in which they are served."""
    return sorted(claims, key=_size)


@dataclass(frozen=True, slots=True)
class VolumeMatches:
    """What each claim gets on each row."""

    part: IdColumn
    """For each row the part it belongs to."""
    chosen: list[tuple[PersistentVolume | None, ...]]
    """For each part the volume of each claim, or None."""

    def missing(self, claim: int) -> BoolColumn:
        """Rows where there is no volume for the claim at this place in the list."""
        table = np.array([volumes[claim] is None for volumes in self.chosen], dtype=np.bool_)
        return table.take(self.part)

    def at(self, position: int) -> tuple[PersistentVolume | None, ...]:
        """The volume of each claim on one row."""
        return self.chosen[int(self.part[position])]


def match_volumes(
    claims: Sequence[PersistentVolumeClaim], offers: VolumeOffers, nodes: NodeColumns
) -> VolumeMatches:
    """Serves the claims, in the given order, on every row.

    Raises:
        SelectorError: a claim's selector is malformed; its `object_key` is the claim's.
    """
    reaches: dict[Reach, int] = {}

    def number(volume: PersistentVolume) -> int:
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return EVERYWHERE
        return reaches.setdefault(reach(affinity.required), len(reaches))

    candidates = [_Candidates(claim, offers, number) for claim in claims]
    part, reached_by = _split(nodes, list(reaches))
    return VolumeMatches(part, [_serve(candidates, reaching) for reaching in reached_by])


EVERYWHERE: Final = -1
"""The number of the reach of volumes that demand nothing."""


class _Candidates:
    """The volumes that could serve one claim, in the order in which they are preferred."""

    __slots__ = ("_by_reach", "_reserved")

    def __init__(
        self,
        claim: PersistentVolumeClaim,
        offers: VolumeOffers,
        number: Callable[[PersistentVolume], int],
    ) -> None:
        selector = _selector(claim)
        self._reserved = [
            (number(offer.volume), offer.volume)
            for offer in sorted(offers.reserved_for(claim.namespace, claim.name), key=_preference)
            if offer.volume.is_for(claim)
            and offer.volume.class_name == claim.class_name
            and _is_suitable(offer, claim)
        ]
        self._by_reach: dict[int, list[tuple[int, PersistentVolume]]] = {}
        free = (
            offer
            for offer in offers.free(claim.class_name)
            if _is_suitable(offer, claim) and _is_available(offer.volume, claim, selector)
        )
        for rank, offer in enumerate(sorted(free, key=_preference)):
            self._by_reach.setdefault(number(offer.volume), []).append((rank, offer.volume))

    def best(self, reaching: Iterable[int], taken: set[str]) -> PersistentVolume | None:
        """The volume to take where volumes of these reaches can be had."""
        for reserved_reach, volume in self._reserved:
            if volume.name not in taken:
                # One that is kept for the claim is taken or none, even if others would do.
                return volume if reserved_reach in reaching or reserved_reach == EVERYWHERE else None
        best: tuple[int, PersistentVolume] | None = None
        for reach_number in (EVERYWHERE, *reaching):
            for rank, volume in self._by_reach.get(reach_number, ()):
                if volume.name not in taken:
                    if best is None or rank < best[0]:
                        best = (rank, volume)
                    break
        return None if best is None else best[1]


def _serve(
    candidates: Iterable[_Candidates], reaching: frozenset[int]
) -> tuple[PersistentVolume | None, ...]:
    taken: set[str] = set()
    chosen = []
    for of_claim in candidates:
        volume = of_claim.best(reaching, taken)
        if volume is not None:
            taken.add(volume.name)
        chosen.append(volume)
    return tuple(chosen)


def _is_suitable(offer: Offer, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume, wherever it is and whoever has it, is such as the claim asks for."""
    volume, wanted = offer.volume, claim.spec
    return (
        offer.capacity >= _size(claim)
        and (volume.spec.volume_mode or FILESYSTEM) == (wanted.volume_mode or FILESYSTEM)
        and (volume.spec.volume_attributes_class_name or "") == (wanted.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def _is_available(volume: PersistentVolume, claim: PersistentVolumeClaim, selector: Selector) -> bool:
    return (
        volume.status.phase == AVAILABLE
        and selector.matches(volume.labels)
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
    )


def _size(claim: PersistentVolumeClaim) -> int:
    return parse_quantity(claim.spec.resources.requests.get(STORAGE))


def _preference(offer: Offer) -> tuple[int, str]:
    """The smallest first. Names decide between equals, so that it does not matter which came first."""
    return offer.capacity, offer.volume.name


def _selector(claim: PersistentVolumeClaim) -> Selector:
    if claim.spec.selector is None:
        return EVERYTHING
    try:
        return compile_selector(claim.spec.selector)
    except SelectorError as error:
        raise error.at(object_key=claim.key) from error.__cause__


def _split(nodes: NodeColumns, reaches: Sequence[Reach]) -> tuple[IdColumn, list[frozenset[int]]]:
    """Splits the rows into parts that the same volumes reach: each row's part, and each part's reaches."""
    part: IdColumn = np.zeros(len(nodes), dtype=np.intp)
    reached_by: list[frozenset[int]] = [frozenset()]

    def refine(answers: IntColumn, meaning: Sequence[Iterable[int]]) -> None:
        nonlocal part, reached_by
        distinct, found = np.unique(part * len(meaning) + answers, return_inverse=True)
        pairs = [divmod(pair, len(meaning)) for pair in distinct.tolist()]
        part = found.astype(np.intp).reshape(-1)
        reached_by = [reached_by[old].union(meaning[answer]) for old, answer in pairs]

    by_label: dict[str, dict[str, list[int]]] = {}
    for number, alternatives in enumerate(reaches):
        label = _only_label(alternatives)
        if label is None:
            refine(rows_matching_terms(nodes, alternatives).astype(np.int64), ((), (number,)))
            continue
        for value in alternatives[0].expressions[0].values:
            by_label.setdefault(label, {}).setdefault(value, []).append(number)
    for label, by_value in by_label.items():
        # The usual case, a zone or a host: one look at each distinct value of the label serves all volumes.
        meaning: dict[tuple[int, ...], int] = {(): 0}
        answer = {value: meaning.setdefault(tuple(n), len(meaning)) for value, n in by_value.items()}
        refine(nodes.label(label).map(partial(_get, answer)), list(meaning))
    return part, reached_by


def _get(answers: dict[str, int], value: str) -> int:
    return answers.get(value, 0)


def _only_label(alternatives: Reach) -> str | None:
    """The label, where all that is demanded is that it has one of some values."""
    if len(alternatives) != 1 or alternatives[0].error is not None or len(alternatives[0].expressions) != 1:
        return None
    demand = alternatives[0].expressions[0]
    return demand.key if demand.operator is Operator.IN else None
