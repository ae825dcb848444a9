"""The results of one plugin for pods that it cannot distinguish, row by row.

A plugin that declares its `Dependencies` runs once for all pods with equal values of those fields. Pods with
different signatures often share: fifty applications of five sizes have five columns of NodeResourcesFit, not
fifty.

`PluginResults` runs PreFilter again when an object it depends on changed; `changed` is the topic of its
answer. A `PluginColumn` (reasons of Filter, or raw scores) depends on that topic and on the rows: of `nodes`,
and of `usage` for plugins that depend on usage. Elementwise plugins compute a few rows with plain numbers: by
their shortcut for single rows, or else with `OneNode`.

A placement changes only the results that depend on usage, and many signatures have them in common: fifty
applications of five sizes have five `UsageResults`. So a row that changed is combined five times, not fifty
times; for each signature there only remain the rows that are now rejected, or no longer are
(`signature_results.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.clock import Changes, Freshness, Log, Topic
from bayplan.framework.outcome import PASS, ReasonIds, Reasons, RejectingPlugins
from bayplan.framework.plugin_api import MAX_SCORE, Dependencies, NodeNames, Plugin, PreScorePlugin
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status, plugin_exceptions
from bayplan.runtime import calls
from bayplan.runtime.calls import Caller
from bayplan.runtime.profile import Step, make_step
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn, cells
from bayplan.state.pods import PodSigner
from bayplan.state.view import IntColumn, NodeColumns, OneNode

Signature = tuple[bytes, ...]
"""The fragments of all cached plugins."""

FEW_ROWS: Final = 12
"""Up to this many rows plain numbers are faster than arrays."""
FEW_ROWS_BY_SHORTCUT: Final = 40
"""The same for plugins with a shortcut for single rows."""


class PluginColumn:
    """One number for each row, brought up to date when it is read.

    Args:
        compute: computes rows with arrays.
        compute_one: computes one row with plain numbers, if the plugin is elementwise.
        make_shortcut: the plugin's function for single rows, if it has one (`RowFilterPlugin`,
            `RowScorePlugin`). If it returns True, `compute_one` is called.
        point: Filter or Score.
    """

    __slots__ = (
        "_compute",
        "_compute_one",
        "_freshness",
        "_make_shortcut",
        "_point",
        "_results",
        "_shortcut",
        "_uniform",
        "cell",
        "usage",
        "values",
    )

    def __init__(
        self,
        results: PluginResults,
        freshness: Freshness,
        compute: Callable[[NodeColumns], NDArray[np.int64]],
        compute_one: Callable[[OneNode], int],
        make_shortcut: Callable[[NodeColumns], Callable[[int], int] | None],
        point: Point,
    ) -> None:
        self._results = results
        self._freshness = freshness
        self._compute = compute
        self._compute_one = compute_one
        self._make_shortcut = make_shortcut
        self._point = point
        self._shortcut: Callable[[int], int] | None = None
        self.usage = results.depends_on.usage
        """Whether it depends on the pods of the row, or only on the Node object."""
        self._uniform: bool | None = None
        self.values: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.cell = cells(self.values)

    @property
    def is_uniform(self) -> bool:
        """Whether all rows have the same number."""
        if self._uniform is None:
            self._uniform = not len(self.values) or bool((self.values == self.values[0]).all())
        return self._uniform

    def update(self) -> None:
        """Computes the rows that are stale."""
        rows = self._freshness.stale_rows()
        if rows is None:
            view = NodeColumns(self._results.cluster)
            self.values = self._compute(view).copy()
            self.cell = cells(self.values)
            self._uniform = None
            self._shortcut = self._make_shortcut(view)
        elif rows:
            self.compute_rows(rows if len(rows) == 1 else set(rows))
        self._freshness.mark_current()

    def compute_rows(self, rows: Collection[int]) -> None:
        """Computes these rows. The caller knows that no others are stale: what it combines is no newer."""
        self._uniform = None
        shortcut, results, cell = self._shortcut, self._results, self.cell
        if shortcut is None or len(rows) > FEW_ROWS_BY_SHORTCUT:
            self._compute_without_shortcut(rows)
            return
        if results.caller.calls is not calls.PLAIN:
            shortcut = results.caller.calls.shortcut(results.step, self._point, shortcut)
        for row in rows:
            try:
                found = shortcut(row)
                if found is not True:
                    cell[row] = found
                    continue
            except plugin_exceptions() as error:
                raise calls.plugin_error(results.step, self._point, error) from error
            cell[row] = self._compute_one(OneNode(results.cluster, row))

    def _compute_without_shortcut(self, rows: Collection[int]) -> None:
        cluster = self._results.cluster
        if len(rows) <= FEW_ROWS and self._results.is_elementwise:
            for row in rows:
                self.cell[row] = self._compute_one(OneNode(cluster, row))
        else:
            where = np.fromiter(rows, dtype=np.intp, count=len(rows))
            self.values[where] = self._compute(NodeColumns(cluster, where))


class PluginResults:
    """One plugin's results for all pods that it cannot distinguish. `pod` is any of them."""

    def __init__(
        self, step: Step, depends_on: Dependencies, pod: Pod, cluster: Cluster, caller: Caller
    ) -> None:
        self.depends_on = depends_on
        self.caller = caller
        self.step = step
        self.name = step.name
        self.state = CycleState()
        self.reasons = Reasons(step.name)
        self.skips_filter = False
        """Whether PreFilter returned SKIP."""
        self._pod = pod
        self.cluster = cluster
        changes = cluster.changes
        self.changed = Topic(changes.clock)
        """PreFilter's answer, or objects that Filter and Score depend on, have changed."""
        self._answer: Status | NodeNames | None = None
        self._freshness = changes.freshness(changes.kinds(depends_on.kinds))
        for kind in depends_on.node_kinds:
            cluster.objects.of(kind).belongs_to_nodes(cluster.nodes.row_of)
        self._has_score: bool | None = None
        topics = (changes.size, self.changed, *((changes.images,) if depends_on.images else ()))
        logs = (changes.nodes, changes.usage) if depends_on.usage else (changes.nodes,)

        self.is_elementwise = step.plugin.elementwise
        self.filter_column = PluginColumn(
            self,
            changes.freshness(topics, logs),
            self._filter,
            self._filter_one,
            lambda view: calls.row_shortcut(step, Point.FILTER, self.state, pod, view),
            Point.FILTER,
        )
        """The id of the reasons for which each row is rejected; 0 if it is not."""
        self.score_column = PluginColumn(
            self,
            changes.freshness(topics, logs),
            self._score,
            self._score_one,
            lambda view: calls.row_shortcut(step, Point.SCORE, self.state, pod, view),
            Point.SCORE,
        )
        """The raw scores."""

    def pre_filter(self, nodes: NodeColumns) -> Status | NodeNames:
        """PreFilter's answer: the last one, unless objects that it depends on have changed."""
        if self._answer is not None and self._freshness.is_current:
            return self._answer
        before = self._answer
        self._answer = None
        answer = self.caller.calls.pre_filter(self.step, self.state, self._pod, nodes)
        self.skips_filter = isinstance(answer, Status) and answer.code is Code.SKIP
        if before is None or not self.skips_filter or before != answer or self._may_score(nodes):
            self._mark_changed()
        self._answer = answer
        self._freshness.mark_current()
        return answer

    def check_objects(self) -> None:
        """For a plugin without PreFilter: everything is stale once objects it depends on have changed."""
        if not self._freshness.is_current:
            self._mark_changed()
            self._freshness.mark_current()

    def _mark_changed(self) -> None:
        self.changed.change()
        self._has_score = None

    def _may_score(self, nodes: NodeColumns) -> bool:
        """Whether there are scores, which may have changed with the objects even if Filter is skipped."""
        if self._has_score is False and isinstance(self.step.plugin, PreScorePlugin):
            pre_score = self.caller.calls.pre_score
            return pre_score(self.step, self.state, self._pod, nodes).is_success
        return bool(self._has_score)

    def has_score(self, nodes: NodeColumns, pre_scores: bool) -> bool:
        """Whether the plugin scores these pods: its PreScore decides."""
        if self._has_score is None:
            self._has_score = not pre_scores or (
                self.caller.calls.pre_score(self.step, self.state, self._pod, nodes).is_success
            )
        return self._has_score

    def _filter(self, view: NodeColumns) -> NDArray[np.int64]:
        existing, shown = self._shown(view)
        found = self.caller.calls.filter_rows(self.step, self.state, self._pod, shown, self.reasons)
        if found is None:
            return np.zeros(len(view), dtype=np.int64)
        return found.reason_ids() if existing is None else found.among(existing, len(view)).reason_ids()

    def _shown(self, view: NodeColumns) -> tuple[IdColumn | None, NodeColumns]:
        """The rows that a plugin is called with. Rows without a node are not passed to a `NodePlugin`."""
        if not self.step.one_node_at_a_time or view.exists.all():
            return None, view
        existing = view.exists.nonzero()[0]
        return existing, NodeColumns(self.cluster, view.rows.take(existing))

    def _filter_one(self, one: OneNode) -> int:
        return self.caller.calls.filter_one(self.step, self.state, self._pod, one, self.reasons)

    def _score(self, view: NodeColumns) -> NDArray[np.int64]:
        existing, shown = self._shown(view)
        scores = self.caller.calls.score_rows(self.step, self.state, self._pod, shown)
        if existing is None:
            return scores
        all_scores = np.zeros(len(view), dtype=np.int64)
        all_scores[existing] = scores
        return all_scores

    def _score_one(self, one: OneNode) -> int:
        return self.caller.calls.score_one(self.step, self.state, self._pod, one)


class EvaluationCounter(Protocol):
    """Counts the evaluations of a set of plugins."""

    value: float


EvaluatedPlugins = tuple[frozenset[str], frozenset[str] | None]
"""Which filters and which scores were skipped; None if nothing was scored."""


class SkippedPlugins:
    """The plugins that returned SKIP_FOR_SIGNATURE: they do not run again before objects or terms change."""

    __slots__ = ("_freshness", "filters", "scores")

    def __init__(self, cluster: Cluster) -> None:
        changes = cluster.changes
        self._freshness = changes.freshness((changes.objects, changes.terms))
        self.filters: frozenset[str] = frozenset()
        self.scores: frozenset[str] = frozenset()

    def update(self) -> None:
        if not self._freshness.is_current:
            self.filters = self.scores = frozenset()
            self._freshness.mark_current()


class ResultCache:
    """The results of all cached plugins of one profile, by plugin and signature fragment."""

    def __init__(self, plugins: Iterable[Plugin], cluster: Cluster, caller: Caller) -> None:
        self._cluster = cluster
        self._caller = caller
        self._plugins = tuple(
            (make_step(0, plugin), plugin.depends_on) for plugin in plugins if plugin.depends_on is not None
        )
        """Where a plugin stands among the others does not matter here."""
        self._signers = tuple(
            PodSigner(depends_on.pod, depends_on.functions) for _, depends_on in self._plugins
        )
        self._per_pod = tuple(index for index, signer in enumerate(self._signers) if signer.per_pod)
        self._results: dict[tuple[str, bytes], PluginResults] = {}
        self.per_pod = bool(self._per_pod)
        """Whether pods with one signature may differ in what these plugins depend on."""
        kinds = dict.fromkeys(kind for _, depends_on in self._plugins for kind in depends_on.kinds)
        self.per_pod_kinds = tuple(kind for kind in kinds if kind.is_per_pod)
        """Kinds that these plugins depend on and that belong to single pods, such as ResourceClaim."""

    def signature(self, pod: Pod, like: Signature | None = None) -> Signature:
        """The fragments of all plugins: equal for pods that none of them can distinguish.

        `like` are those of a pod of the same template: only fragments that may differ are then computed.
        """
        if like is None:
            return tuple(self._fragment(index, pod) for index in range(len(self._signers)))
        fragments = list(like)
        for index in self._per_pod:
            fragments[index] = self._fragment(index, pod)
        return tuple(fragments)

    def _fragment(self, index: int, pod: Pod) -> bytes:
        try:
            return self._signers[index](pod)
        except plugin_exceptions() as error:
            raise calls.dependency_error(self._plugins[index][0].plugin, error) from error

    def of(self, pod: Pod, signature: Signature) -> dict[str, PluginResults]:
        """The results for the pod, by plugin."""
        found = {}
        for (step, depends_on), fragment in zip(self._plugins, signature, strict=True):
            key = (step.name, fragment)
            if key not in self._results:
                self._results[key] = PluginResults(step, depends_on, pod, self._cluster, self._caller)
            found[step.name] = self._results[key]
        return found

    def drop_all_but(self, used: Iterable[PluginResults]) -> None:
        """Drops the results that no signature needs any more."""
        left = set(map(id, used))
        self._results = {key: results for key, results in self._results.items() if id(results) in left}

    def uncached(self, pod: Pod) -> dict[str, PluginResults]:
        """Results for the pod that are not cached."""
        return {
            step.name: PluginResults(step, depends_on, pod, self._cluster, self._caller)
            for step, depends_on in self._plugins
        }


FEW_COMBINED: Final = 96
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
            rows = rows if len(rows) == 1 else set(rows)
            for column in self._columns:
                column.compute_rows(rows)
            if len(rows) <= FEW_COMBINED:
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
    """Whether any score is outside 0–100."""
    return bool(scores.min(initial=0) < 0 or scores.max(initial=0) > MAX_SCORE)
