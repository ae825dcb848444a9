"""InterPodAffinity: pods that want to be near certain pods, or far from them.

Four kinds of terms, of the incoming pod and of the pods already there: required and preferred, affinity and
anti-affinity. A term names pods (a selector, in some namespaces) and a label whose equal values mean "near".

Upstream asks every running pod. Here the incoming pod's terms are queries whose counts are columns of the
snapshot, and the terms that running pods carry are columns too (`snapshot/terms.py`), found by the labels of
the incoming pod. What remains are sums over domains and gathers over the nodes.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from bayplan.plugin import (
    IDLE,
    MAX_SCORE,
    SKIP,
    Action,
    AffinityTerm,
    BoolColumn,
    CarriedTerm,
    Cluster,
    CycleState,
    DomainSums,
    Handle,
    IntColumn,
    InterPodAffinityArgs,
    MatchingTerms,
    Namespace,
    Node,
    NodeColumns,
    Plugin,
    Pod,
    PodCount,
    PodQuery,
    PodSelector,
    Reject,
    Resource,
    SelectorError,
    Status,
    TermCarriers,
    TermKind,
    Wake,
    failure,
    parse_terms,
    pod_terms,
    unresolvable,
    wake,
)

AFFINITY: Final = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

PREFIXES: Final = {
    TermKind.REQUIRED_AFFINITY: "requiredAffinityTerms",
    TermKind.REQUIRED_ANTI_AFFINITY: "requiredAntiAffinityTerms",
    TermKind.PREFERRED_AFFINITY: "preferredAffinityTerms",
    TermKind.PREFERRED_ANTI_AFFINITY: "preferredAntiAffinityTerms",
}

MOST_SUMS: Final = 512
"""Sums kept for a template at most. Terms and namespaces come and go; what is asked for is made again."""

WeightedTerms = tuple[tuple[int, AffinityTerm], ...]


@dataclass(frozen=True, slots=True)
class OwnTerms:
    """The incoming pod's terms, as queries for the pods they mean, each with its topology key."""

    near_all: tuple[tuple[str, PodQuery], ...] = ()
    """Required affinity: pods that all terms mean, for each key."""
    near_any: tuple[tuple[str, PodQuery], ...] = ()
    """Required anti-affinity: pods that each term means."""
    preferred: tuple[tuple[int, str, PodQuery], ...] = ()
    """Preferences, with their weight; a negative one keeps away."""
    satisfies_itself: bool = True
    """Whether all required affinity terms mean the pod itself."""
    problem: str = ""
    """Set where a term cannot be parsed."""

    @property
    def has_demands(self) -> bool:
        return bool(self.near_all or self.near_any)


@dataclass(frozen=True, slots=True)
class Near:
    """How many counted pods are in each domain of a key."""

    topology_key: str
    sums: DomainSums
    query: PodQuery

    @property
    def totals(self) -> IntColumn:
        """Indexed by the id of the label value."""
        return self.sums.sums


@dataclass(frozen=True, slots=True)
class Existing:
    """A required anti-affinity term of pods already there that keeps the incoming pod away."""

    topology_key: str
    sums: DomainSums | None
    """None: nobody carries it yet, but a hypothesis brings such a pod."""
    carried: CarriedTerm


@dataclass(frozen=True, slots=True)
class Demands:
    """What filtering looks at in this cycle."""

    affinity: tuple[Near, ...]
    anti_affinity: tuple[Near, ...]
    existing: tuple[Existing, ...]
    matched_anywhere: int
    """Pods, in any domain, that satisfy all of the pod's affinity terms."""
    satisfies_itself: bool


class InterPodAffinity(Plugin):
    """Keeps pods near to, or away from, other pods."""

    args_type: ClassVar = InterPodAffinityArgs

    def __init__(self, args: InterPodAffinityArgs | None = None, handle: Handle | None = None) -> None:
        super().__init__(args or InterPodAffinityArgs(), handle)

    def wakes_on(self) -> Sequence[Wake]:
        pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        return (
            wake(Resource.POD, pods, self.pod_may_help),
            wake(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, self.node_may_help),
        )

    # Filtering

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        cluster = nodes.cluster
        own = self._own_terms(state, pod, cluster)
        if own.problem:
            return unresolvable(f"parsing pod: {own.problem}")
        existing = self._carried(state, pod, cluster)[TermKind.REQUIRED_ANTI_AFFINITY]
        if not own.has_demands and not existing:
            return IDLE
        sums = self._sums(state, cluster)
        kept_away = tuple(
            Existing(carriers.carried.term.topology_key, found, carriers.carried)
            for carriers in existing
            if (found := sums.of_carriers(carriers)).total
        )
        if not own.has_demands and not kept_away:
            return SKIP
        near_all = [(key, query, sums.of_query(query, key)) for key, query in own.near_all]
        state.write(
            self.name,
            Demands(
                affinity=tuple(Near(key, found, query) for key, query, found in near_all),
                anti_affinity=tuple(
                    Near(key, sums.of_query(query, key), query) for key, query in own.near_any
                ),
                existing=kept_away,
                matched_anywhere=sum(found.total for _, _, found in near_all),
                satisfies_itself=own.satisfies_itself,
            ),
        )
        return None

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        demands: Demands = state.read(self.name)
        refused: BoolColumn | None = None
        if demands.affinity:
            refused = self._too_far(demands, nodes)
            yield Reject(refused, AFFINITY, unresolvable=True)
        if demands.anti_affinity:
            too_near = self._any_near(
                nodes, [(near, nodes.matching_change(near.query)) for near in demands.anti_affinity]
            )
            if refused is not None:
                too_near = too_near & ~refused
            yield Reject(too_near, ANTI_AFFINITY)
            refused = too_near if refused is None else refused | too_near
        kept_away = self._kept_away(pod, demands, nodes)
        if kept_away is not None:
            yield Reject(kept_away if refused is None else kept_away & ~refused, EXISTING_ANTI_AFFINITY)

    def _too_far(self, demands: Demands, nodes: NodeColumns) -> BoolColumn:
        """Rows without a pod that satisfies all terms in each term's domain, or without the label itself."""
        change = nodes.matching_change(demands.affinity[0].query)
        if isinstance(change, int):
            return self._too_far_as_it_is(demands, nodes)
        lacks_key = np.zeros(len(nodes), dtype=np.bool_)
        unmet = np.zeros(len(nodes), dtype=np.bool_)
        matched = np.full(len(nodes), demands.matched_anywhere, dtype=np.int64)
        for near in demands.affinity:
            domain = nodes.label(near.topology_key).ids
            absent = domain < 0
            matched += np.where(absent, 0, change)
            lacks_key |= absent
            unmet |= near.totals.take(domain) + change <= 0
        if demands.satisfies_itself:
            # The first pod of a group that wants to be near its own kind may go anywhere.
            unmet &= matched != 0
        return lacks_key | unmet

    @staticmethod
    def _too_far_as_it_is(demands: Demands, nodes: NodeColumns) -> BoolColumn:
        """The same without a hypothesis. Without the label: too far."""
        anywhere = demands.satisfies_itself and not demands.matched_anywhere
        too_far: BoolColumn | None = None
        for near in demands.affinity:
            far = np.zeros(len(near.totals), dtype=np.bool_) if anywhere else near.totals <= 0
            far[-1] = True
            here = nodes.by_domain(near.topology_key, far)
            too_far = here if too_far is None else too_far | here
        assert too_far is not None
        return too_far

    @staticmethod
    def _any_near(nodes: NodeColumns, found: Iterable[tuple[Near | Existing, Any]]) -> BoolColumn:
        result: BoolColumn | None = None
        for near, change in found:
            if isinstance(change, int):
                here = _occupied(near.sums, nodes)
            else:
                domain = nodes.label(near.topology_key).ids
                before = 0 if near.sums is None else near.sums.sums.take(domain)
                here = (before + change > 0) & (domain >= 0)
            result = here if result is None else result | here
        return np.zeros(len(nodes), dtype=np.bool_) if result is None else result

    def _kept_away(self, pod: Pod, demands: Demands, nodes: NodeColumns) -> BoolColumn | None:
        existing = list(demands.existing)
        known = {term.carried for term in existing}
        for carried in nodes.added_terms():
            # Pods that are only supposed to be there may bring terms that nobody carries yet.
            if carried.kind is TermKind.REQUIRED_ANTI_AFFINITY and carried not in known:
                labels = nodes.cluster.namespace_labels(pod.namespace)
                if carried.term.matches(pod.namespace, pod.labels, labels):
                    existing.append(Existing(carried.term.topology_key, None, carried))
        if not existing:
            return None
        return self._any_near(nodes, [(term, nodes.carried_change(term.carried)) for term in existing])

    # Scoring

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        cluster = nodes.cluster
        own = self._own_terms(state, pod, cluster)
        if self.args.ignore_preferred_terms_of_existing_pods and not own.preferred:
            return IDLE
        if own.problem:
            return failure(own.problem)
        carried = self._carried(state, pod, cluster)
        if not own.preferred and not any(carried.values()):
            return IDLE
        sums = self._sums(state, cluster)
        tables: dict[str, IntColumn] = {}
        for weight, key, found in self._pulls(own, carried, sums):
            if found.total:
                table, pull = tables.get(key), found.sums * weight
                tables[key] = pull if table is None else table + pull
        if not tables:
            return SKIP
        state.write((self.name, "scores"), tables)
        return None

    def _pulls(
        self, own: OwnTerms, carried: MatchingTerms, sums: Sums
    ) -> Iterator[tuple[int, str, DomainSums]]:
        """Weight, key and counts by domain of everything that draws the pod to a domain or away from it."""
        for weight, key, query in own.preferred:
            yield weight, key, sums.of_query(query, key)
        hard_weight = self.args.hard_pod_affinity_weight
        if hard_weight > 0:
            for carriers in carried[TermKind.REQUIRED_AFFINITY]:
                yield hard_weight, carriers.carried.term.topology_key, sums.of_carriers(carriers)
        for kind, sign in ((TermKind.PREFERRED_AFFINITY, 1), (TermKind.PREFERRED_ANTI_AFFINITY, -1)):
            for carriers in carried[kind]:
                weight = sign * carriers.carried.weight
                yield weight, carriers.carried.term.topology_key, sums.of_carriers(carriers)

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        total: IntColumn | None = None
        for key, table in state.read((self.name, "scores")).items():
            here = table.take(nodes.label(key).ids)
            total = here if total is None else total + here
        assert total is not None
        return total

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        return _shares(scores, int(scores.min()), int(scores.max()))

    def scores_by_domain(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> tuple[str, IntColumn] | None:
        tables = state.read((self.name, "scores"))
        if len(tables) > 1:
            return None
        ((key, table),) = tables.items()
        present = nodes.domains(key)
        if present is None:
            return None
        found = table.take(present)
        lowest, highest = int(found.min()), int(found.max())
        return key, _shares(table, lowest, highest)

    # Terms and counts

    def _own_terms(self, state: CycleState, pod: Pod, cluster: Cluster) -> OwnTerms:
        """The pod's terms with their namespaces resolved: names of namespaces instead of selectors."""
        if pod.spec.affinity is None:
            return _NO_TERMS
        version = cluster.objects.of(Namespace).version
        known = state.kept.get((self.name, "own"))
        if known is None or known[0] != version:
            known = state.kept[self.name, "own"] = (version, _parse(pod, cluster))
        own: OwnTerms = known[1]
        return own

    def _carried(self, state: CycleState, pod: Pod, cluster: Cluster) -> MatchingTerms:
        """Terms of pods already there that mean the incoming pod."""
        label_set = state.once(
            (self.name, "labels"), lambda: cluster.label_sets.intern(pod.namespace, pod.labels)
        )
        return cluster.terms.matching(label_set, cluster.namespace_labels(pod.namespace))

    def _sums(self, state: CycleState, cluster: Cluster) -> Sums:
        known: Sums | None = state.kept.get((self.name, "sums"))
        if known is None or known.topology_version != cluster.topology_version:
            known = state.kept[self.name, "sums"] = Sums(cluster)
        return known

    # Hints

    def pod_may_help(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        itself = new is not None and new.uid == pod.uid
        if old is not None and new is not None:
            if itself:
                return True
            if not _placed(new):
                return False
            affinity = _hint_terms(pod, TermKind.REQUIRED_AFFINITY)
            anti = _hint_terms(pod, TermKind.REQUIRED_ANTI_AFFINITY)
            starts = not _means_by_all(affinity, old) and _means_by_all(affinity, new)
            stops = _means_by_all(anti, old) and not _means_by_all(anti, new)
            return starts or stops
        if new is not None:
            return _placed(new) and _means_by_all(_hint_terms(pod, TermKind.REQUIRED_AFFINITY), new)
        assert old is not None
        return _placed(old) and (
            _means_by_all(_hint_terms(pod, TermKind.REQUIRED_ANTI_AFFINITY), old)
            or _means_by_all(_hint_terms(old, TermKind.REQUIRED_ANTI_AFFINITY), pod)
        )

    def node_may_help(self, pod: Pod, old: Node | None, new: Node | None) -> bool:
        assert new is not None
        affinity = _hint_terms(pod, TermKind.REQUIRED_AFFINITY)
        anti = _hint_terms(pod, TermKind.REQUIRED_ANTI_AFFINITY)
        if old is None:
            return any(term.topology_key in new.labels for term in affinity) or bool(anti)
        appeared = any(
            term.topology_key in new.labels
            and new.labels[term.topology_key] != old.labels.get(term.topology_key)
            for term in affinity
        )
        vanished = any(
            term.topology_key in old.labels
            and old.labels[term.topology_key] != new.labels.get(term.topology_key)
            for term in anti
        )
        return appeared or vanished


_NO_TERMS: Final = OwnTerms()


class Sums:
    """Sums over domains for a pod's template, until a node comes, goes or changes its labels."""

    __slots__ = ("_by_carriers", "_by_query", "_cluster", "topology_version")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.topology_version = cluster.topology_version
        self._by_query: dict[tuple[int, str], tuple[PodCount, PodQuery, DomainSums]] = {}
        self._by_carriers: dict[TermCarriers, DomainSums] = {}

    def of_query(self, query: PodQuery, key: str) -> DomainSums:
        """For a query object that stays the same: they are told apart by identity."""
        cluster = self._cluster
        known = self._by_query.get((id(query), key))
        if known is None or not cluster.counts.still_asked(known[0]):
            count = cluster.count(query)
            if len(self._by_query) >= MOST_SUMS:
                self._by_query.clear()
            made = DomainSums(cluster.nodes, cluster.usage_log, count.column, cluster.nodes.label(key))
            known = self._by_query[id(query), key] = (count, query, made)
        known[2].refresh()
        return known[2]

    def of_carriers(self, carriers: TermCarriers) -> DomainSums:
        known = self._by_carriers.get(carriers)
        if known is None:
            if len(self._by_carriers) >= MOST_SUMS:
                self._by_carriers.clear()
            cluster, key = self._cluster, carriers.carried.term.topology_key
            known = DomainSums(cluster.nodes, cluster.usage_log, carriers.column, cluster.nodes.label(key))
            self._by_carriers[carriers] = known
        known.refresh()
        return known


def _shares(scores: IntColumn, lowest: int, highest: int) -> IntColumn:
    """How far each score is on the way from the lowest to the highest, in hundredths."""
    if lowest == highest:
        return np.zeros(len(scores), dtype=np.int64)
    share = (scores - lowest) / float(highest - lowest)
    normal: IntColumn = (MAX_SCORE * share).astype(np.int64)
    return normal


def _occupied(sums: DomainSums | None, nodes: NodeColumns) -> BoolColumn:
    """Rows in whose domain there is somebody."""
    if sums is None:
        return np.zeros(len(nodes), dtype=np.bool_)
    return nodes.gather(sums.occupied())


def _parse(pod: Pod, cluster: Cluster) -> OwnTerms:
    terms: dict[TermKind, WeightedTerms] = {}
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
    signs = ((TermKind.PREFERRED_AFFINITY, 1), (TermKind.PREFERRED_ANTI_AFFINITY, -1))
    return OwnTerms(
        near_all=tuple((key, everyone) for key in dict.fromkeys(term.topology_key for term in affinity)),
        near_any=tuple(
            (term.topology_key, _all_of([term])) for _, term in terms[TermKind.REQUIRED_ANTI_AFFINITY]
        ),
        preferred=tuple(
            (sign * weight, term.topology_key, _all_of([term]))
            for kind, sign in signs
            for weight, term in terms[kind]
        ),
        satisfies_itself=all(_means(term, pod) for term in affinity),
        problem=problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]" if problems else "",
    )


def _resolved(term: AffinityTerm, cluster: Cluster) -> AffinityTerm:
    """Namespaces found by a selector are added by name; the selector still speaks where there are no labels.

    So a selector that is satisfied by no labels at all means every namespace, as upstream has it.
    """
    selector = term.namespace_selector
    if selector.is_nothing or selector.is_empty:
        return term
    names = {ns.name for ns in cluster.objects.of(Namespace) if selector.matches(ns.labels)}
    return AffinityTerm(term.topology_key, term.namespaces | names, selector, term.selector)


def _pod_selector(term: AffinityTerm) -> PodSelector:
    everywhere = term.namespace_selector.matches({})
    return PodSelector(None if everywhere else term.namespaces, term.selector)


def _all_of(terms: Iterable[AffinityTerm]) -> PodQuery:
    """Pods that all of these terms mean."""
    return PodQuery(tuple(_pod_selector(term) for term in terms))


def _means(term: AffinityTerm, pod: Pod) -> bool:
    return _pod_selector(term).matches(pod.namespace, pod.labels)


def _placed(pod: Pod) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _hint_terms(pod: Pod, kind: TermKind) -> list[AffinityTerm]:
    """Terms as written: hints do not look up namespaces."""
    return [term for _, term in parse_terms(pod_terms(pod, kind), pod.namespace)]


def _means_by_all(terms: list[AffinityTerm], pod: Pod) -> bool:
    """Whether every term means the pod. Of no terms, none does."""
    return bool(terms) and all(_means(term, pod) for term in terms)
