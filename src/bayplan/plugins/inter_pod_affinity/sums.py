"""The number of relevant pods in each domain, for one signature; cached from pod to pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np

from bayplan.plugin import BoolColumn, Cluster, PodQuery
from bayplan.plugin._internal import DomainSums, PodCount, RowMask
from bayplan.plugin.objects import CarriedTerm, TermCarriers

MAX_SUMS: Final = 512
"""The maximum number of sums for one signature. Above it all are dropped, and computed again when needed."""


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """The number of pods that a query selects in each domain of a topology key."""

    topology_key: str
    query: PodQuery
    count: PodCount
    sums: DomainSums


@dataclass(frozen=True, slots=True)
class CarrierCounts:
    """The number of pods in each domain that carry a term which selects the incoming pod."""

    topology_key: str
    carried: CarriedTerm
    sums: DomainSums | None
    """None if no assigned pod carries the term, only a hypothetical one."""


Counts = MatchCounts | CarrierCounts


@dataclass(slots=True)
class FilterState:
    """The input of Filter. Cached for a signature; only the sums change with pods."""

    affinity: tuple[MatchCounts, ...]
    anti_affinity: tuple[MatchCounts, ...]
    existing: tuple[CarrierCounts, ...]
    """Required anti-affinity of assigned pods."""
    satisfies_itself: bool
    rejected: RowMask | None = None
    """The rows that Filter rejects, once they are needed."""
    _forbidding: tuple[DomainSums, ...] = ()
    _ran_anywhere: bool = False

    def __post_init__(self) -> None:
        terms: tuple[Counts, ...] = (*self.anti_affinity, *self.existing)
        self._forbidding = tuple(term.sums for term in terms if term.sums is not None)

    @property
    def matched_anywhere(self) -> int:
        """Pods, in any domain, that satisfy all of the pod's affinity terms."""
        return sum(counts.sums.total for counts in self.affinity)

    @property
    def runs_anywhere(self) -> bool:
        """The first pod of a group whose terms select its own pods may run in any domain."""
        return bool(self.affinity) and self.satisfies_itself and not self.matched_anywhere

    @property
    def is_needed(self) -> bool:
        """Whether any node can be rejected."""
        if self.affinity or self.anti_affinity:
            return True
        return any(term.sums is not None and term.sums.total for term in self.existing)

    def update(self, cluster: Cluster) -> None:
        """Brings the sums and `rejected` up to date.

        A row can change only if its domain has got its first pod or lost its last.
        """
        changed: Sequence[int] | None = ()
        all_counts: tuple[Counts, ...] = (*self.affinity, *self.anti_affinity, *self.existing)
        for counts in all_counts:
            rows = refresh(counts, cluster)
            if rows is None:
                changed = None
            elif rows and changed is not None:
                changed = (*changed, *rows)
        rejected = self.rejected
        if rejected is None:
            return
        if changed is None or self._ran_anywhere or (changed and self.runs_anywhere):
            rejected.assign(self._all_rejected(cluster))
            return
        for row in set(changed):
            rejected.set(row, self._is_rejected(row))

    def find_rejected(self, cluster: Cluster) -> RowMask:
        """Creates `rejected`; from now on `update` keeps it up to date."""
        self.rejected = RowMask(cluster.changes.clock, self._all_rejected(cluster))
        return self.rejected

    def _is_rejected(self, row: int) -> bool:
        for sums in self._forbidding:
            if sums.is_occupied(row):
                return True
        return not all(counts.sums.is_occupied(row) for counts in self.affinity)

    def _all_rejected(self, cluster: Cluster) -> BoolColumn:
        """`_is_rejected` for all rows, with arrays."""
        self._ran_anywhere = self.runs_anywhere
        rejected = np.zeros(cluster.nodes.high, dtype=np.bool_)
        for sums in self._forbidding:
            rejected |= sums.occupied()
        for counts in self.affinity:
            if self._ran_anywhere:
                rejected |= cluster.nodes.label(counts.topology_key).column.read < 0
            else:
                rejected |= ~counts.sums.occupied()
        return rejected


@dataclass(slots=True)
class ScoreState:
    """The input of Score: counts that attract the pod or repel it, with weights. Cached like
    `FilterState`."""

    all: tuple[tuple[int, Counts], ...]

    def update(self, cluster: Cluster) -> None:
        """Brings the sums up to date."""
        for _, counts in self.all:
            refresh(counts, cluster)

    def counted(self) -> dict[str, list[tuple[int, DomainSums]]]:
        """The sums that are not all 0, with their weights, by topology key."""
        found: dict[str, list[tuple[int, DomainSums]]] = {}
        for weight, counts in self.all:
            if counts.sums is not None and counts.sums.total:
                found.setdefault(counts.topology_key, []).append((weight, counts.sums))
        return found


T = TypeVar("T", FilterState, ScoreState)


class Sums:
    """Sums over domains for pods of one signature, brought up to date on use.

    Filter and Score have their own: `FilterState.update` has to see every change.
    """

    __slots__ = ("_by_carriers", "_by_query", "_cluster", "_freshness")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        changes = cluster.changes
        self._freshness = changes.freshness((changes.queries, changes.topology))
        self._by_query: dict[tuple[PodQuery, str], MatchCounts] = {}
        self._by_carriers: dict[TermCarriers, CarrierCounts] = {}

    def of_query(self, query: PodQuery, key: str, count: PodCount | None = None) -> MatchCounts:
        """`count` is that of the query, if it has already been looked up for another key."""
        self._drop_outdated()
        cluster = self._cluster
        known = self._by_query.get((query, key))
        if known is None:
            count = cluster.count(query) if count is None else count
            if len(self._by_query) >= MAX_SUMS:
                self._by_query.clear()
            sums = DomainSums(cluster.nodes, cluster.changes, count, cluster.nodes.label(key))
            known = self._by_query[query, key] = MatchCounts(key, query, count, sums)
        refresh(known, cluster)
        return known

    def of_carriers(self, carriers: TermCarriers) -> CarrierCounts:
        self._drop_outdated()
        known = self._by_carriers.get(carriers)
        if known is None:
            if len(self._by_carriers) >= MAX_SUMS:
                self._by_carriers.clear()
            cluster, key = self._cluster, carriers.carried.term.topology_key
            sums = DomainSums(cluster.nodes, cluster.changes, carriers, cluster.nodes.label(key))
            known = self._by_carriers[carriers] = CarrierCounts(key, carriers.carried, sums)
        refresh(known, self._cluster)
        return known

    def _drop_outdated(self) -> None:
        if not self._freshness.is_current:
            self._by_query.clear()
            self._by_carriers.clear()
            self._freshness.mark_current()


class CachedState(Generic[T]):
    """The state of Filter or Score for pods of one signature, with sums that are updated when pods change."""

    __slots__ = ("_cluster", "_freshness", "state")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        changes = cluster.changes
        self._freshness = changes.freshness(
            (changes.objects, changes.terms, changes.topology, changes.queries)
        )
        self.state: T | None = None

    def update(self) -> bool:
        """Brings the sums up to date. False if the state has to be created again."""
        if not self._freshness.is_current:
            return False
        if self.state is not None:
            self.state.update(self._cluster)
        return True

    def put(self, state: T | None) -> None:
        self.state = state
        self._freshness.mark_current()


class CachedFilterState(CachedState[FilterState]):
    """For Filter."""

    __slots__ = ()


class CachedScoreState(CachedState[ScoreState]):
    """For Score."""

    __slots__ = ()


def refresh(counts: Counts, cluster: Cluster) -> Sequence[int] | None:
    """Brings sums up to date. Returns the rows whose domain has got its first pod or lost its last; None:
    those of any domain."""
    if type(counts) is MatchCounts:
        cluster.counts.touch(counts.count)
    return () if counts.sums is None else counts.sums.refresh()
