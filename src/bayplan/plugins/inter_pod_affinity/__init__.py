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
    DomainScorePlugin,
    FilterPlugin,
    Handle,
    IntColumn,
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
)
from bayplan.plugin.args import InterPodAffinityArgs
from bayplan.plugin.counts import DomainSums
from bayplan.plugin.terms import CarriedTerm, MatchingTerms, TermKind
from bayplan.plugins.inter_pod_affinity.hints import node_may_help, pod_may_help
from bayplan.plugins.inter_pod_affinity.own_terms import NO_TERMS, PREFERENCES, CachedOwnTerms, OwnTerms
from bayplan.plugins.inter_pod_affinity.sums import (
    CachedFilterState,
    CachedScoreState,
    CarrierCounts,
    FilterState,
    MatchCounts,
    ScoreState,
    Sums,
)

AFFINITY: Final = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

MAX_TABLE: Final = 1024
"""Differences between the highest and the lowest score up to this one are normalized by a table."""


class InterPodAffinity(
    Plugin,
    PreFilterPlugin,
    FilterPlugin,
    NodesAffectedByPodsPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizePlugin,
    DomainScorePlugin,
):
    """Keeps pods near to, or away from, other pods."""

    args_type: ClassVar = InterPodAffinityArgs

    def __init__(self, args: InterPodAffinityArgs | None = None, handle: Handle | None = None) -> None:
        super().__init__(args or InterPodAffinityArgs(), handle)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        return (
            event_with_hint(Resource.POD, pods, self.pod_may_help),
            event_with_hint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, node_may_help),
        )

    def pod_may_help(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        return pod_may_help(pod, old, new, any_term=self.release.anti_affinity_hint_any_term)

    # Filtering

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        cluster = nodes.cluster
        own = self._own_terms(state, pod, cluster)
        if own.problem:
            return unresolvable(f"parsing pod: {own.problem}")
        cached = state.signature.get(CachedFilterState) or state.signature.put(CachedFilterState(cluster))
        demands = cached.update(cluster, lambda: self._demands(own, state, pod, cluster))
        if demands is None:
            return SKIP_FOR_SIGNATURE
        if not demands.exist:
            return SKIP
        state.write(self.name, demands)
        return None

    def _demands(self, own: OwnTerms, state: CycleState, pod: Pod, cluster: Cluster) -> FilterState | None:
        """None if there can be none before pods with other terms come."""
        existing = self._carried(state, pod, cluster)[TermKind.REQUIRED_ANTI_AFFINITY]
        if not own.has_demands and not existing:
            return None
        sums = self._sums(state, cluster)
        # All keys have the same query, which may have thousands of parts: it is looked up once.
        count = cluster.count(own.near_all[0][1]) if own.near_all else None
        return FilterState(
            affinity=tuple(sums.of_query(query, key, count) for key, query in own.near_all),
            anti_affinity=tuple(sums.of_query(query, key) for key, query in own.near_any),
            existing=tuple(map(sums.of_carriers, existing)),
            satisfies_itself=own.satisfies_itself,
        )

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        demands: FilterState = state.read(self.name)
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

    def nodes_affected_by_pods(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> BoolColumn:
        """Rows with pods that the pod's terms mean, or whose terms mean the pod."""
        demands: FilterState = state.read(self.name)
        affected = np.zeros(len(nodes), dtype=np.bool_)
        for near in (*demands.affinity, *demands.anti_affinity):
            affected |= nodes.of(near.count.column) != 0
        for carriers in self._carried(state, pod, nodes.cluster)[TermKind.REQUIRED_ANTI_AFFINITY]:
            affected |= nodes.of(carriers.column) != 0
        return affected

    def _too_far(self, demands: FilterState, nodes: NodeColumns) -> BoolColumn:
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
            unmet |= near.sums.sums.take(domain) + change <= 0
        if demands.satisfies_itself:
            # The first pod of a group that wants to be near its own kind may go anywhere.
            unmet &= matched != 0
        return lacks_key | unmet

    @staticmethod
    def _too_far_as_it_is(demands: FilterState, nodes: NodeColumns) -> BoolColumn:
        """The same without a hypothesis. Without the label: too far."""
        anywhere = demands.satisfies_itself and not demands.matched_anywhere
        too_far: BoolColumn | None = None
        for near in demands.affinity:
            sums = near.sums.sums
            far = np.zeros(len(sums), dtype=np.bool_) if anywhere else sums <= 0
            far[-1] = True
            here = nodes.by_domain(near.topology_key, far)
            too_far = here if too_far is None else too_far | here
        assert too_far is not None
        return too_far

    @staticmethod
    def _any_near(nodes: NodeColumns, found: Iterable[tuple[MatchCounts | CarrierCounts, Any]]) -> BoolColumn:
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

    def _kept_away(self, pod: Pod, demands: FilterState, nodes: NodeColumns) -> BoolColumn | None:
        existing = demands.existing
        added = nodes.added_terms()
        if added:
            existing = (*existing, *self._only_supposed(pod, nodes.cluster, existing, added))
        if not existing:
            return None
        return self._any_near(nodes, [(term, nodes.carried_change(term.carried)) for term in existing])

    @staticmethod
    def _only_supposed(
        pod: Pod, cluster: Cluster, existing: Iterable[CarrierCounts], added: Iterable[CarriedTerm]
    ) -> Iterator[CarrierCounts]:
        """Hypothetical pods may bring terms that no assigned pod carries."""
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
        own = self._own_terms(state, pod, cluster)
        if self.args.ignore_preferred_terms_of_existing_pods and not own.preferred:
            return SKIP_FOR_SIGNATURE
        if own.problem:
            return failure(own.problem)
        cached = state.signature.get(CachedScoreState) or state.signature.put(CachedScoreState(cluster))
        pulls = cached.update(cluster, lambda: self._pulls(own, state, pod, cluster))
        if pulls is None:
            return SKIP_FOR_SIGNATURE
        tables: dict[str, IntColumn] = {}
        for weight, pull in pulls.all:
            if pull.sums is not None and pull.sums.total:
                key = pull.topology_key
                table, here = tables.get(key), pull.sums.sums * weight
                tables[key] = here if table is None else table + here
        if not tables:
            return SKIP
        state.write((self.name, "scores"), tables)
        return None

    def _pulls(self, own: OwnTerms, state: CycleState, pod: Pod, cluster: Cluster) -> ScoreState | None:
        """None if nothing pulls before pods with other terms come."""
        sums, carried = self._sums(state, cluster), self._carried(state, pod, cluster)
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
        found = table.take(present).tolist()
        return key, _shares(table, min(found), max(found))

    # Terms and counts

    def _own_terms(self, state: CycleState, pod: Pod, cluster: Cluster) -> OwnTerms:
        """The pod's terms with their namespaces resolved: names of namespaces instead of selectors."""
        if pod.spec.affinity is None:
            return NO_TERMS
        cached = state.signature.get(CachedOwnTerms) or state.signature.put(CachedOwnTerms(cluster))
        return cached.update(pod, cluster)

    def _carried(self, state: CycleState, pod: Pod, cluster: Cluster) -> MatchingTerms:
        """Terms of pods already there that mean the incoming pod."""
        label_set = state.memo(
            (self.name, "labels"), lambda: cluster.label_sets.intern(pod.namespace, pod.labels)
        )
        return cluster.terms.matching(label_set, cluster.namespace_labels(pod.namespace))

    def _sums(self, state: CycleState, cluster: Cluster) -> Sums:
        return state.signature.get(Sums) or state.signature.put(Sums(cluster))


def _shares(scores: IntColumn, lowest: int, highest: int) -> IntColumn:
    """How far each score is on the way from the lowest to the highest, in hundredths.

    A look into a table is twice as fast as computing it for each node. Scores outside of the range, of
    domains that no node is in, do not matter.
    """
    if lowest == highest:
        return np.zeros(len(scores), dtype=np.int64)
    if highest - lowest > MAX_TABLE:
        return _hundredths(scores - lowest, highest - lowest)
    return _table_of_hundredths(highest - lowest).take(scores - lowest, mode="clip")


@lru_cache(maxsize=64)
def _table_of_hundredths(whole: int) -> IntColumn:
    return _hundredths(np.arange(whole + 1), whole)


def _hundredths(parts: IntColumn, whole: int) -> IntColumn:
    normal: IntColumn = (MAX_SCORE * (parts / float(whole))).astype(np.int64)
    return normal


def _occupied(sums: DomainSums | None, nodes: NodeColumns) -> BoolColumn:
    """Rows whose domain has a matching pod."""
    if sums is None:
        return np.zeros(len(nodes), dtype=np.bool_)
    return nodes.gather(sums.occupied())
