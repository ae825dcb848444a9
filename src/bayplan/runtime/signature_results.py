"""Combined filter results and total scores for one class of identical pods.

`SignatureResults` combines the results of the cached plugins (`plugin_results.py`). Those that depend on the
Node objects alone are stored here (`_node_…`), because a placement does not change them; the others are in
`UsageResults`, which signatures share. `feasible.py` finds the best row.

`SignatureCache` finds the results of a pod by its signature, with what uncached plugins remember for it
(`CachedSignature`). At 5,000 nodes a signature takes more than half a megabyte, so the number of rows is
limited, and the least recently used signatures are dropped first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.clock import Log, Topic
from bayplan.framework.outcome import PASS, ReasonIds, Reasons, RejectingPlugins
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.state import CycleState, SignatureMemory
from bayplan.framework.status import Status
from bayplan.runtime import calls
from bayplan.runtime.calls import Caller
from bayplan.runtime.plugin_results import (
    FEW_COMBINED,
    EvaluatedPlugins,
    EvaluationCounter,
    Filters,
    PluginResults,
    ResultCache,
    Scorers,
    Signature,
    SkippedPlugins,
    UsageResults,
    first_rejecting,
    is_out_of_range,
    stale_topics,
)
from bayplan.runtime.profile import Profile, Step
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn, RowMask, cells
from bayplan.state.pods import PodInfo
from bayplan.state.view import IntColumn, NodeColumns

if TYPE_CHECKING:
    from bayplan.runtime.feasible import Feasible


MAX_ROWS: Final = 2_000_000
"""Signatures times nodes that are cached, at some 130 bytes each: 400 signatures for 5,000 nodes."""

MIN_SIGNATURES: Final = 64
"""Signatures that are cached however many nodes there are."""


class SignatureResults:
    """Filter results and scores of all rows for one signature.

    `share` finds the `UsageResults` of some filters and scores.
    """

    def __init__(
        self,
        profile: Profile,
        cluster: Cluster,
        plugins: Mapping[str, PluginResults],
        caller: Caller,
        share: Callable[[Filters, Scorers], UsageResults],
    ) -> None:
        self._profile = profile
        self._caller = caller
        self._cluster = cluster
        self._plugins = plugins
        self.reasons = {
            step.index: plugins[step.name].reasons if step.cached else Reasons(step.name)
            for step in profile.filters
        }
        self.rows_computed = 0
        """Rows that were brought up to date, over all attempts."""
        self.last_used = 0
        """When it was last used, as `SignatureCache` counts."""
        self.evaluation_counters: dict[EvaluatedPlugins, EvaluationCounter] = {}
        """For the metrics; cleared when the set of active plugins changes."""
        self.feasible: Feasible | None = None
        """The rows that pass, if no other plugin rejects any."""
        self.memory = SignatureMemory()
        """Values that depend on these results, for pods of one priority: nominated pods and dry runs."""
        changes = cluster.changes
        self.topics = stale_topics(changes, plugins.values())
        """The topics after which all rows are stale."""
        kinds = dict.fromkeys(kind for results in plugins.values() for kind in results.depends_on.kinds)
        self._pre_filtered = changes.freshness(changes.kinds(tuple(kinds)))
        self._chosen = changes.freshness([results.changed for results in plugins.values()])
        self._by_node = changes.freshness(self.topics, (changes.nodes,))
        self.recombined = Topic(changes.clock)
        """All rows were combined again."""
        self.passing_rows: Log[int] = Log(changes.clock)
        """Rows that began to pass, or no longer do."""
        self.scores_changed = Topic(changes.clock)
        """Scores have changed for another reason than pods that were added or removed."""
        self.is_scored = False
        """Whether the cached scores are computed and kept up to date."""
        self.skipped: frozenset[str] = frozenset()
        """The cached plugins whose PreFilter returned SKIP."""
        self._filters: Filters = ()
        self._plain: Scorers = ()
        self._normalized: Scorers = ()
        self.normalized_by_usage = False
        self._share = share
        self._use(())
        self._allocate(0)

    def _allocate(self, rows: int) -> None:
        self.rejecting_plugin: RejectingPlugins = np.full(rows, PASS, dtype=np.int8)
        self.reason_id: ReasonIds = np.zeros(rows, dtype=np.int64)
        self.passing: NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)
        self._node_plugin: RejectingPlugins = np.full(rows, PASS, dtype=np.int8)
        self._node_reason: ReasonIds = np.zeros(rows, dtype=np.int64)
        self._node_total: IntColumn = np.zeros(rows, dtype=np.int64)
        self._plugin_cell, self._reason_cell = cells(self.rejecting_plugin), cells(self.reason_id)
        self._passing_cell = cells(self.passing)
        self._node_plugin_cell, self._node_reason_cell = cells(self._node_plugin), cells(self._node_reason)
        self.node_total_cell = cells(self._node_total)

    @property
    def may_have_errors(self) -> bool:
        """Whether a filter has ever returned an error for some row."""
        return any([reasons.has_errors for reasons in self.reasons.values()])  # noqa: C419  # faster

    def state_of(self, step: Step) -> CycleState:
        """The state of a cached plugin for these pods."""
        return self._plugins[step.name].state

    def skips_filter(self, plugin: str) -> bool:
        """Whether a cached plugin's Filter is skipped for these pods."""
        return plugin in self._plugins and self._plugins[plugin].skips_filter

    def plugin_results(self) -> Iterable[PluginResults]:
        return self._plugins.values()

    def scorers(self) -> list[Step]:
        """The cached plugins that score these pods."""
        return [step for step, _ in (*self._plain, *self._normalized)]

    # PreFilter

    @property
    def is_pre_filtered(self) -> bool:
        """Whether every cached PreFilter has run, and no object it depends on has changed since."""
        return self._pre_filtered.is_current

    def mark_pre_filtered(self) -> None:
        """All cached PreFilters have run with the objects as they are."""
        self._pre_filtered.mark_current()

    def pre_filter(self, step: Step, nodes: NodeColumns) -> Status | NodeNames:
        return self._plugins[step.name].pre_filter(nodes)

    def check_objects(self) -> None:
        """For plugins without PreFilter; called before the PreFilters run."""
        with_pre_filter = {step.name for step in self._profile.pre_filters}
        for results in self._plugins.values():
            if results.name not in with_pre_filter:
                results.check_objects()

    # Filter

    def update(self) -> None:
        """Brings filter results (and scores, once they are needed) up to date."""
        if self._by_node.is_current:
            self.update_usage()
            return
        by_node = self._by_node.stale_rows()
        if by_node is not None:
            self._update_columns()
        by_usage = self._by_usage.stale_rows()
        if by_node is None or by_usage is None:
            self._combine_all()
            self.rows_computed += self._cluster.nodes.high
        else:
            rows = _distinct((*by_node, *by_usage))
            self._combine(rows, with_node=True)
            self.rows_computed += len(rows)
        self._by_node.mark_current()
        self._by_usage.mark_current()
        self._check_scores()

    def update_usage(self) -> None:
        """The same if no Node object changed: only results that depend on the pods of a row are computed
        again."""
        usage = self.usage
        self.rows_computed += usage.update()
        if self.is_scored and self.normalized_by_usage:
            # They cannot be added up before they are normalized over the feasible rows.
            for step, results in self._normalized:
                if step.usage:
                    results.score_column.update()
        rows = self._by_usage.stale_rows()
        if rows is None:
            self._combine_all()
        elif rows:
            distinct = set(rows)
            if len(distinct) <= FEW_COMBINED:
                self._combine_few(distinct)
            else:
                self._combine(_distinct(distinct), with_node=False)
        self._by_usage.mark_current()
        if usage.has_wrong_scores:
            self._check_scores()

    def _combine_all(self) -> None:
        if not self._chosen.is_current:
            self._choose_plugins()
        self._update_columns()
        self._allocate(self._cluster.nodes.high)
        self._combine(None, with_node=True)
        self.recombined.change()

    def by_nodes_alone(self, rows: IdColumn) -> tuple[RejectingPlugins, ReasonIds]:
        """The rejections of plugins that depend only on the Node objects: they hold for every hypothesis."""
        self.update()
        return self._node_plugin.take(rows), self._node_reason.take(rows)

    def by_node_alone(self, row: int) -> tuple[int, int]:
        """The same for one row, if all rows are up to date."""
        return self._node_plugin_cell[row], self._node_reason_cell[row]

    def rejection(self, row: int) -> tuple[int, int]:
        """The plugin that rejects one row, or PASS, and the id of its reasons, if all rows are up to date."""
        return self._plugin_cell[row], self._reason_cell[row]

    def is_passing(self, row: int) -> bool:
        """Whether one row passes the cached filters, if all rows are up to date."""
        passing: bool = self._passing_cell[row]
        return passing

    def _update_columns(self) -> None:
        columns = [results.filter_column for _, results in self._filters if not results.depends_on.usage]
        if self.is_scored:
            columns += [results.score_column for step, results in self._plain if not step.usage]
            columns += [results.score_column for _, results in self._normalized]
        for column in columns:
            column.update()
        self.usage.update()

    def _choose_plugins(self) -> None:
        """Which plugins take part, after their PreFilters have run."""
        self.evaluation_counters.clear()
        self.skipped = frozenset(name for name, results in self._plugins.items() if results.skips_filter)
        self._filters = tuple(
            (step.index, self._plugins[step.name])
            for step in self._profile.filters
            if step.cached and not self._plugins[step.name].skips_filter
        )
        self.is_scored = False
        self._use(())
        self._chosen.mark_current()

    def _use(self, scorers: Scorers) -> None:
        """From now on these scores of plugins that depend on usage are needed, besides their filters."""
        filters = tuple((index, results) for index, results in self._filters if results.depends_on.usage)
        self.usage = usage = self._share(filters, scorers)
        changes = self._cluster.changes
        self._by_usage = changes.freshness((usage.recombined,), (usage.rejections,))

    def _combine(self, rows: IdColumn | None, *, with_node: bool) -> None:
        """Combines some rows (None: all) with arrays."""
        where: Any = slice(None) if rows is None else rows
        count = self._cluster.nodes.high if rows is None else len(rows)
        if with_node:
            by_node = [(i, results) for i, results in self._filters if not results.depends_on.usage]
            self._node_plugin[where], self._node_reason[where] = first_rejecting(by_node, where, count)
        plugin, reason = self._node_plugin[where], self._node_reason[where]
        by_usage = self.usage.rejecting_plugin[where]
        earlier = by_usage < plugin
        plugin = np.where(earlier, by_usage, plugin)
        reason = np.where(earlier, self.usage.reason_id[where], reason)
        self.rejecting_plugin[where], self.reason_id[where] = plugin, reason
        passing = (plugin == PASS) & self._cluster.nodes.exists.read[where]
        if rows is not None:
            for row in rows[passing != self.passing[where]].tolist():
                self.passing_rows.record(row)
        self.passing[where] = passing
        if self.is_scored and with_node:
            self._add_up(where, passing)

    def _combine_few(self, rows: Collection[int]) -> None:
        """The same with plain numbers, if no Node object changed."""
        usage = self.usage
        for row in rows:
            plugin, reason = self._node_plugin_cell[row], self._node_reason_cell[row]
            if usage.plugin_cell[row] < plugin:
                plugin, reason = usage.plugin_cell[row], usage.reason_cell[row]
            self._plugin_cell[row], self._reason_cell[row] = plugin, reason
            passing = plugin == PASS and self._cluster.nodes.exists.cell[row]
            if passing != self._passing_cell[row]:
                self._passing_cell[row] = passing
                self.passing_rows.record(row)

    # Score

    def prepare_scores(self) -> None:
        """Computes the cached scores of all rows; from now on `update` keeps them up to date."""
        if self.is_scored:
            return
        self.evaluation_counters.clear()
        view = NodeColumns(self._cluster)
        with_pre_score = {step.name for step in self._profile.pre_scores}
        active = [
            (step, self._plugins[step.name])
            for step in self._profile.scores
            if step.cached and self._plugins[step.name].has_score(view, step.name in with_pre_score)
        ]
        self._plain = tuple((step, results) for step, results in active if step.normalize is None)
        self._normalized = tuple((step, results) for step, results in active if step.normalize is not None)
        self.normalized_by_usage = any(step.usage for step, _ in self._normalized)
        self._use(tuple((step, results) for step, results in self._plain if step.usage))
        self.is_scored = True
        try:
            self._update_columns()
            self._by_usage.mark_current()
            self._add_up(slice(None), self.passing)
            self._check_scores()
        except BaseException:
            self.is_scored = False
            raise

    def _add_up(self, where: Any, passing: NDArray[np.bool_]) -> None:
        """Adds up the scores that depend on the Node objects alone."""
        self._node_total[where] = 0
        for step, results in self._plain:
            if not step.usage:
                scores = results.score_column.values[where]
                if is_out_of_range(scores):
                    calls.check_range(step, scores[passing])
                self._node_total[where] += step.weight * scores
        self.scores_changed.change()

    def _check_scores(self) -> None:
        """Raises AttemptError if a score of a (feasible) row is out of range."""
        if self.is_scored and self.usage.has_wrong_scores:
            for step, results in self._plain:
                calls.check_range(step, results.score_column.values[self.passing])

    def totals(self, rows: IdColumn) -> IntColumn:
        """The weighted sum of those cached scores of (feasible) rows that need no normalizing.

        For one row it is the sum of `node_total_cell` and `usage.total_cell`.
        """
        return self._node_total.take(rows) + self.usage.total.take(rows)

    def normalized(self, pod: Pod, rows: IdColumn) -> IntColumn | None:
        """The weighted sum of the other cached scores, normalized over these rows. None: no difference.

        Scores that are equal for all rows stay equal, and are omitted.
        """
        varying = [
            (step, results) for step, results in self._normalized if not results.score_column.is_uniform
        ]
        if not varying:
            return None
        view, total = NodeColumns(self._cluster, rows), np.zeros(len(rows), dtype=np.int64)
        for step, results in varying:
            raw = results.score_column.values.take(rows)
            total += step.weight * self._caller.calls.normalized(step, results.state, pod, view, raw)
        return total


class CachedSignature:
    """What is cached for pods of one signature, besides the results of cached plugins.

    `kinds` are those that cached plugins depend on and that do not count as a change of `objects`.
    """

    def __init__(
        self, cluster: Cluster, kinds: Sequence[type[Object]], shared: SignatureMemory | None
    ) -> None:
        self.results: SignatureResults | None = None
        """None if pods of the signature may differ in what cached plugins depend on."""
        self.fragments: Signature | None = None
        """The fragments of the last pod, if pods may differ in them."""
        self.memory = SignatureMemory(shared)
        """What uncached plugins remember."""
        self.skipped = SkippedPlugins(cluster)
        self.feasible: Feasible | None = None
        """The rows that pass, if uncached plugins reject some."""
        self.rejected: RowMask | None = None
        """The rows that uncached plugins and nominated pods rejected in the last search, if they had to be
        filtered."""
        changes = cluster.changes
        topics = (changes.nodes, changes.nominations, changes.size, changes.order, changes.topology)
        others = (changes.images, changes.terms, changes.objects, *changes.kinds(kinds))
        self.settled = changes.freshness((*topics, *others))
        """Current while nothing but the pods on the nodes has changed since the last complete search, with
        `settled_results`: every cached PreFilter has run in it, and all Node objects were evaluated."""
        self.settled_results: SignatureResults | None = None
        self.last_used = 0


class SignatureCache:
    """The signatures of one profile."""

    def __init__(self, profile: Profile, cluster: Cluster, caller: Caller) -> None:
        self._profile = profile
        self._cluster = cluster
        self._caller = caller
        self._plugins = ResultCache(profile.all_plugins(), cluster, caller)
        self._signatures: dict[bytes, CachedSignature] = {}
        self._memory = SignatureMemory()
        """What uncached plugins remember for pods of all signatures."""
        self._results: dict[Signature, SignatureResults] = {}
        self._kinds = self._plugins.per_pod_kinds
        self._usage: WeakValueDictionary[tuple[Filters, Scorers], UsageResults] = WeakValueDictionary()
        self._uses = 0
        self._rows_computed = 0

    @property
    def rows_computed(self) -> int:
        """How many rows were brought up to date, over all attempts."""
        return self._rows_computed + sum(results.rows_computed for results in self._results.values())

    def of(self, pod: Pod, info: PodInfo) -> tuple[CachedSignature, SignatureResults]:
        """What is cached for the pod."""
        self._uses += 1
        found = self._signatures.get(info.key)
        if found is None:
            if len(self._signatures) >= self._max():
                self._drop_signatures()
            found = self._signatures[info.key] = CachedSignature(self._cluster, self._kinds, self._memory)
        if pod.spec.node_name:
            results = self._results_for(pod, self._plugins.signature(pod))
        elif self._plugins.per_pod:
            # Pods of one signature may differ in what these plugins depend on.
            signature = self._plugins.signature(pod, found.fragments)
            found.fragments = signature
            results = self._results_for(pod, signature)
        elif found.results is None:
            results = found.results = self._results_for(pod, self._plugins.signature(pod))
        else:
            results = found.results
        found.last_used = results.last_used = self._uses
        return found, results

    def uncached(self, pod: Pod) -> tuple[CachedSignature, SignatureResults]:
        """New, empty values for the pod, which are not cached."""
        plugins = self._plugins.uncached(pod)
        return CachedSignature(self._cluster, self._kinds, None), self._make(plugins)

    def _results_for(self, pod: Pod, signature: Signature) -> SignatureResults:
        found = self._results.get(signature)
        if found is None:
            if len(self._results) >= self._max():
                self._drop_results()
            plugins = self._plugins.of(pod, signature)
            found = self._results[signature] = self._make(plugins)
        return found

    def _make(self, plugins: Mapping[str, PluginResults]) -> SignatureResults:
        return SignatureResults(self._profile, self._cluster, plugins, self._caller, self._share)

    def _share(self, filters: Filters, scorers: Scorers) -> UsageResults:
        """The combined results of these plugins: the same for all signatures that have them."""
        found = self._usage.get((filters, scorers))
        if found is None:
            found = self._usage[filters, scorers] = UsageResults(self._cluster, filters, scorers)
        return found

    def _max(self) -> int:
        return max(MIN_SIGNATURES, MAX_ROWS // max(self._cluster.nodes.high, 1))

    def _drop_signatures(self) -> None:
        oldest = sorted(self._signatures, key=lambda key: self._signatures[key].last_used)
        for key in oldest[: (len(oldest) + 1) // 2]:
            del self._signatures[key]

    def _drop_results(self) -> None:
        oldest = sorted(self._results, key=lambda signature: self._results[signature].last_used)
        for signature in oldest[: (len(oldest) + 1) // 2]:
            self._rows_computed += self._results.pop(signature).rows_computed
        left = set(self._results.values())
        self._signatures = {
            key: signature for key, signature in self._signatures.items() if signature.results in left
        }
        self._plugins.drop_all_but(plugin for results in left for plugin in results.plugin_results())


def _distinct(rows: Iterable[int]) -> IdColumn:
    return np.array(sorted(set(rows)), dtype=np.intp)
