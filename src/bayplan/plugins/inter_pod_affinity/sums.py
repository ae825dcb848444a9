"""How many pods that matter to a template are in each domain, kept from pod to pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from bayplan.plugin import CarriedTerm, Cluster, DomainSums, PodCount, PodQuery, TermCarriers

MAX_SUMS: Final = 512
"""Sums kept for a template at most. Terms and namespaces come and go; what is asked for is made again."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Near:
    """How many of the pods that a query means are in each domain of a key."""

    topology_key: str
    query: PodQuery
    count: PodCount
    sums: DomainSums


@dataclass(frozen=True, slots=True)
class Carried:
    """How many pods in each domain carry a term that means the incoming pod."""

    topology_key: str
    carried: CarriedTerm
    sums: DomainSums | None
    """None: nobody carries it yet, but a hypothesis brings such a pod."""


@dataclass(slots=True)
class Demands:
    """What filtering looks at. Kept for a template; only the sums follow the pods that come and go."""

    affinity: tuple[Near, ...]
    anti_affinity: tuple[Near, ...]
    existing: tuple[Carried, ...]
    """Required anti-affinity of pods already there."""
    satisfies_itself: bool

    @property
    def matched_anywhere(self) -> int:
        """Pods, in any domain, that satisfy all of the pod's affinity terms."""
        return sum(near.sums.total for near in self.affinity)

    @property
    def exist(self) -> bool:
        """Whether there is anything to ask of a node."""
        if self.affinity or self.anti_affinity:
            return True
        return any(term.sums is not None and term.sums.total for term in self.existing)

    def parts(self) -> tuple[Near | Carried, ...]:
        return (*self.affinity, *self.anti_affinity, *self.existing)


@dataclass(slots=True)
class Pulls:
    """What draws a pod to domains or away from them, each with its weight. Kept like `Demands`."""

    all: tuple[tuple[int, Near | Carried], ...]

    def parts(self) -> tuple[Near | Carried, ...]:
        return tuple(pull for _, pull in self.all)


@dataclass(slots=True)
class Kept(Generic[T]):
    """Something with sums that is kept for a template, until one of the versions changes."""

    versions: tuple[int, int]
    content: T
    sums: tuple[Near | Carried, ...]


class Sums:
    """Sums over domains for a pod's template, until a node comes, goes or changes its labels."""

    __slots__ = ("_by_carriers", "_by_query", "_cluster", "topology_version")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.topology_version = cluster.topology_version
        self._by_query: dict[tuple[int, str], Near] = {}
        self._by_carriers: dict[TermCarriers, Carried] = {}

    def of_query(self, query: PodQuery, key: str) -> Near:
        """For a query object that stays the same: they are told apart by identity."""
        cluster = self._cluster
        known = self._by_query.get((id(query), key))
        if known is None or not refreshed(known, cluster):
            count = cluster.count(query)
            if len(self._by_query) >= MAX_SUMS:
                self._by_query.clear()
            sums = DomainSums(cluster.nodes, cluster.usage_log, count.column, cluster.nodes.label(key))
            known = self._by_query[id(query), key] = Near(key, query, count, sums)
        return known

    def of_carriers(self, carriers: TermCarriers) -> Carried:
        known = self._by_carriers.get(carriers)
        if known is None:
            if len(self._by_carriers) >= MAX_SUMS:
                self._by_carriers.clear()
            cluster, key = self._cluster, carriers.carried.term.topology_key
            sums = DomainSums(cluster.nodes, cluster.usage_log, carriers.column, cluster.nodes.label(key))
            known = self._by_carriers[carriers] = Carried(key, carriers.carried, sums)
        refreshed(known, self._cluster)
        return known


def refreshed(part: Near | Carried, cluster: Cluster) -> bool:
    """Brings sums up to date. False where their counts were dropped, and have to be asked for again."""
    if isinstance(part, Near) and not cluster.counts.touch(part.count):
        return False
    if part.sums is not None:
        part.sums.refresh()
    return True
