"""Combined results of the cached plugins that depend on the pods of a row.

A placement changes only these results, and many signatures have them in common: fifty applications of five
sizes have five `UsageResults`. So a row that changed is combined five times, not fifty times; for each
signature there only remain the rows that are now rejected, or no longer are (`SignatureResults`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np

from bayplan.clock import Changes, Log, Topic
from bayplan.framework.node_statuses import PASS, ReasonIds, RejectingPlugins
from bayplan.framework.plugin_api import MAX_SCORE
from bayplan.runtime.plugin_results import PluginColumn, PluginResults
from bayplan.runtime.profile import Step
from bayplan.state.cluster import Cluster
from bayplan.state.interning import IdColumn
from bayplan.state.table import cells
from bayplan.state.view import IntColumn

FEW_ROWS: Final = 96
"""Up to this many rows are combined one by one."""

Filters = tuple[tuple[int, PluginResults], ...]
"""Cached plugins whose Filter runs, each with its index, in order."""

Scorers = tuple[tuple[Step, PluginResults], ...]


class UsageResults:
    """For each row the first of some filters that rejects it, and the weighted sum of some scores.

    `rejecting_plugin` and `reason_id` are as in `NodeStatuses`.
    """

    def __init__(self, cluster: Cluster, filters: Filters, scorers: Scorers) -> None:
        self._cluster = cluster
        self._filters = filters
        self._scores: list[tuple[int, PluginColumn]] = [
            (step.weight, results.score_column) for step, results in scorers
        ]
        self._columns = [results.filter_column for _, results in filters]
        self._columns += [column for _, column in self._scores]
        changes = cluster.changes
        plugins = [results for _, results in (*filters, *scorers)]
        self._freshness = changes.freshness(stale_topics(changes, plugins), (changes.nodes, changes.usage))
        self.recombined = Topic(changes.clock)
        """All rows were combined again."""
        self.rejections: Log[int] = Log(changes.clock)
        """Rows that are rejected by another plugin than before, or for another reason."""
        self.has_wrong_scores = False
        """Whether a score of some row, feasible or not, is out of range."""
        self._allocate(0)

    def _allocate(self, rows: int) -> None:
        self.rejecting_plugin: RejectingPlugins = np.full(rows, PASS, dtype=np.int8)
        self.reason_id: ReasonIds = np.zeros(rows, dtype=np.int64)
        self.total: IntColumn = np.zeros(rows, dtype=np.int64)
        self.plugin_cell, self.reason_cell = cells(self.rejecting_plugin), cells(self.reason_id)
        self.total_cell = cells(self.total)

    @property
    def has_errors(self) -> bool:
        """Whether a filter has ever returned an error for some row."""
        return any([results.reasons.has_errors for _, results in self._filters])  # noqa: C419  # faster

    def update(self) -> int:
        """Brings all rows up to date. Returns how many were not."""
        rows: Collection[int] | None = self._freshness.stale_rows()
        if rows is None:
            for column in self._columns:
                column.update()
            self._allocate(self._cluster.nodes.high)
            self._combine(slice(None), len(self.total))
            self.recombined.change()
            rows = range(len(self.total))
        elif rows:
            rows, since = rows if len(rows) == 1 else set(rows), self._freshness.time
            for column in self._columns:
                column.update_rows(since, rows)
            if len(rows) <= FEW_ROWS:
                self._combine_few(rows)
            else:
                self._combine_some(np.fromiter(rows, dtype=np.intp, count=len(rows)))
        self._freshness.mark_current()
        return len(rows)

    def _combine_few(self, rows: Collection[int]) -> None:
        """Combines some rows with plain numbers."""
        plugin_cell, reason_cell, scores = self.plugin_cell, self.reason_cell, self._scores
        for row in rows:
            plugin, reason = PASS, 0
            for index, results in self._filters:
                reason = results.filter_column.cell[row]
                if reason:
                    plugin = index
                    break
            if reason != reason_cell[row] or plugin != plugin_cell[row]:
                plugin_cell[row], reason_cell[row] = plugin, reason
                self.rejections.record(row)
            total = 0
            for weight, column in scores:
                score = column.cell[row]
                if score < 0 or score > MAX_SCORE:
                    self.has_wrong_scores = True
                total += weight * score
            self.total_cell[row] = total

    def _combine_some(self, rows: IdColumn) -> None:
        """The same with arrays."""
        plugin, reason = self.rejecting_plugin.take(rows), self.reason_id.take(rows)
        self._combine(rows, len(rows))
        differs = (self.rejecting_plugin.take(rows) != plugin) | (self.reason_id.take(rows) != reason)
        for row in rows[differs].tolist():
            self.rejections.record(row)

    def _combine(self, where: Any, count: int) -> None:
        self.rejecting_plugin[where], self.reason_id[where] = first_rejecting(self._filters, where, count)
        total = np.zeros(count, dtype=np.int64)
        for weight, column in self._scores:
            scores = column.values[where]
            if is_out_of_range(scores):
                self.has_wrong_scores = True
            total += weight * scores
        self.total[where] = total


def stale_topics(changes: Changes, plugins: Iterable[PluginResults]) -> tuple[Topic, ...]:
    """The topics after which all rows of the results of these plugins are stale."""
    plugins = dict.fromkeys(plugins)
    return (
        changes.size,
        *(results.changed for results in plugins if results.depends_on.kinds),
        *((changes.images,) if any(results.depends_on.images for results in plugins) else ()),
    )


def first_rejecting(
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


def is_out_of_range(scores: IntColumn) -> bool:
    """Whether one of these scores is none."""
    return bool(scores.min(initial=0) < 0 or scores.max(initial=0) > MAX_SCORE)
