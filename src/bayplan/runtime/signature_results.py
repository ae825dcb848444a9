"""Combined filter results and total scores for one class of identical pods.

`SignatureResults` combines the results of the cached plugins (`plugin_results.py`) and is brought up to date
as theirs are: after one placement one row is combined again. Results that depend on the Node objects alone
are stored separately (`_node_…`), because a placement does not change them. `feasible.py` finds the best row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework.node_statuses import PASS, ReasonIds, Reasons, RejectingPlugins
from bayplan.framework.plugin_api import MAX_SCORE, NodeNames
from bayplan.framework.state import CycleState, SignatureMemory
from bayplan.framework.status import Status
from bayplan.runtime import calls
from bayplan.runtime.plugin_results import PluginColumn, PluginResults
from bayplan.runtime.profile import Profile, Step
from bayplan.runtime.timing import Caller
from bayplan.snapshot.changes import Log, Topic
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.table import cells
from bayplan.snapshot.view import IntColumn, NodeColumns

if TYPE_CHECKING:
    from bayplan.runtime.feasible import Feasible

FEW_ROWS: Final = 96
"""Up to this many rows are combined one by one."""

Filters = list[tuple[int, PluginResults]]
"""Cached plugins whose Filter runs, each with its index."""

Scorers = list[tuple[Step, PluginResults]]


class EvaluationCounter(Protocol):
    """Counts the evaluations of a set of plugins."""

    value: float


EvaluatedPlugins = tuple[frozenset[str], frozenset[str] | None]
"""Which filters and which scores were skipped; None if nothing was scored."""


class SignatureResults:
    """Filter results and scores of all rows for one signature."""

    def __init__(
        self, profile: Profile, cluster: Cluster, plugins: Mapping[str, PluginResults], caller: Caller
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
        dependencies = [results.depends_on for results in plugins.values()]
        self.topics: tuple[Topic, ...] = (
            changes.size,
            *(results.changed for results in plugins.values() if results.depends_on.kinds),
            *((changes.images,) if any(depends_on.images for depends_on in dependencies) else ()),
        )
        """The topics after which all rows are stale."""
        kinds = dict.fromkeys(kind for depends_on in dependencies for kind in depends_on.kinds)
        self._pre_filtered = changes.freshness(changes.kinds(tuple(kinds)))
        self._chosen = changes.freshness([results.changed for results in plugins.values()])
        self._by_node = changes.freshness(self.topics, (changes.nodes,))
        self._by_usage = changes.freshness((), (changes.usage,))
        self.recombined = Topic(changes.clock)
        """All rows were combined again."""
        self.passing_rows: Log[int] = Log(changes.clock)
        """Rows that began to pass, or no longer do."""
        self.scores_changed = Topic(changes.clock)
        """Scores have changed for another reason than pods that were added or removed."""
        self._scored = False
        self._usage_columns: list[PluginColumn] = []
        self._filters: Filters = []
        self._usage_filters: Filters = []
        self._plain: Scorers = []
        self._usage_plain: Scorers = []
        self._normalized: Scorers = []
        self.normalized_by_usage = False
        self._allocate(0)

    def _allocate(self, rows: int) -> None:
        self.rejecting_plugin: RejectingPlugins = np.full(rows, PASS, dtype=np.int8)
        self.reason_id: ReasonIds = np.zeros(rows, dtype=np.int64)
        self.passing: NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)
        self._node_plugin: RejectingPlugins = np.full(rows, PASS, dtype=np.int8)
        self._node_reason: ReasonIds = np.zeros(rows, dtype=np.int64)
        self._total: IntColumn = np.zeros(rows, dtype=np.int64)
        self._node_total: IntColumn = np.zeros(rows, dtype=np.int64)
        self._plugin_cell, self._reason_cell = cells(self.rejecting_plugin), cells(self.reason_id)
        self._passing_cell = cells(self.passing)
        self._node_plugin_cell, self._node_reason_cell = cells(self._node_plugin), cells(self._node_reason)
        self._total_cell, self._node_total_cell = cells(self._total), cells(self._node_total)

    @property
    def may_have_errors(self) -> bool:
        """Whether a cached plugin has ever returned an error for some row."""
        return any(results.reasons.has_errors for _, results in self._filters)

    @property
    def usage_errors(self) -> bool:
        """The same for the plugins that depend on the pods of the row."""
        return any([results.reasons.has_errors for _, results in self._usage_filters])  # noqa: C419  # faster

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
        if by_node is None:
            self._combine_all()
        else:
            by_usage = self._by_usage.stale_rows()
            self._update_columns()
            if by_usage is None:
                self._combine_all()
            else:
                self._combine(_distinct((*by_node, *by_usage)), with_node=True)
        self._by_node.mark_current()
        self._by_usage.mark_current()

    def update_usage(self) -> None:
        """The same if no Node object changed: only results that depend on the pods of a row are computed
        again."""
        rows = self._by_usage.stale_rows()
        if rows is None:
            self._combine_all()
        elif len(rows) == 1:
            # The usual case: one pod was added or removed.
            row, since = rows[0], self._by_usage.time
            for column in self._usage_columns:
                column.update_row(since, row)
            self._combine_few(rows)
        elif rows:
            for column in self._usage_columns:
                column.update()
            distinct = set(rows)
            if len(distinct) <= FEW_ROWS:
                self._combine_few(distinct)
            else:
                self._combine(_distinct(distinct), with_node=False)
        self._by_usage.mark_current()

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

    def _update_columns(self) -> None:
        columns = [results.filter_column for _, results in self._filters]
        if self._scored:
            columns += [results.score_column for _, results in (*self._plain, *self._normalized)]
        for column in columns:
            column.update()
        self._usage_columns = [column for column in columns if column.usage]

    def _choose_plugins(self) -> None:
        """Which plugins take part, after their PreFilters have run."""
        self.evaluation_counters.clear()
        self._filters = [
            (step.index, self._plugins[step.name])
            for step in self._profile.filters
            if step.cached and not self._plugins[step.name].skips_filter
        ]
        self._usage_filters = [(i, results) for i, results in self._filters if results.filter_column.usage]
        self._scored = False
        self._chosen.mark_current()

    def _combine(self, rows: IdColumn | None, *, with_node: bool) -> None:
        """Combines some rows (None: all) with arrays."""
        where: Any = slice(None) if rows is None else rows
        count = self._cluster.nodes.high if rows is None else len(rows)
        self.rows_computed += count
        if with_node:
            by_node = [(i, results) for i, results in self._filters if not results.filter_column.usage]
            self._node_plugin[where], self._node_reason[where] = _first_rejecting(by_node, where, count)
        plugin, reason = self._node_plugin[where], self._node_reason[where]
        if self._usage_filters:
            by_usage, usage_reason = _first_rejecting(self._usage_filters, where, count)
            earlier = by_usage < plugin
            plugin, reason = np.where(earlier, by_usage, plugin), np.where(earlier, usage_reason, reason)
        self.rejecting_plugin[where], self.reason_id[where] = plugin, reason
        passing = (plugin == PASS) & self._cluster.nodes.exists.read[where]
        if rows is not None:
            for row in rows[passing != self.passing[where]].tolist():
                self.passing_rows.record(row)
        self.passing[where] = passing
        if self._scored:
            self._add_up(where, passing, with_node=with_node)

    def _combine_few(self, rows: Collection[int]) -> None:
        """Combines some rows with plain numbers."""
        self.rows_computed += len(rows)
        filters = [(index, results.filter_column.cell) for index, results in self._usage_filters]
        scores = [(step, results.score_column) for step, results in self._usage_plain] if self._scored else []
        node_plugin, node_reason, node_total = (
            self._node_plugin_cell,
            self._node_reason_cell,
            self._node_total_cell,
        )
        exists, was_passing = self._cluster.nodes.exists.cell, self._passing_cell
        for row in rows:
            plugin, reason = node_plugin[row], node_reason[row]
            for index, reason_ids in filters:
                against = reason_ids[row]
                if against and index < plugin:
                    plugin, reason = index, against
            self._plugin_cell[row] = plugin
            self._reason_cell[row] = reason
            passing = plugin == PASS and exists[row]
            if passing != was_passing[row]:
                was_passing[row] = passing
                self.passing_rows.record(row)
            if not passing or not self._scored:
                continue
            total = node_total[row]
            for step, column in scores:
                score = column.cell[row]
                if not 0 <= score <= MAX_SCORE:
                    calls.check_range(step, column.values[row : row + 1])
                total += step.weight * score
            self._total_cell[row] = total

    # Score

    def prepare_scores(self) -> None:
        """Computes the cached scores of all rows; from now on `update` keeps them up to date."""
        if self._scored:
            return
        self.evaluation_counters.clear()
        view = NodeColumns(self._cluster)
        with_pre_score = {step.name for step in self._profile.pre_scores}
        active = [
            (step, self._plugins[step.name])
            for step in self._profile.scores
            if step.cached and self._plugins[step.name].has_score(view, step.name in with_pre_score)
        ]
        self._plain = [(step, results) for step, results in active if not step.normalizes]
        self._usage_plain = [(step, results) for step, results in self._plain if step.usage]
        self._normalized = [(step, results) for step, results in active if step.normalizes]
        self.normalized_by_usage = any(step.usage for step, _ in self._normalized)
        self._scored = True
        try:
            self._update_columns()
            self._add_up(slice(None), self.passing, with_node=True)
        except BaseException:
            self._scored = False
            raise

    def _add_up(self, where: Any, passing: NDArray[np.bool_], *, with_node: bool) -> None:
        if with_node:
            self._node_total[where] = 0
            for step, results in self._plain:
                if not step.usage:
                    self._node_total[where] += _weighted(step, results.score_column.values[where], passing)
        total = self._node_total[where].copy()
        for step, results in self._usage_plain:
            total += _weighted(step, results.score_column.values[where], passing)
        self._total[where] = total
        if with_node:
            self.scores_changed.change()

    def total_of(self, row: int) -> int:
        """The weighted sum of those cached scores of a (feasible) row that need no normalizing."""
        total: int = self._total_cell[row]
        return total

    def totals(self, rows: IdColumn) -> IntColumn:
        """The same for several rows."""
        return self._total.take(rows)

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


def _distinct(rows: Iterable[int]) -> IdColumn:
    return np.array(sorted(set(rows)), dtype=np.intp)


def _first_rejecting(
    filters: Sequence[tuple[int, PluginResults]], where: Any, count: int
) -> tuple[RejectingPlugins, ReasonIds]:
    """The first plugin that rejects each row, and its reasons."""
    plugin = np.full(count, PASS, dtype=np.int8)
    reason = np.zeros(count, dtype=np.int64)
    for index, results in reversed(filters):
        against = results.filter_column.values[where]
        rejected = against != 0
        if np.count_nonzero(rejected):
            np.copyto(plugin, index, where=rejected)
            np.copyto(reason, against, where=rejected)
    return plugin, reason


def _weighted(step: Step, scores: IntColumn, passing: NDArray[np.bool_]) -> IntColumn:
    if scores.min(initial=0) < 0 or scores.max(initial=0) > MAX_SCORE:
        calls.check_range(step, scores[passing])
    return scores if step.weight == 1 else step.weight * scores
