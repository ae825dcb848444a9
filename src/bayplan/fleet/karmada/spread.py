"""Which of the feasible clusters are selected: spread constraints by cluster and by region.

Constraints by zone and provider only filter clusters without that property (`filters.py`), as in Karmada.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bayplan.fleet.karmada.clusters import Ints
from bayplan.fleet.karmada.kinds import DIVIDED, WEIGHTED, BindingSpec, Placement, SpreadConstraint

TOO_FEW_CLUSTERS: Final = "the number of feasible clusters is less than spreadConstraint.MinGroups"
TOO_LITTLE_ROOM: Final = "no enough resource when selecting {count} clusters"
TOO_FEW_REGIONS: Final = "the number of feasible region is less than spreadConstraint.MinGroups"
TOO_FEW_IN_REGIONS: Final = "the number of clusters is less than the cluster spreadConstraint.MinGroups"
NOT_SUPPORTED: Final = "just support cluster and region spread constraint"

WEIGHT_UNIT: Final = 1000
ANY: Final = -1
"""Instead of the number of replicas that must fit: capacity is not compared."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The feasible clusters, in any order: one entry of each column for each of them."""

    rows: Ints
    """Their rows in the table; only passed through."""
    name_rank: Ints
    """Their order by name."""
    tiers: Ints
    """0: the affinity group itself matches; then its overflow tiers."""
    scores: Ints
    available: Ints
    """Room for replicas, including the existing ones."""
    regions: Sequence[str]

    def order(self) -> Ints:
        """By tier, score, room and name."""
        return np.lexsort((self.name_rank, -self.available, -self.scores, self.tiers))


@dataclass(frozen=True, slots=True)
class Selection:
    """What was selected, as indexes into the candidates, or why nothing was."""

    ranked: Ints
    """All candidates in order of preference."""
    selected: tuple[int, ...] = ()
    error: str = ""
    rule: str = "all"
    """`all`, `cluster` or `region`."""
    region_scores: Mapping[str, int] = field(default_factory=dict)
    regions: tuple[str, ...] = ()


def constraints_are_ignored(placement: Placement) -> bool:
    """Whether replicas are divided by static weights, for which spread constraints are not applied."""
    scheduling = placement.replica_scheduling
    if scheduling is None or scheduling.replica_scheduling_type != DIVIDED:
        return False
    if scheduling.replica_division_preference != WEIGHTED:
        return False
    weights = scheduling.weight_preference
    return weights is None or (bool(weights.static_weight_list) and not weights.dynamic_weight)


def counts_sets(spec: BindingSpec) -> bool:
    """Whether room is counted in sets of all components: they must all go to one cluster."""
    constraint = _by_field(spec.placement or Placement()).get("cluster")
    is_single = constraint is not None and constraint.min_groups == constraint.max_groups == 1
    return bool(spec.components) and is_single


def select_clusters(candidates: Candidates, placement: Placement, replicas: int, need: int) -> Selection:
    """Selects by the constraints of a placement.

    Args:
        replicas: of the workload.
        need: how many replicas must fit into the selected clusters; ANY: it does not matter.
    """
    ranked = candidates.order()
    constraints = _by_field(placement)
    if not constraints or constraints_are_ignored(placement):
        return Selection(ranked, tuple(map(int, ranked)))
    region, cluster = constraints.get("region"), constraints.get("cluster")
    if region is not None:
        return _by_region(candidates, ranked, placement, region, cluster, replicas)
    if cluster is not None:
        return _by_cluster(candidates, ranked, cluster, need)
    return Selection(ranked, error=NOT_SUPPORTED)


def _by_field(placement: Placement) -> dict[str, SpreadConstraint]:
    return {one.spread_by_field: one for one in placement.spread_constraints}


def _by_cluster(candidates: Candidates, ranked: Ints, constraint: SpreadConstraint, need: int) -> Selection:
    if len(ranked) < constraint.min_groups:
        return Selection(ranked, error=TOO_FEW_CLUSTERS, rule="cluster")
    count = min(len(ranked), constraint.max_groups)
    chosen, rest = ranked[:count].copy(), ranked[count:].copy()
    if need != ANY:
        room = int(candidates.available[chosen].sum())
        for position in range(count - 1, -1, -1):
            if room >= need or not len(rest):
                break
            spare = candidates.available[rest]
            largest = int(spare.argmax())
            gained = int(spare[largest] - candidates.available[chosen[position]])
            if gained > 0:
                chosen[position], rest[largest] = rest[largest], chosen[position]
                room += gained
        # Without maxGroups nothing is selected, also if no replicas are needed.
        if room < need or not count:
            return Selection(ranked, error=TOO_LITTLE_ROOM.format(count=count), rule="cluster")
    return Selection(ranked, tuple(map(int, chosen)), rule="cluster")


# Regions


@dataclass(frozen=True, slots=True)
class Region:
    """A region with feasible clusters."""

    name: str
    members: tuple[int, ...]
    """Its clusters, in order of preference."""
    weight: int
    """How well replicas fit into it."""

    @property
    def by_weight(self) -> tuple[int, str]:
        return -self.weight, self.name


def _by_region(
    candidates: Candidates,
    ranked: Ints,
    placement: Placement,
    constraint: SpreadConstraint,
    cluster: SpreadConstraint | None,
    replicas: int,
) -> Selection:
    members: dict[str, list[int]] = {}
    for one in map(int, ranked):
        members.setdefault(candidates.regions[one], []).append(one)
    limits = cluster or SpreadConstraint()
    target = -(-replicas // constraint.min_groups) if constraint.min_groups else replicas
    least = max(limits.min_groups, constraint.min_groups)
    regions = []
    for name, inside in members.items():
        room, score = candidates.available[inside], candidates.scores[inside]
        if placement.is_duplicated:
            weight = _duplicated_weight(room, score, replicas)
        else:
            weight = _divided_weight(room, score, target, least)
        regions.append(Region(name, tuple(inside), weight))
    scores = {one.name: one.weight for one in regions}
    if len(regions) < constraint.min_groups:
        return Selection(ranked, error=TOO_FEW_REGIONS, rule="region", region_scores=scores)
    chosen = choose_regions(regions, constraint.min_groups, constraint.max_groups, limits.min_groups)
    if not chosen:
        return Selection(ranked, error=TOO_FEW_IN_REGIONS, rule="region", region_scores=scores)
    taken = [one.members[0] for one in chosen]
    # Positions in `ranked` are the order of preference.
    position = {one: place for place, one in enumerate(map(int, ranked))}
    others = sorted((member for one in chosen for member in one.members[1:]), key=position.__getitem__)
    count = min(len(taken) + len(others), limits.max_groups)
    selected = (*taken, *others[: max(0, count - len(taken))])
    names = tuple(one.name for one in chosen)
    return Selection(ranked, selected, rule="region", region_scores=scores, regions=names)


def _duplicated_weight(available: Ints, scores: Ints, replicas: int) -> int:
    valid = available >= replicas
    count = int(np.count_nonzero(valid))
    return WEIGHT_UNIT * count + int(scores[valid].sum()) // count if count else 0


def _divided_weight(available: Ints, scores: Ints, target: int, least: int) -> int:
    room = np.cumsum(available)
    enough = np.flatnonzero((room >= target) & (np.arange(1, len(room) + 1) >= least))
    count = int(enough[0]) + 1 if len(enough) else len(room)
    total, score = int(room[count - 1]), int(scores[:count].sum())
    if total < target:
        return WEIGHT_UNIT * total + score // len(room)
    return WEIGHT_UNIT * target + score // count


def choose_regions(regions: Sequence[Region], least: int, most: int, clusters: int) -> tuple[Region, ...]:
    """The regions to use: `least` to `most` of them, with at least `clusters` clusters together.

    Karmada goes through all combinations, depth first, regions with few clusters first; it records a
    combination as soon as it is large enough and does not extend it. Of those recorded, the one with the
    largest weight is best, then the one with most clusters, then the first; and of that, ordered by weight,
    the shortest beginning that was recorded, too. The combinations are exponentially many, so the best one
    is found here from the end: for each position, number of regions taken and clusters taken so far, the
    best way to go on.
    """
    ordered = sorted(regions, key=lambda one: (len(one.members), *one.by_weight))

    def is_recorded(count: int, members: int) -> bool:
        return least <= count <= most and members >= clusters

    if is_recorded(0, 0) or most <= 0:
        return ()
    reached: list[set[tuple[int, int]]] = [{(0, 0)}]
    for one in ordered:
        following = set(reached[-1])
        for count, members in reached[-1]:
            # More clusters than are needed count as the number needed: what follows is the same.
            state = count + 1, min(members + len(one.members), clusters)
            if not is_recorded(*state) and state[0] < most:
                following.add(state)
        reached.append(following)
    # Weight, clusters and indexes of the best way to go on from a state.
    best: dict[tuple[int, int], tuple[int, int, tuple[int, ...]] | None] = {}
    for index in range(len(ordered) - 1, -1, -1):
        one, later = ordered[index], best
        best = {}
        for count, members in reached[index]:
            state = count + 1, min(members + len(one.members), clusters)
            ahead = (0, 0, ()) if is_recorded(*state) else later.get(state)
            skipped = later.get((count, members))
            taken = None
            if ahead is not None:
                taken = ahead[0] + one.weight, ahead[1] + len(one.members), (index, *ahead[2])
            # A combination with this region was recorded before those without it.
            prefers_taken = taken is not None and (skipped is None or taken[:2] >= skipped[:2])
            best[count, members] = taken if prefers_taken else skipped
    found = best.get((0, 0))
    if found is None:
        return ()
    indexes = found[2]
    chosen = sorted((ordered[index] for index in indexes), key=lambda one: one.by_weight)
    index_of = {one.name: index for index, one in enumerate(ordered)}
    for length in range(max(1, least), len(chosen)):
        head = sorted(chosen[:length], key=lambda one: index_of[one.name])
        members = sum(len(one.members) for one in head)
        # Recorded: it is enough, and without its last region it would not have been.
        was_enough = is_recorded(length - 1, members - len(head[-1].members))
        if is_recorded(length, members) and not was_enough:
            return tuple(chosen[:length])
    return tuple(chosen)
