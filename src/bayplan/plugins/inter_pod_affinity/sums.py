"""The number of relevant pods in each domain, for one signature; cached from pod to pod."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from bayplan.plugin import Cluster, PodQuery
from bayplan.plugin.counts import DomainSums, PodCount
from bayplan.plugin.terms import CarriedTerm, TermCarriers

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


@dataclass(slots=True)
class FilterState:
    """The input of Filter. Cached for a signature; only the sums change with pods."""

    affinity: tuple[MatchCounts, ...]
    anti_affinity: tuple[MatchCounts, ...]
    existing: tuple[CarrierCounts, ...]
    """Required anti-affinity of assigned pods."""
    satisfies_itself: bool

    @property
    def matched_anywhere(self) -> int:
        """Pods, in any domain, that satisfy all of the pod's affinity terms."""
        return sum(counts.sums.total for counts in self.affinity)

    @property
    def is_needed(self) -> bool:
        """Whether any node can be rejected."""
        if self.affinity or self.anti_affinity:
            return True
        return any(term.sums is not None and term.sums.total for term in self.existing)

    def counts(self) -> tuple[MatchCounts | CarrierCounts, ...]:
        return (*self.affinity, *self.anti_affinity, *self.existing)


@dataclass(slots=True)
class ScoreState:
    """The input of Score: counts that attract the pod or repel it, with weights. Cached like
    `FilterState`."""

    all: tuple[tuple[int, MatchCounts | CarrierCounts], ...]

    def counts(self) -> tuple[MatchCounts | CarrierCounts, ...]:
        return tuple(counts for _, counts in self.all)


T = TypeVar("T", FilterState, ScoreState)


class Sums:
    """Sums over domains for pods of one signature, brought up to date on use."""

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
        update(known, cluster)
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
        update(known, self._cluster)
        return known

    def _drop_outdated(self) -> None:
        if not self._freshness.is_current:
            self._by_query.clear()
            self._by_carriers.clear()
            self._freshness.mark_current()


class CachedState(Generic[T]):
    """The state of Filter or Score for pods of one signature, with sums that are updated when pods change."""

    __slots__ = ("_freshness", "state")

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self._freshness = changes.freshness(
            (changes.objects, changes.terms, changes.topology, changes.queries)
        )
        self.state: T | None = None

    def update(self, cluster: Cluster, make: Callable[[], T | None]) -> T | None:
        if not self._freshness.is_current:
            self.state = make()
            self._freshness.mark_current()
        elif self.state is not None:
            for counts in self.state.counts():
                update(counts, cluster)
        return self.state


class CachedFilterState(CachedState[FilterState]):
    """For Filter."""

    __slots__ = ()


class CachedScoreState(CachedState[ScoreState]):
    """For Score."""

    __slots__ = ()


def update(counts: MatchCounts | CarrierCounts, cluster: Cluster) -> None:
    """Brings sums up to date."""
    if isinstance(counts, MatchCounts):
        cluster.counts.touch(counts.count)
    if counts.sums is not None:
        counts.sums.refresh()
