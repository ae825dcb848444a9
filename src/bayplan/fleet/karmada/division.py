"""How the replicas of a workload are divided among the selected clusters.

Duplicated gives every cluster all replicas; static weights ignore what fits; dynamic weights are what fits,
and Aggregated uses as few clusters as possible. In steady mode clusters keep what they have: scaling up
divides only the new replicas, scaling down takes away in proportion. Fresh mode divides everything again.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bayplan.fleet.karmada.kinds import AGGREGATED, DIVIDED, WEIGHTED, Placement, int32
from bayplan.go_sort import go_sort_by

NO_CLUSTERS: Final = "no clusters available to schedule"
NOT_ENOUGH: Final = "Clusters available replicas {total} are not enough to schedule."
NOT_ENOUGH_IN_TIERS: Final = "Clusters available replicas are not enough to schedule."
NO_STRATEGY: Final = (
    "unsupported replica scheduling strategy, replicaSchedulingType: {type}, "
    "replicaDivisionPreference: {preference}, please try another scheduling strategy"
)
UP, DOWN, FRESH = "failed to scale up: ", "failed to scale down: ", "failed to do fresh scale: "


@dataclass(frozen=True, slots=True)
class Selected:
    """A selected cluster, with the values that its share depends on."""

    name: str
    more: int
    """Replicas that it has room for besides those it has."""
    previous: int = 0
    has_entry: bool = False
    """Whether the previous result names it, also without replicas."""
    weight: int | None = None
    """From the static weight list; None: no rule matches it."""
    tier: int = 0


@dataclass(frozen=True, slots=True)
class Division:
    """Replicas by cluster, or why there are none, and the rule that divided them."""

    replicas: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    is_unschedulable: bool = False
    """Whether the error is that there is too little room."""
    rule: str = ""
    """`duplicated`, `static weights`, `dynamic weights` or `aggregated`."""
    mode: str = ""
    """Of dynamic rules: `first`, `scale up`, `scale down`, `unchanged` or `fresh`."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """What the replicas were divided by."""


def divide(
    selected: Sequence[Selected],
    placement: Placement,
    replicas: int,
    uid: str,
    previous: Sequence[str],
    *,
    fresh: bool,
    in_tiers: bool,
) -> Division:
    """Divides the replicas.

    Args:
        selected: in the order of selection.
        previous: the clusters of the previous result, in its order.
        fresh: whether to ignore where replicas are.
        in_tiers: whether the affinity group has overflow tiers.
    """
    if not selected:
        return Division(error=NO_CLUSTERS)
    position = {name: place for place, name in enumerate(previous)}
    strategy = _Strategy(placement, position, uid, fresh)
    return _by_tiers(strategy, selected, replicas) if in_tiers else strategy.divide(selected, replicas)


def _by_tiers(strategy: _Strategy, selected: Sequence[Selected], replicas: int) -> Division:
    """Fills tier after tier; each is divided like a workload of its own."""
    left, found = replicas, Division()
    for tier in sorted({one.tier for one in selected}):
        inside = [one for one in selected if one.tier == tier]
        share = min(left, sum(one.more + one.previous for one in inside))
        part = strategy.divide(inside, share)
        if part.error:
            return part
        replicas_so_far = {**found.replicas, **part.replicas}
        found = replace(part, replicas=replicas_so_far, weights={**found.weights, **part.weights})
        left -= share
        if left <= 0:
            return found
    return Division(error=NOT_ENOUGH_IN_TIERS, is_unschedulable=True, rule=found.rule)


@dataclass(frozen=True, slots=True)
class _Strategy:
    """How a placement divides replicas."""

    placement: Placement
    position: Mapping[str, int]
    """Of the clusters in the previous result."""
    uid: str
    fresh: bool

    def divide(self, selected: Sequence[Selected], replicas: int) -> Division:
        division = self._rule(selected, replicas)
        return replace(division, replicas={name: count for name, count in division.replicas.items() if count})

    def _rule(self, selected: Sequence[Selected], replicas: int) -> Division:
        scheduling = self.placement.replica_scheduling
        if scheduling is None or self.placement.is_duplicated:
            return Division({one.name: replicas for one in selected}, rule="duplicated")
        kind, preference = scheduling.replica_scheduling_type, scheduling.replica_division_preference
        if kind != DIVIDED or preference not in (AGGREGATED, WEIGHTED):
            return Division(error=NO_STRATEGY.format(type=kind, preference=preference))
        weights = scheduling.weight_preference
        if preference == WEIGHTED and (weights is None or not weights.dynamic_weight):
            return _by_static_weights(selected, replicas, self.uid)
        return self._by_room(selected, replicas, aggregated=preference == AGGREGATED)

    def _by_room(self, selected: Sequence[Selected], replicas: int, *, aggregated: bool) -> Division:
        rule = "aggregated" if aggregated else "dynamic weights"
        held = sorted((one for one in selected if one.has_entry), key=lambda one: self.position[one.name])
        assigned = sum(one.previous for one in held)
        base: dict[str, int] = {}
        if self.fresh:
            mode, prefix, total = "fresh", FRESH, replicas
            weights = [(one.name, one.more + one.previous) for one in selected]
        elif assigned > replicas:
            mode, prefix, total = "scale down", DOWN, replicas
            weights = [(one.name, one.previous) for one in held]
        elif assigned < replicas:
            mode, prefix, total = "scale up" if assigned else "first", UP, replicas - assigned
            # Negative where existing replicas would not all fit again (exact numbers only).
            weights = [(one.name, max(0, one.more)) for one in selected]
            base = {one.name: one.previous for one in held}
        else:
            return Division({one.name: one.previous for one in held}, rule=rule, mode="unchanged")
        weights = go_sort_by(weights, key=lambda one: -one[1])
        room = int32(sum(weight for _, weight in weights))
        if room < total:
            error = prefix + NOT_ENOUGH.format(total=room)
            return Division(error=error, is_unschedulable=True, rule=rule, mode=mode, weights=dict(weights))
        if aggregated:
            weights.sort(key=lambda one: base.get(one[0], 0) <= 0)
            weights = weights[: _shortest_prefix([weight for _, weight in weights], total)]
        shares = webster(total, dict(weights), self.uid)
        divided = {name: base.get(name, 0) + count for name, count in shares.items()}
        kept = {name: count for name, count in base.items() if name not in divided}
        return Division({**divided, **kept}, rule=rule, mode=mode, weights=dict(weights))


def _by_static_weights(selected: Sequence[Selected], replicas: int, uid: str) -> Division:
    weights = {one.name: one.weight for one in selected if one.weight is not None}
    if not weights:
        weights = {one.name: 1 for one in selected}
    return Division(webster(replicas, weights, uid), rule="static weights", weights=weights)


def _shortest_prefix(weights: Sequence[int], total: int) -> int:
    """How many of the first weights add up to the total."""
    room = 0
    for count, weight in enumerate(weights, 1):
        room += weight
        if room >= total:
            return count
    return len(weights)


def webster(total: int, weights: Mapping[str, int], uid: str = "") -> dict[str, int]:
    """Divides by weights with Webster's method: one after the other, to the highest weight / (2·seats + 1).

    Of equals, the one with fewer replicas comes first, then the first by name, or the last if the hash of
    the uid is odd: otherwise the same cluster would get the odd replica of every workload. Nothing is
    divided if all weights are zero.

    With many replicas nearly all of them are certain beforehand: what proportion gives, less one per cluster.
    """
    all_weights = sum(weights.values())
    if all_weights <= 0:
        return {}
    names = sorted(weights)
    ranked = reversed(names) if uid and _fnv1a(uid) % 2 else names
    rank = {name: place for place, name in enumerate(ranked)}
    seats = dict.fromkeys(names, 0)
    certain = total - len(names)
    if certain > 0:
        for name in names:
            # Seats whose priority is at least all_weights / (2·certain): together at most certain + half a
            # seat for each name.
            seats[name] = (2 * weights[name] * certain + all_weights) // (2 * all_weights)
    heap = [(-weights[name] / (2 * seats[name] + 1), seats[name], rank[name], name) for name in names]
    heapq.heapify(heap)
    for _ in range(total - sum(seats.values())):
        name = heap[0][3]
        seats[name] = count = seats[name] + 1
        heapq.heapreplace(heap, (-weights[name] / (2 * count + 1), count, rank[name], name))
    return seats


def _fnv1a(text: str) -> int:
    """FNV-1a with 32 bits."""
    number = 2166136261
    for byte in text.encode():
        number = (number ^ byte) * 16777619 % 2**32
    return number
