"""The (anti-)affinity terms of the incoming pod as queries, and the number of relevant pods in each domain.

Both are cached for all pods of one signature, and brought up to date from pod to pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np

from bayplan.plugin import BoolColumn, Cluster, Namespace, Pod, PodQuery, PodSelector, SelectorError
from bayplan.plugin._internal import DomainSums, PodCount, RowMask
from bayplan.plugin.objects import (
    NOTHING,
    AffinityTerm,
    CarriedTerm,
    TermCarriers,
    TermKind,
    parse_terms,
    pod_terms,
)

PREFIXES: Final = {
    TermKind.REQUIRED_AFFINITY: "requiredAffinityTerms",
    TermKind.REQUIRED_ANTI_AFFINITY: "requiredAntiAffinityTerms",
    TermKind.PREFERRED_AFFINITY: "preferredAffinityTerms",
    TermKind.PREFERRED_ANTI_AFFINITY: "preferredAntiAffinityTerms",
}

PREFERENCES: Final = ((TermKind.PREFERRED_AFFINITY, 1), (TermKind.PREFERRED_ANTI_AFFINITY, -1))
"""Kinds of terms that attract pods (1) or repel them (-1)."""


@dataclass(frozen=True, slots=True)
class OwnTerms:
    """The incoming pod's terms, as queries for the pods they select, each with its topology key."""

    affinity: tuple[tuple[str, PodQuery], ...] = ()
    """Required affinity: pods that all terms select, for each key."""
    anti_affinity: tuple[tuple[str, PodQuery], ...] = ()
    """Required anti-affinity: pods that each term selects."""
    preferred: tuple[tuple[int, str, PodQuery], ...] = ()
    """Preferences, with their weight; a negative one repels."""
    satisfies_itself: bool = True
    """Whether all required affinity terms select the pod itself."""
    problem: str = ""
    """Set if a term cannot be parsed."""

    @property
    def has_required_terms(self) -> bool:
        return bool(self.affinity or self.anti_affinity)


NO_TERMS: Final = OwnTerms()


class CachedOwnTerms:
    """The terms for pods of one signature; namespace selectors depend on the Namespace objects."""

    __slots__ = ("_freshness", "_terms")

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self._freshness = changes.freshness((changes.kind(Namespace),))
        self._terms = NO_TERMS

    def update(self, pod: Pod, cluster: Cluster) -> OwnTerms:
        if not self._freshness.is_current:
            self._terms = own_terms(pod, cluster)
            self._freshness.mark_current()
        return self._terms


def own_terms(pod: Pod, cluster: Cluster) -> OwnTerms:
    terms: dict[TermKind, tuple[tuple[int, AffinityTerm], ...]] = {}
    problems = []
    for kind in TermKind:
        try:
            parsed = parse_terms(pod_terms(pod, kind), pod.namespace)
            terms[kind] = tuple((weight, _resolved(term, cluster)) for weight, term in parsed)
        except SelectorError as error:
            terms[kind] = ()
            problems.append(f"{PREFIXES[kind]}: {error}")
    affinity = [term for _, term in terms[TermKind.REQUIRED_AFFINITY]]
    everyone = _all_of(affinity)
    return OwnTerms(
        affinity=tuple((key, everyone) for key in dict.fromkeys(term.topology_key for term in affinity)),
        anti_affinity=tuple(
            (term.topology_key, _all_of([term])) for _, term in terms[TermKind.REQUIRED_ANTI_AFFINITY]
        ),
        preferred=tuple(
            (sign * weight, term.topology_key, _all_of([term]))
            for kind, sign in PREFERENCES
            for weight, term in terms[kind]
        ),
        satisfies_itself=all(selects(term, pod) for term in affinity),
        problem=problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]" if problems else "",
    )


def _resolved(term: AffinityTerm, cluster: Cluster) -> AffinityTerm:
    """Namespaces found by a selector are added by name.

    v1.36 then evaluates the selector again, without labels: one that matches an empty set of labels selects
    every namespace. From v1.37 on only the names are used.
    """
    selector = term.namespace_selector
    if selector.is_nothing or selector.is_empty:
        return term
    names = {ns.name for ns in cluster.objects.of(Namespace) if selector.matches(ns.labels)}
    left = NOTHING if cluster.release.namespace_selectors_by_name else selector
    return AffinityTerm(term.topology_key, term.namespaces | names, left, term.selector)


def _pod_selector(term: AffinityTerm) -> PodSelector:
    everywhere = term.namespace_selector.matches({})
    return PodSelector(None if everywhere else term.namespaces, term.selector)


def _all_of(terms: Iterable[AffinityTerm]) -> PodQuery:
    """Pods that all of these terms select."""
    return PodQuery(tuple(_pod_selector(term) for term in terms))


def selects(term: AffinityTerm, pod: Pod) -> bool:
    return _pod_selector(term).matches(pod.namespace, pod.labels)


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
