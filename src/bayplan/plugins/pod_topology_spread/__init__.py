"""PodTopologySpread: spreads similar pods over hosts, zones or other domains.

A constraint has a topology key (the kind of domain), a selector (which pods count) and a maximum skew: how
many more matching pods a domain may have than the one with the fewest. DoNotSchedule makes it a filter,
ScheduleAnyway a score. Pods without constraints get the defaults, with the selector of their owners.

Counts of matching pods are columns of the snapshot, and sums by domain are updated for rows that changed.
What remains for each pod are a few gathers over the nodes.

https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

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
    Handle,
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
    unresolvable,
    unschedulable,
    whole_share,
)
from bayplan.plugin._internal import DomainScorePlugin, DomainSums, RejectedRowsPlugin, RowMask, distinct_ids
from bayplan.plugin.args import PodTopologySpreadArgs
from bayplan.plugin.objects import (
    DO_NOT_SCHEDULE,
    OWNER_KINDS,
    SCHEDULE_ANYWAY,
    SYSTEM_DEFAULTS,
    SpreadConstraint,
    Tolerations,
    default_constraints,
    own_constraints,
    owner_selector,
    required_node_affinity,
    rows_matching,
    untolerated_taint,
)
from bayplan.plugins.pod_topology_spread.domains import (
    Domains,
    Limit,
    Preference,
    Scoring,
    count_query,
    hypothesis_query,
)

MISSING_LABEL: Final = unresolvable(
    "node(s) didn't match pod topology spread constraints (missing required label)"
)
SKEWED: Final = unschedulable("node(s) didn't match pod topology spread constraints")


class Counts:
    """The counts for pods of one signature: for their own constraints, or for the defaults."""

    __slots__ = ("_freshness", "_violating", "_violating_domains", "domains", "limits")

    def __init__(self, domains: tuple[Domains, ...], cluster: Cluster, by_default: bool) -> None:
        self.domains = domains
        self.limits: tuple[Limit, ...] | None = None
        self._violating: RowMask | None = None
        self._violating_domains: list[bytes] = []
        changes = cluster.changes
        # Default constraints count the pods that the owners of the pod select.
        owners = changes.kinds(OWNER_KINDS) if by_default else ()
        on_nodes = (changes.topology, changes.queries) if domains else ()
        self._freshness = changes.freshness((*owners, *on_nodes))
        self._freshness.mark_current()

    def is_current(self, cluster: Cluster) -> bool:
        """Whether nothing but pods has changed; sums are updated for those."""
        if not self._freshness.is_current:
            return False
        for domains in self.domains:
            if domains.count is not None:
                cluster.counts.touch(domains.count)
        return True

    def violating_rows(self, nodes: NodeColumns) -> RowMask:
        """The rows (`nodes` are all) that violate a hard constraint. They rarely change: a domain that has
        got one more pod rarely has too many only now."""
        tables = [limit.violating_domains() for limit in self.limits or ()]
        content = [table.tobytes() for table in tables]
        if self._violating is None or content != self._violating_domains:
            violating = np.zeros(len(nodes), dtype=np.bool_)
            for domains, table in zip(self.domains, tables, strict=True):
                violating |= table.take(nodes.label(domains.constraint.topology_key).ids)
            if self._violating is None:
                self._violating = RowMask(nodes.cluster.changes.clock, violating)
            else:
                self._violating.assign(violating)
            self._violating_domains = content
        return self._violating


class PodTopologySpread(
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
    """Rejects and scores nodes by the number of matching pods in their domains."""

    args_type: ClassVar = PodTopologySpreadArgs

    def __init__(self, args: PodTopologySpreadArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._system_defaults = self.args.defaulting_type == "System"
        self._defaults = SYSTEM_DEFAULTS if self._system_defaults else self.args.default_constraints

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        return (
            event_with_hint(Resource.POD, pods, self.pod_may_help),
            event_with_hint(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, self.pod_may_help),
            event_with_hint(Resource.NODE, nodes, self.node_may_help),
        )

    # Filtering

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        counts = self._counts(state, pod, nodes, DO_NOT_SCHEDULE)
        if counts is None:
            return SKIP_FOR_SIGNATURE
        if counts.limits is None:
            counts.limits = tuple(self._limit(pod, domains, nodes.cluster) for domains in counts.domains)
        for limit in counts.limits:
            limit.refresh()
        state.write(self.name, counts.limits)
        return None

    @staticmethod
    def _limit(pod: Pod, domains: Domains, cluster: Cluster) -> Limit:
        constraint = domains.constraint
        label = cluster.nodes.label(constraint.topology_key)
        return Limit(
            domains=domains,
            totals=domains.totals(len(label.values)),
            all_nodes_have_label=not (cluster.nodes.exists.read & (label.column.read < 0)).any(),
            self_match=int(constraint.selector.matches(pod.labels)),
            change=hypothesis_query(pod, constraint),
        )

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        rejected: BoolColumn | None = None
        for limit in state.read(self.name):
            missing, skewed = self._violated(limit, nodes)
            for mask, status in ((missing, MISSING_LABEL), (skewed, SKEWED)):
                if mask is not None:
                    # Only the first violated constraint of a node is reported.
                    first = mask if rejected is None else mask & ~rejected
                    yield Reject(first, status)
                    rejected = mask if rejected is None else rejected | mask

    def rejected_rows(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> RowMask:
        counts = state.signature.get(Counts, DO_NOT_SCHEDULE)
        assert counts is not None
        return counts.violating_rows(nodes)

    def nodes_affected_by_pods(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> BoolColumn:
        """Rows with pods that are counted."""
        affected = np.zeros(len(nodes), dtype=np.bool_)
        for limit in state.read(self.name):
            affected |= nodes.of(nodes.cluster.count(limit.change).column) != 0
        return affected

    def _violated(self, limit: Limit, nodes: NodeColumns) -> tuple[BoolColumn | None, BoolColumn]:
        """Rows without the label (None if every node has it), and rows whose domain would have too many
        pods."""
        key = limit.domains.constraint.topology_key
        change = nodes.matching_change(limit.change)
        if not isinstance(change, int):
            domain = nodes.label(key).ids
            missing = domain < 0
            return missing, self._skewed(limit, nodes, domain, change) & ~missing
        skewed = limit.skewed_domains()
        absent = None
        if not limit.all_nodes_have_label:
            without = np.zeros(len(skewed), dtype=np.bool_)
            without[-1] = True
            absent = nodes.by_domain(key, without)
        return absent, nodes.by_domain(key, skewed)

    @staticmethod
    def _skewed(limit: Limit, nodes: NodeColumns, domain: NDArray[np.intp], change: IntColumn) -> BoolColumn:
        constraint = limit.domains.constraint
        count = limit.totals.take(domain)
        # A hypothesis changes the count of the node's own domain, and with it perhaps the smallest one.
        change = change * nodes.gather(limit.domains.eligible)
        hypothetical = count + change
        enough = len(limit.domains.known) >= constraint.min_domains
        next_smallest = limit.smallest_of_others
        alone = (count == limit.smallest) & (next_smallest != limit.smallest)
        others = np.where(alone, next_smallest, limit.smallest)
        smallest = np.where(change != 0, np.minimum(others, hypothetical), limit.smallest) if enough else 0
        skewed: BoolColumn = hypothetical + limit.self_match - smallest > constraint.max_skew
        return skewed

    # Scoring

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        counts = self._counts(state, pod, nodes, SCHEDULE_ANYWAY)
        if counts is None:
            return SKIP_FOR_SIGNATURE
        if not len(nodes):
            return SKIP
        scoring = nodes.memo(counts, lambda: self._scoring(pod, counts, nodes))
        preferences = []
        for domains, absent, weight in zip(counts.domains, scoring.absent, scoring.weights, strict=True):
            domains.refresh()
            preferences.append(self._preference(domains, nodes.cluster, absent, weight))
        state.write((self.name, "scores"), (tuple(preferences), scoring.ignored))
        return None

    def _scoring(self, pod: Pod, counts: Counts, nodes: NodeColumns) -> Scoring:
        keys = [domains.constraint.topology_key for domains in counts.domains]
        absent = [nodes.label(key).ids < 0 for key in keys]
        ignored: BoolColumn | None = None
        if self._requires_all_keys(pod):
            ignored = np.logical_or.reduce(absent)
            ignored = ignored if ignored.any() else None
        weights = []
        for domains in counts.domains:
            constraint = domains.constraint
            if constraint.by_host:
                size = len(nodes) if ignored is None else int(np.count_nonzero(~ignored))
            else:
                size = self._domain_count(constraint, nodes, ignored)
            weights.append(math.log(size + 2))
        return Scoring(ignored, tuple(mask if mask.any() else None for mask in absent), tuple(weights))

    @staticmethod
    def _domain_count(constraint: SpreadConstraint, nodes: NodeColumns, ignored: BoolColumn | None) -> int:
        """The number of domains of the feasible nodes; nodes without the label count as the domain ''."""
        label = nodes.cluster.nodes.label(constraint.topology_key)
        domain = nodes.label(constraint.topology_key).ids
        seen = np.zeros(len(label.values) + 1, dtype=np.bool_)
        seen[domain if ignored is None else domain[~ignored]] = True
        unnamed = label.values.find("")
        if unnamed >= 0 and seen[-1]:
            seen[-1] = not seen[unnamed]
        return int(np.count_nonzero(seen))

    @staticmethod
    def _preference(
        domains: Domains, cluster: Cluster, absent: BoolColumn | None, weight: float
    ) -> Preference:
        constraint = domains.constraint
        skew = constraint.max_skew - 1
        if constraint.by_host:
            count = None if domains.count is None else domains.count.column.read
            matching = np.zeros(cluster.nodes.high, dtype=np.int64) if count is None else count
            return Preference(constraint, absent, np.multiply(matching, weight) + skew, None)
        label = cluster.nodes.label(constraint.topology_key)
        totals = domains.totals(len(label.values))
        unnamed = label.values.find("")
        if unnamed >= 0 and domains.count is not None:
            # A node without the label counts as one whose label is empty, whether it fits or not.
            without = domains.eligible & (label.column.read < 0)
            totals = totals.copy()
            totals[unnamed] += int(domains.count.column.read[without].sum())
        return Preference(constraint, absent, None, np.multiply(totals, weight) + skew)

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        preferences, ignored = state.read((self.name, "scores"))
        if len(preferences) == 1 and preferences[0].by_domain is not None and preferences[0].absent is None:
            # Only one topology key: there are far fewer domains to round than nodes.
            only: IntColumn = _rounded(preferences[0].by_domain)
            return only.take(nodes.label(preferences[0].constraint.topology_key).ids)
        total = np.zeros(len(nodes), dtype=np.float64)
        for preference in preferences:
            if preference.by_row is not None:
                score = nodes.gather(preference.by_row)
            else:
                score = preference.by_domain.take(nodes.label(preference.constraint.topology_key).ids)
            total += score if preference.absent is None else np.where(preference.absent, 0.0, score)
        rounded = _rounded(total)
        if ignored is not None:
            rounded[ignored] = 0
        return rounded

    def normalize(self, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
        _, ignored = state.read((self.name, "scores"))
        considered = scores if ignored is None else scores[~ignored]
        if not len(considered):
            return np.zeros(len(scores), dtype=np.int64)
        result = _inverted(scores, int(considered.min()), int(considered.max()))
        if ignored is not None:
            result[ignored] = 0
        return result

    def scores_by_domain(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> tuple[str, IntColumn] | None:
        preferences, ignored = state.read((self.name, "scores"))
        only = preferences[0]
        if len(preferences) > 1 or ignored is not None or only.by_domain is None or only.absent is not None:
            return None
        present = nodes.domains(only.constraint.topology_key)
        if present is None:
            return None
        scores = _rounded(only.by_domain)
        found = scores.take(present).tolist()
        return only.constraint.topology_key, _inverted(scores, min(found), max(found))

    # Counting

    def _requires_all_keys(self, pod: Pod) -> bool:
        return bool(pod.spec.topology_spread_constraints) or not self._system_defaults

    def _constraints(self, pod: Pod, cluster: Cluster, action: str) -> tuple[SpreadConstraint, ...]:
        if pod.spec.topology_spread_constraints:
            return own_constraints(pod.spec.topology_spread_constraints, action, pod.labels)
        if not any(constraint.when_unsatisfiable == action for constraint in self._defaults):
            return ()
        selector = owner_selector(pod, cluster.objects)
        return () if selector is None else default_constraints(self._defaults, action, selector)

    def _counts(self, state: CycleState, pod: Pod, nodes: NodeColumns, action: str) -> Counts | None:
        """The counts for the pod's constraints with this action; None if it has none."""
        cluster = nodes.cluster
        known = state.signature.get(Counts, action)
        if known is not None and known.is_current(cluster):
            return known if known.domains else None
        by_default = not pod.spec.topology_spread_constraints
        constraints = self._constraints(pod, cluster, action)
        made = Counts(self._domains(pod, cluster, constraints, action), cluster, by_default)
        state.signature.put(made, action)
        return made if made.domains else None

    def _domains(
        self, pod: Pod, cluster: Cluster, constraints: Sequence[SpreadConstraint], action: str
    ) -> tuple[Domains, ...]:
        if not constraints:
            return ()
        nodes = NodeColumns(cluster)
        common = nodes.exists.copy()
        filtering = action == DO_NOT_SCHEDULE
        if filtering or self._requires_all_keys(pod):
            for constraint in constraints:
                common &= nodes.label(constraint.topology_key).exists()
        found, tolerations = [], Tolerations(pod.spec.tolerations)
        for constraint in constraints:
            eligible = common
            if constraint.honors_node_affinity:
                eligible = eligible & rows_matching(nodes, required_node_affinity(pod))
            if constraint.honors_taints:
                untolerated = nodes.taint_lookup(
                    lambda taints: untolerated_taint(taints, tolerations) is not None
                )
                eligible = eligible & (nodes.taints(untolerated) == 0)
            label = cluster.nodes.label(constraint.topology_key)
            query = count_query(pod, constraint)
            count = None if query is None else cluster.count(query)
            sums = None
            if count is not None and (filtering or not constraint.by_host):
                # Scores by host use the count of the node itself, not of a domain.
                sums = DomainSums(cluster.nodes, cluster.changes, count, label, eligible)
            ids = label.column.read[eligible]
            found.append(Domains(constraint, eligible, count, sums, distinct_ids(ids[ids >= 0])))
        return tuple(found)

    # Hints

    def _hard_constraints(self, pod: Pod) -> tuple[SpreadConstraint, ...]:
        if not pod.spec.topology_spread_constraints and self.handle is not None:
            return self._constraints(pod, self.handle.cluster, DO_NOT_SCHEDULE)
        return own_constraints(pod.spec.topology_spread_constraints, DO_NOT_SCHEDULE, pod.labels)

    def pod_may_help(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        if not all(other is None or self._may_count(pod, other) for other in (old, new)):
            return False
        constraints = self._hard_constraints(pod)
        if old is not None and new is not None:
            is_itself = new.uid == pod.uid
            if is_itself and old.spec.tolerations != new.spec.tolerations:
                return any(constraint.honors_taints for constraint in constraints)
            return any(
                constraint.selector.matches(old.labels) != constraint.selector.matches(new.labels)
                for constraint in constraints
            )
        other = new or old
        assert other is not None
        return any(constraint.selector.matches(other.labels) for constraint in constraints)

    @staticmethod
    def _may_count(pod: Pod, other: Pod) -> bool:
        has_node = bool(other.spec.node_name or other.status.nominated_node_name)
        return other.uid == pod.uid or (has_node and other.namespace == pod.namespace)

    def node_may_help(self, pod: Pod, old: Node | None, new: Node | None) -> bool:
        keys = [constraint.topology_key for constraint in self._hard_constraints(pod)]
        had = old is not None and all(key in old.labels for key in keys)
        has = new is not None and all(key in new.labels for key in keys)
        if old is None or new is None:
            return had or has
        if had != has:
            return True
        return has and (
            any(old.labels[key] != new.labels[key] for key in keys) or old.spec.taints != new.spec.taints
        )


def _inverted(scores: IntColumn, lowest: int, highest: int) -> IntColumn:
    """Inverts scores: fewer pods are better."""
    if highest == 0:
        return np.full(len(scores), MAX_SCORE, dtype=np.int64)
    return whole_share(MAX_SCORE * (highest + lowest - scores), highest)


def _rounded(values: NDArray[np.float64]) -> IntColumn:
    """To the nearest whole number, halves away from zero. The values are not negative."""
    whole = np.trunc(values)
    nearest: IntColumn = (whole + (values - whole >= 0.5)).astype(np.int64)
    return nearest
