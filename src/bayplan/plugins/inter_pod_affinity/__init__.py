"""InterPodAffinity: pods that must or should run in the same domain as certain pods, or in another one.

There are four kinds of terms, of the incoming pod and of assigned pods: required and preferred, affinity and
anti-affinity. A term selects pods (by labels and namespaces) and has a topology key: nodes with equal values
of that label are a domain.

Upstream evaluates every running pod. Here the incoming pod's terms are queries whose counts are columns of
the cluster, and the terms that running pods carry are columns too (`state/terms.py`), found by the labels
of the incoming pod. What remains are sums over domains and gathers over the nodes.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np

from bayplan.plugin import (
    MAX_SCORE,
    SKIP,
    SKIP_FOR_SIGNATURE,
    Action,
    BoolColumn,
    Cluster,
    ClusterEventWithHint,
    CycleState,
    FilterPlugin,
    IntColumn,
    Node,
    NodeColumns,
    NodesAffectedByPodsPlugin,
    NormalizePlugin,
    Plugin,
    Pod,
    PreFilterPlugin,
    PreScorePlugin,
    Reject,
    Resource,
    ScorePlugin,
    Status,
    event_with_hint,
    failure,
    unresolvable,
    unschedulable,
)
from bayplan.plugin._internal import DomainScorePlugin, DomainSums, RejectedRowsPlugin, RowMask
from bayplan.plugin.args import InterPodAffinityArgs
from bayplan.plugin.objects import AffinityTerm, CarriedTerm, MatchingTerms, TermKind, parse_terms, pod_terms
from bayplan.plugins.inter_pod_affinity.counts import (
    NO_TERMS,
    PREFERENCES,
    CachedFilterState,
    CachedOwnTerms,
    CachedScoreState,
    CarrierCounts,
    FilterState,
    MatchCounts,
    OwnTerms,
    ScoreState,
    Sums,
    selects,
)

AFFINITY: Final = unresolvable("node(s) didn't match pod affinity rules")
ANTI_AFFINITY: Final = unschedulable("node(s) didn't match pod anti-affinity rules")
EXISTING_ANTI_AFFINITY: Final = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")

MAX_TABLE: Final = 1024
"""Differences between the highest and the lowest score up to this one are normalized by a table."""


class InterPodAffinity(
    Plugin,
    PreFilterPlugin,
    FilterPlugin,
    RejectedRowsPlugin,
    NodesAffectedByPodsPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizePlugin,
    DomainScorePlugin,
):
    """Rejects and scores nodes by the pods in their domains."""

    args_type: ClassVar = InterPodAffinityArgs

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        return (
            event_with_hint(Resource.POD, pods, self.pod_may_help),
            event_with_hint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, node_may_help),
        )

    def pod_may_help(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        """Terms are used as written: hints do not look up namespaces."""
        # One anti-affinity term is enough in v1.37; all have to select the pod in v1.36.
        selects_anti = _any_selects if self.release.anti_affinity_hint_any_term else _all_select
        itself = new is not None and new.uid == pod.uid
        if old is not None and new is not None:
            if itself:
                return True
            if not _has_node(new):
                return False
            affinity = _terms(pod, TermKind.REQUIRED_AFFINITY)
            anti = _terms(pod, TermKind.REQUIRED_ANTI_AFFINITY)
            starts = not _all_select(affinity, old) and _all_select(affinity, new)
            stops = selects_anti(anti, old) and not selects_anti(anti, new)
            return starts or stops
        if new is not None:
            return _has_node(new) and _all_select(_terms(pod, TermKind.REQUIRED_AFFINITY), new)
        assert old is not None
        return _has_node(old) and (
            selects_anti(_terms(pod, TermKind.REQUIRED_ANTI_AFFINITY), old)
            or selects_anti(_terms(old, TermKind.REQUIRED_ANTI_AFFINITY), pod)
        )

    # Filtering

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        cluster = nodes.cluster
        cached = state.signature.get(CachedFilterState) or state.signature.put(CachedFilterState(cluster))
        if not cached.update():
            own = self._own_terms(state, pod, cluster)
            if own.problem:
                return unresolvable(f"parsing pod: {own.problem}")
            cached.put(self._filter_state(own, state, pod, cluster))
        filter_state = cached.state
        if filter_state is None:
            return SKIP_FOR_SIGNATURE
        if not filter_state.is_needed:
            return SKIP
        state.write(self.name, filter_state)
        return None

    def _filter_state(
        self, own: OwnTerms, state: CycleState, pod: Pod, cluster: Cluster
    ) -> FilterState | None:
        """None if Filter is not needed before objects or carried terms change."""
        existing = self._matching_terms(state, pod, cluster)[TermKind.REQUIRED_ANTI_AFFINITY]
        if not own.has_required_terms and not existing:
            return None
        sums = self._sums(state, cluster, "filter")
        # All keys have the same query, which may have thousands of parts: it is looked up once.
        count = cluster.count(own.affinity[0][1]) if own.affinity else None
        return FilterState(
            affinity=tuple(sums.of_query(query, key, count) for key, query in own.affinity),
            anti_affinity=tuple(sums.of_query(query, key) for key, query in own.anti_affinity),
            existing=tuple(map(sums.of_carriers, existing)),
            satisfies_itself=own.satisfies_itself,
        )

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        filter_state: FilterState = state.read(self.name)
        rejected: BoolColumn | None = None
        if filter_state.affinity:
            rejected = self._lacks_affinity(filter_state, nodes)
            yield Reject(rejected, AFFINITY)
        if filter_state.anti_affinity:
            violates = self._any_in_domain(
                nodes,
                [(counts, nodes.matching_change(counts.query)) for counts in filter_state.anti_affinity],
            )
            if rejected is not None:
                violates = violates & ~rejected
            yield Reject(violates, ANTI_AFFINITY)
            rejected = violates if rejected is None else rejected | violates
        excluded = self._excluded(pod, filter_state, nodes)
        if excluded is not None:
            yield Reject(excluded if rejected is None else excluded & ~rejected, EXISTING_ANTI_AFFINITY)

    def rejected_rows(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> RowMask:
        filter_state: FilterState = state.read(self.name)
        return filter_state.rejected or filter_state.find_rejected(nodes.cluster)

    def nodes_affected_by_pods(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> BoolColumn:
        """Rows with pods that the pod's terms select, or whose terms select the pod."""
        filter_state: FilterState = state.read(self.name)
        affected = np.zeros(len(nodes), dtype=np.bool_)
        for counts in (*filter_state.affinity, *filter_state.anti_affinity):
            affected |= nodes.of(counts.count.column) != 0
        for carriers in self._matching_terms(state, pod, nodes.cluster)[TermKind.REQUIRED_ANTI_AFFINITY]:
            affected |= nodes.of(carriers.column) != 0
        return affected

    def _lacks_affinity(self, filter_state: FilterState, nodes: NodeColumns) -> BoolColumn:
        """Rows without a topology label, or in whose domains no pod satisfies all affinity terms."""
        change = nodes.matching_change(filter_state.affinity[0].query)
        if isinstance(change, int):
            return self._lacks_affinity_now(filter_state, nodes)
        lacks_key = np.zeros(len(nodes), dtype=np.bool_)
        unmet = np.zeros(len(nodes), dtype=np.bool_)
        matched = np.full(len(nodes), filter_state.matched_anywhere, dtype=np.int64)
        for counts in filter_state.affinity:
            domain = nodes.label(counts.topology_key).ids
            absent = domain < 0
            matched += np.where(absent, 0, change)
            lacks_key |= absent
            unmet |= counts.sums.sums.take(domain) + change <= 0
        if filter_state.satisfies_itself:
            # The first pod of a group whose terms select its own pods may run anywhere.
            unmet &= matched != 0
        return lacks_key | unmet

    @staticmethod
    def _lacks_affinity_now(filter_state: FilterState, nodes: NodeColumns) -> BoolColumn:
        """`_lacks_affinity` without a hypothesis."""
        lacks_affinity: BoolColumn | None = None
        runs_anywhere = filter_state.runs_anywhere  # a sum over all terms
        for counts in filter_state.affinity:
            sums = counts.sums.sums
            far = np.zeros(len(sums), dtype=np.bool_) if runs_anywhere else sums <= 0
            far[-1] = True
            here = nodes.by_domain(counts.topology_key, far)
            lacks_affinity = here if lacks_affinity is None else lacks_affinity | here
        assert lacks_affinity is not None
        return lacks_affinity

    @staticmethod
    def _any_in_domain(
        nodes: NodeColumns, found: Iterable[tuple[MatchCounts | CarrierCounts, Any]]
    ) -> BoolColumn:
        result: BoolColumn | None = None
        for counts, change in found:
            if isinstance(change, int):
                here = _occupied(counts.sums, nodes)
            else:
                domain = nodes.label(counts.topology_key).ids
                before = 0 if counts.sums is None else counts.sums.sums.take(domain)
                here = (before + change > 0) & (domain >= 0)
            result = here if result is None else result | here
        return np.zeros(len(nodes), dtype=np.bool_) if result is None else result

    def _excluded(self, pod: Pod, filter_state: FilterState, nodes: NodeColumns) -> BoolColumn | None:
        existing = filter_state.existing
        added = nodes.added_terms()
        if added:
            existing = (*existing, *self._added_by_hypothesis(pod, nodes.cluster, existing, added))
        if not existing:
            return None
        return self._any_in_domain(nodes, [(term, nodes.carried_change(term.carried)) for term in existing])

    @staticmethod
    def _added_by_hypothesis(
        pod: Pod, cluster: Cluster, existing: Iterable[CarrierCounts], added: Iterable[CarriedTerm]
    ) -> Iterator[CarrierCounts]:
        """The terms of hypothetical pods that no assigned pod carries."""
        known = {term.carried for term in existing}
        labels = cluster.namespace_labels(pod.namespace)
        for carried in added:
            if carried.kind is not TermKind.REQUIRED_ANTI_AFFINITY or carried in known:
                continue
            if carried.term.matches(pod.namespace, pod.labels, labels):
                yield CarrierCounts(carried.term.topology_key, carried, None)

    # Scoring

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        cluster = nodes.cluster
        cached = state.signature.get(CachedScoreState) or state.signature.put(CachedScoreState(cluster))
        if not cached.update():
            own = self._own_terms(state, pod, cluster)
            if self.args.ignore_preferred_terms_of_existing_pods and not own.preferred:
                return SKIP_FOR_SIGNATURE
            if own.problem:
                return failure(own.problem)
            cached.put(self._score_state(own, state, pod, cluster))
        if cached.state is None:
            return SKIP_FOR_SIGNATURE
        counted = cached.state.counted()
        if not counted:
            return SKIP
        state.write((self.name, "scores"), counted)
        return None

    def _score_state(self, own: OwnTerms, state: CycleState, pod: Pod, cluster: Cluster) -> ScoreState | None:
        """None if Score is not needed before objects or carried terms change."""
        sums, carried = self._sums(state, cluster, "score"), self._matching_terms(state, pod, cluster)
        carriers = [
            *((sign * found.carried.weight, found) for kind, sign in PREFERENCES for found in carried[kind]),
            *((self.args.hard_pod_affinity_weight, found) for found in carried[TermKind.REQUIRED_AFFINITY]),
        ]
        found: tuple[tuple[int, MatchCounts | CarrierCounts], ...] = (
            *((weight, sums.of_query(query, key)) for weight, key, query in own.preferred),
            *((weight, sums.of_carriers(one)) for weight, one in carriers if weight),
        )
        return ScoreState(found) if found else None

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        total: IntColumn | None = None
        for key, counted in state.read((self.name, "scores")).items():
            here = _weighted(counted).take(nodes.label(key).ids)
            total = here if total is None else total + here
        assert total is not None
        return total

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        return _scaled(scores, int(scores.min()), int(scores.max()))

    def scores_by_domain(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> tuple[str, IntColumn] | None:
        by_key = state.read((self.name, "scores"))
        if len(by_key) > 1:
            return None
        ((key, counted),) = by_key.items()
        present = nodes.domains(key)
        if present is None:
            return None
        if len(present) == 1:
            return key, np.zeros(len(counted[0][1].sums), dtype=np.int64)
        table = _weighted(counted)
        found = table.take(present).tolist()
        return key, _scaled(table, min(found), max(found))

    # Terms and counts

    def _own_terms(self, state: CycleState, pod: Pod, cluster: Cluster) -> OwnTerms:
        """The pod's terms with their namespaces resolved: names of namespaces instead of selectors."""
        if pod.spec.affinity is None:
            return NO_TERMS
        cached = state.signature.get(CachedOwnTerms) or state.signature.put(CachedOwnTerms(cluster))
        return cached.update(pod, cluster)

    def _matching_terms(self, state: CycleState, pod: Pod, cluster: Cluster) -> MatchingTerms:
        """The terms of assigned pods that select the incoming pod."""
        label_set = state.memo(
            (self.name, "labels"), lambda: cluster.label_sets.intern(pod.namespace, pod.labels)
        )
        return cluster.terms.matching(label_set, cluster.namespace_labels(pod.namespace))

    @staticmethod
    def _sums(state: CycleState, cluster: Cluster, purpose: str) -> Sums:
        return state.signature.get(Sums, purpose) or state.signature.put(Sums(cluster), purpose)


def _weighted(counted: list[tuple[int, DomainSums]]) -> IntColumn:
    """The score of each domain: the weighted sum of the counts."""
    total: IntColumn | None = None
    for weight, sums in counted:
        here = sums.sums * weight
        total = here if total is None else total + here
    assert total is not None
    return total


def _scaled(scores: IntColumn, lowest: int, highest: int) -> IntColumn:
    """The position of each score between the lowest (0) and the highest (100).

    A table lookup is twice as fast as computing it for each node. Scores outside the range belong to domains
    without nodes and do not matter.
    """
    if lowest == highest:
        return np.zeros(len(scores), dtype=np.int64)
    if highest - lowest > MAX_TABLE:
        return _percents(scores - lowest, highest - lowest)
    return _percent_table(highest - lowest).take(scores - lowest, mode="clip")


@lru_cache(maxsize=64)
def _percent_table(whole: int) -> IntColumn:
    return _percents(np.arange(whole + 1), whole)


def _percents(parts: IntColumn, whole: int) -> IntColumn:
    normal: IntColumn = (MAX_SCORE * (parts / float(whole))).astype(np.int64)
    return normal


def _occupied(sums: DomainSums | None, nodes: NodeColumns) -> BoolColumn:
    """Rows whose domain has a matching pod."""
    return np.zeros(len(nodes), dtype=np.bool_) if sums is None else sums.occupied().take(nodes.rows)


def node_may_help(pod: Pod, old: Node | None, new: Node | None) -> bool:
    assert new is not None
    affinity = _terms(pod, TermKind.REQUIRED_AFFINITY)
    anti = _terms(pod, TermKind.REQUIRED_ANTI_AFFINITY)
    if old is None:
        return any(term.topology_key in new.labels for term in affinity) or bool(anti)
    appeared = any(
        term.topology_key in new.labels and new.labels[term.topology_key] != old.labels.get(term.topology_key)
        for term in affinity
    )
    vanished = any(
        term.topology_key in old.labels and old.labels[term.topology_key] != new.labels.get(term.topology_key)
        for term in anti
    )
    return appeared or vanished


def _has_node(pod: Pod) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _terms(pod: Pod, kind: TermKind) -> list[AffinityTerm]:
    return [term for _, term in parse_terms(pod_terms(pod, kind), pod.namespace)]


def _any_selects(terms: list[AffinityTerm], pod: Pod) -> bool:
    return any(selects(term, pod) for term in terms)


def _all_select(terms: list[AffinityTerm], pod: Pod) -> bool:
    """Whether every term selects the pod. Without terms, False."""
    return bool(terms) and all(selects(term, pod) for term in terms)
