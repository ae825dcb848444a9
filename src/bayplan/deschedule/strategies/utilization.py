"""LowNodeUtilization and HighNodeUtilization: nodes that are used too much, or too little.

Nodes are classified by the percentage of their resources that is used. LowNodeUtilization evicts pods of
overutilized nodes while underutilized ones have room; HighNodeUtilization empties underutilized nodes, so
that an autoscaler can remove them. Room is one pool over all destinations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayplan.api.pod import Pod, Toleration
from bayplan.api.quantity import CPU, MEMORY, PODS, parse_quantity, resource_units
from bayplan.deschedule.args import (
    KUBERNETES_METRICS,
    METRIC_RESOURCE,
    PROMETHEUS,
    HighNodeUtilizationArgs,
    LowNodeUtilizationArgs,
    Namespaces,
    Thresholds,
)
from bayplan.deschedule.eviction import Result
from bayplan.deschedule.node_fit import all_tolerated
from bayplan.deschedule.plugin import Cycle, Goal, Slots, Strategy, StrategyError, Verdict
from bayplan.deschedule.table import Bools, Flag, Floats, Ints
from bayplan.deschedule.usage import UsageError

UNDER = "underutilized"
OVER = "overutilized"


@dataclass(slots=True)
class Utilization:
    """Usage and capacity of the cycle's nodes, in the units that scheduling counts in."""

    names: list[str]
    rows: Slots
    used: Ints
    """(nodes, names)"""
    capacity: Ints
    has: Bools
    """Whether a node has the resource at all."""
    allocatable: Ints
    """What a node offers; capacity counts only if it states no allocatable resources."""

    @property
    def percentages(self) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self.used / self.capacity * 100.0
        return np.where(self.has & (self.capacity > 0), share, 0.0)

    def of(self, names: list[str]) -> Floats:
        return self.percentages[:, [self.names.index(name) for name in names]]


class _UtilizationStrategy(Strategy):
    """What both have in common: measuring, and the loop over nodes and pods."""

    def _measure(self, cycle: Cycle, names: list[str], source: str = "", query: str = "") -> Utilization:
        table = cycle.table
        rows = np.flatnonzero(cycle.rows)
        shape = (len(rows), len(names))
        capacity, has, used = np.zeros(shape, np.int64), np.zeros(shape, np.bool_), np.zeros(shape, np.int64)
        for i, row in enumerate(rows.tolist()):
            status = table.nodes[row].status
            amounts = status.allocatable or status.capacity
            for j, name in enumerate(names):
                if name == METRIC_RESOURCE:
                    capacity[i, j], has[i, j] = 100, True
                elif name in amounts:
                    capacity[i, j] = resource_units(name, parse_quantity(amounts[name]))
                    has[i, j] = True
        if source:
            used = self._measured(cycle, names, rows, source, query)
        else:
            for j, name in enumerate(names):
                if name in table.columns.resources:
                    used[:, j] = table.used[rows, table.columns.resources.index(name)]
        return Utilization(names, rows, used, capacity, has, capacity)

    def _measured(self, cycle: Cycle, names: list[str], rows: Slots, source: str, query: str) -> Ints:
        table = cycle.table
        nodes = [table.nodes[row].name for row in rows.tolist()]
        if cycle.usage is None or not cycle.usage.has(source):
            which = "metrics" if source == KUBERNETES_METRICS else "prometheus"
            raise StrategyError(f"error initializing usage client: {which} client not initialized")
        try:
            usage = cycle.usage.node_usage(source, query, nodes)
            used = np.zeros((len(rows), len(names)), np.int64)
            for i, node in enumerate(nodes):
                for j, name in enumerate(names):
                    if name == PODS:
                        used[i, j] = table.used[rows[i], 2]
                    elif name not in usage[node]:
                        text = f'unable to find "{name}" resource for collected "{node}" node metric'
                        raise UsageError(text)
                    else:
                        used[i, j] = usage[node][name]
        except UsageError as error:
            raise StrategyError(f"error getting node usage: {error}") from None
        return used

    def _classify(self, cycle: Cycle, use: Utilization, under: Bools, over: Bools) -> None:
        if not (under | over).any():
            return
        found = cycle.classes.setdefault(self.name, {})
        for i, row in enumerate(use.rows.tolist()):
            if under[i] or over[i]:
                found[cycle.table.nodes[row].name] = UNDER if under[i] else OVER

    def _drain(
        self,
        cycle: Cycle,
        use: Utilization,
        sources: Slots,
        destinations: Slots,
        limits: Ints,
        goes_on: Callable[[int, Ints], bool],
        *,
        removable: Bools,
        namespaces: Namespaces | None,
        source: str = "",
        node_limit: int | None = None,
    ) -> None:
        """Evicts pods of nodes in order while there is room. nodeutilization.go: evictPodsFromSourceNodes

        Args:
            sources: indexes into `use.rows`, in order.
            limits: (nodes, names): up to which usage a destination has room.
        """
        table = cycle.table
        available = (limits[destinations] - use.used[destinations]).sum(axis=0)
        taints = list(dict.fromkeys(table.nodes[row].spec.taints for row in use.rows[destinations].tolist()))
        tolerated: dict[tuple[Toleration, ...], bool] = {}
        by_row = dict(cycle.by_node(removable))
        requests = self._requests_by_spec(cycle, use.names)
        excluded = np.zeros(len(table.pods), np.bool_)
        if namespaces is not None and namespaces.exclude:
            excluded = table.in_namespaces(namespaces.exclude)
        none = np.zeros(0, np.intp)
        for i in sources.tolist():
            slots = by_row.get(int(use.rows[i]), none)
            slots = slots[cycle.checks.filter(slots)]
            if not len(slots) or not goes_on(i, available):
                continue
            evicted = 0
            for slot in cycle.by_priority(slots).tolist():
                if node_limit is not None and evicted >= node_limit:
                    break
                pod = table.pods[slot]
                tolerations = pod.spec.tolerations
                if tolerations not in tolerated:
                    tolerated[tolerations] = any(
                        len(tolerations) >= len(one) and all_tolerated(pod, one) for one in taints
                    )
                if not tolerated[tolerations] or excluded[slot]:
                    continue
                if not cycle.checks.pre_eviction_filter(np.array([slot], np.intp))[0]:
                    continue
                is_blind = source == PROMETHEUS
                usage = requests[table.spec[slot]]
                if source == KUBERNETES_METRICS:
                    measured = self._pod_usage(cycle, slot, use.names)
                    if measured is None:
                        continue
                    usage = measured
                result = cycle.evict(slot)
                if result is Result.TOTAL_LIMIT:
                    return
                if result is Result.NODE_LIMIT:
                    break
                if result is not Result.OK:
                    continue
                if is_blind and node_limit is None:
                    break
                evicted += 1
                if is_blind:
                    continue
                use.used[i] -= usage
                available -= usage
                if not goes_on(i, available):
                    break

    def _requests_by_spec(self, cycle: Cycle, names: list[str]) -> Ints:
        columns = cycle.table.columns
        found = np.zeros((len(columns.spec_pods), len(names)), np.int64)
        for j, name in enumerate(names):
            if name in columns.resources:
                found[:, j] = columns.requests[: len(found), columns.resources.index(name)]
        return found

    def _pod_usage(self, cycle: Cycle, slot: int, names: list[str]) -> Ints | None:
        pod = cycle.table.pods[slot]
        assert cycle.usage is not None
        usage = cycle.usage.pod_usage(KUBERNETES_METRICS, pod.namespace, pod.name)
        if usage is None or any(name != PODS and name not in usage for name in names):
            return None
        return np.array([1 if name == PODS else usage[name] for name in names], np.int64)


def _extended(thresholds: Thresholds) -> list[str]:
    return list(dict.fromkeys([*sorted(thresholds), CPU, MEMORY, PODS]))


class LowNodeUtilization(_UtilizationStrategy):
    """Evicts pods of overutilized nodes, so that they may be placed on underutilized ones."""

    args_type: ClassVar = LowNodeUtilizationArgs
    goal: ClassVar = Goal.BALANCE
    reason: ClassVar = "its node is overutilized"
    args: LowNodeUtilizationArgs

    def __init__(self, args: LowNodeUtilizationArgs) -> None:
        super().__init__(args)
        if args.source == PROMETHEUS:
            query = None if args.metrics_utilization is None else args.metrics_utilization.prometheus
            if query is None:
                raise StrategyError("prometheus property is missing")
            if not query.query:
                raise StrategyError("prometheus query is missing")
            for name, given in (
                ("thresholds", args.thresholds),
                ("targetThresholds", args.target_thresholds),
            ):
                if list(given or ()) != [METRIC_RESOURCE]:
                    listed = " ".join(sorted(given or ()))
                    raise StrategyError(
                        f'{name} are expected to specify a single instance of "{METRIC_RESOURCE}" resource, '
                        f"got [{listed}] instead"
                    )

    def balance(self, cycle: Cycle) -> None:
        args = self.args
        self._check_source()
        low = args.thresholds or {}
        wanted = sorted(low)
        names = wanted if args.source == PROMETHEUS else _extended(low)
        use = self._measure(cycle, names, args.source, self._query)
        lows, highs = self._thresholds(use, wanted)
        percentages = use.of(wanted)
        schedulable = ~cycle.table.unschedulable[use.rows]
        under = schedulable & (percentages <= lows).all(axis=1)
        over = ~under & (percentages > highs).any(axis=1)
        self._classify(cycle, use, under, over)
        count = np.count_nonzero(under)
        if not count or count <= args.number_of_nodes or count == len(use.rows) or not over.any():
            return
        limits = self._limits(use, wanted, highs)

        def goes_on(i: int, available: Ints) -> bool:
            return bool((use.used[i] > limits[i]).any() and (available > 0).all())

        sources = np.flatnonzero(over)
        sources = sources[np.argsort(-use.used[sources].sum(axis=1), kind="stable")]
        node_limit = None if args.eviction_limits is None else args.eviction_limits.node
        self._drain(
            cycle,
            use,
            sources,
            np.flatnonzero(under),
            limits,
            goes_on,
            removable=cycle.pods(),
            namespaces=args.evictable_namespaces,
            source=args.source,
            node_limit=node_limit,
        )

    def accepts(self, cycle: Cycle, slot: int, row: int) -> Verdict:
        """The more used of the two nodes must be less used afterwards, by requests, and the new one not be
        overutilized."""
        table, own = cycle.table, int(cycle.table.row[slot])
        names = [name for name in sorted(self.args.thresholds or {}) if name in table.columns.resources]
        if not names:
            return Verdict(True, "measured usage decreases")
        at = [table.columns.resources.index(name) for name in names]
        request = table.requests_of(slot)[at]
        capacity = np.maximum(table.allocatable[:, at], 1)
        before = table.used[own, at] / capacity[own] * 100
        after = (table.used[row, at] + request) / capacity[row] * 100
        if objection := self.objects(cycle, slot, row):
            return Verdict(False, objection)
        gain = float(before.max() - after.max())
        name = table.nodes[row].name
        text = (
            f"{name} would be used {after.max():.0f} %, {table.nodes[own].name} is used {before.max():.0f} %"
        )
        return Verdict(gain > 0, text, gain, is_percentage=True)

    def objects(self, cycle: Cycle, slot: int, row: int) -> str:
        """The node would be overutilized. What the pod would use elsewhere is not measured."""
        if self.args.source:
            return ""
        table, request = cycle.table, cycle.table.requests_of(slot)
        for name, high in sorted((self.args.target_thresholds or {}).items()):
            if name not in table.columns.resources:
                continue
            j = table.columns.resources.index(name)
            used, capacity = table.used[:, j], table.allocatable[:, j]
            if self.args.use_deviation_thresholds:
                known = cycle.rows & (capacity > 0)
                high = min(high + float(np.mean(used[known] / capacity[known])) * 100, 100)
            after = (used[row] + request[j]) / max(capacity[row], 1) * 100
            if after > high:
                return f"{table.nodes[row].name} would be overutilized: {after:.0f} % of {name}"
        return ""

    @property
    def _query(self) -> str:
        metrics = self.args.metrics_utilization
        return "" if metrics is None or metrics.prometheus is None else metrics.prometheus.query

    def _check_source(self) -> None:
        metrics = self.args.metrics_utilization
        if metrics is None or self.args.source in (KUBERNETES_METRICS, PROMETHEUS):
            return
        why = "unrecognized metrics source" if metrics.source else "metrics source is empty"
        raise StrategyError(f"error initializing usage client: {why}")

    def _thresholds(self, use: Utilization, wanted: list[str]) -> tuple[Floats, Floats]:
        low, high = self.args.thresholds or {}, self.args.target_thresholds or {}
        lows = np.array([low[name] for name in wanted])
        highs = np.array([high[name] for name in wanted])
        if not self.args.use_deviation_thresholds:
            return lows, highs
        at = [use.names.index(name) for name in wanted]
        has = use.has[:, at]
        counts = np.maximum(has.sum(axis=0), 1)
        average = np.where(has, use.of(wanted), 0.0).sum(axis=0) / counts
        return np.clip(average - lows, 0, 100), np.clip(average + highs, 0, 100)

    def _limits(self, use: Utilization, wanted: list[str], highs: Floats) -> Ints:
        """Up to which usage a node is not overutilized."""
        limits = np.where(use.has, use.capacity, 0)
        for name, high in zip(wanted, highs.tolist(), strict=True):
            j = use.names.index(name)
            limits[:, j] = np.where(use.has[:, j], ((high * 0.01) * use.capacity[:, j]).astype(np.int64), 0)
        return limits


class HighNodeUtilization(_UtilizationStrategy):
    """Evicts the pods of underutilized nodes, so that other nodes are used more and these can be removed."""

    args_type: ClassVar = HighNodeUtilizationArgs
    goal: ClassVar = Goal.CONSOLIDATE
    reason: ClassVar = "its node is underutilized and can be emptied"
    args: HighNodeUtilizationArgs

    def underutilized(self, cycle: Cycle) -> tuple[Utilization, Bools, Bools]:
        """Usage, the nodes to empty, and the nodes that may get their pods."""
        thresholds = self.args.thresholds or {}
        wanted = sorted(thresholds)
        use = self._measure(cycle, _extended(thresholds))
        limits = np.array([thresholds[name] for name in wanted])
        under: Bools = np.all(use.of(wanted) <= limits, axis=1)
        return use, under, ~under & ~cycle.table.unschedulable[use.rows]

    def balance(self, cycle: Cycle) -> None:
        args, thresholds = self.args, self.args.thresholds or {}
        use, under, destinations = self.underutilized(cycle)
        self._classify(cycle, use, under, destinations)
        count = np.count_nonzero(under)
        if not count or count <= args.number_of_nodes or count == len(use.rows) or not destinations.any():
            return
        limits = np.where(use.has, use.capacity, 0)
        for name in thresholds:
            j = use.names.index(name)
            limits[:, j] = np.where(use.has[:, j], ((100 * 0.01) * use.capacity[:, j]).astype(np.int64), 0)

        def goes_on(_: int, available: Ints) -> bool:
            return bool((available > 0).all())

        sources = np.flatnonzero(under)
        sources = sources[np.argsort(use.used[sources].sum(axis=1), kind="stable")]
        self._drain(
            cycle,
            use,
            sources,
            np.flatnonzero(destinations),
            limits,
            goes_on,
            removable=self.removable(cycle),
            namespaces=args.evictable_namespaces,
        )

    def accepts(self, cycle: Cycle, slot: int, row: int) -> Verdict:
        """The new node must have pods already: otherwise no node is saved."""
        table, name = cycle.table, cycle.table.nodes[row].name
        there = table.counted & (table.row == row) & (table.flags & Flag.DAEMON == 0)
        if not there.any():
            return Verdict(False, f"{name} has no pods yet, so no node would be saved")
        return Verdict(True, f"{name} has room")

    def removable(self, cycle: Cycle) -> Bools:
        thresholds = self.args.thresholds or {}

        def requests_threshold(pod: Pod) -> bool:
            containers = (*pod.spec.containers, *pod.spec.init_containers)
            return any(name in thresholds for one in containers for name in one.resources.requests)

        mask = cycle.pods()
        return mask & cycle.table.by_spec(requests_threshold) if self.args.eviction_modes else mask
