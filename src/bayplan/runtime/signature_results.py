"""Combined filter results and total scores for one class of identical pods.

`SignatureResults` combines the results of the cached plugins (`plugin_results.py`). Like theirs, its columns
follow the logs: after one placement one row is combined again. `feasible.py` finds the best row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework.node_statuses import PASS, Reasons, Who, Why
from bayplan.framework.plugin_api import MAX_SCORE, NodeNames
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status
from bayplan.runtime import calls
from bayplan.runtime.plugin_results import PluginColumn, PluginResults, distinct
from bayplan.runtime.profile import Profile, Step
from bayplan.runtime.timing import Caller
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.one_node import OneNode
from bayplan.snapshot.table import cells
from bayplan.snapshot.view import IntColumn, NodeColumns

if TYPE_CHECKING:
    from bayplan.runtime.feasible import Feasible

FEW_ROWS: Final = 32
"""Up to so many changed rows are put together one by one."""

Filters = list[tuple[int, PluginResults]]
"""Kept plugins with a say in filtering, each with its place."""

Scorers = list[tuple[Step, PluginResults]]


class SignatureResults:
    """NodeStatuses and scores of all rows for one signature."""

    def __init__(
        self, profile: Profile, cluster: Cluster, kept: Mapping[str, PluginResults], caller: Caller
    ) -> None:
        self._profile = profile
        self._caller = caller
        self._cluster = cluster
        self._kept = kept
        self.reasons = {
            step.index: kept[step.name].reasons if step.cached else Reasons(step.name)
            for step in profile.filters
        }
        self.rows_computed = 0
        """Rows that were brought up to date, over all attempts."""
        self.used = 0
        """When it was last asked for, by the clock of `SignatureCache`."""
        self.tallies: dict[Any, Any] = {}
        """A place for whoever counts who had a say; emptied when others have."""
        self.feasible: Feasible | None = None
        """Where nobody else has a say: the rows that pass."""
        self.feasible_version = 0
        """Grows when a row begins to pass, or no longer does."""
        self.scores_version = 0
        """Grows when scores change otherwise than by pods that came or went."""
        self._shared: dict[Any, Any] = {}
        self._shared_for: tuple[int, ...] = ()
        self._objects_version = -1
        self._asked_again = True
        self._generations: tuple[int, ...] = ()
        self._scored = False
        self._cursors = (0, 0)
        self._epochs = 0
        self._usage_epochs = 0
        self._usage_columns: list[PluginColumn] = []
        self._filters: Filters = []
        self._usage_filters: Filters = []
        self._plain: Scorers = []
        self._usage_plain: Scorers = []
        self._normal: Scorers = []
        self.normal_follows_usage = False
        self._allocate(0)

    def _allocate(self, rows: int) -> None:
        self.who: Who = np.full(rows, PASS, dtype=np.int8)
        self.why: Why = np.zeros(rows, dtype=np.int64)
        self.ok: NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)
        self._static_who: Who = np.full(rows, PASS, dtype=np.int8)
        self._static_why: Why = np.zeros(rows, dtype=np.int64)
        self._total: IntColumn = np.zeros(rows, dtype=np.int64)
        self._static_total: IntColumn = np.zeros(rows, dtype=np.int64)
        self._who_cell, self._why_cell = cells(self.who), cells(self.why)
        self._ok_cell = cells(self.ok)
        self._static_who_cell, self._static_why_cell = cells(self._static_who), cells(self._static_why)
        self._total_cell, self._static_total_cell = cells(self._total), cells(self._static_total)
        self.scores_version += 1

    @property
    def may_have_errors(self) -> bool:
        """Whether a kept plugin has ever answered that it broke on some row."""
        return any(kept.reasons.has_errors for _, kept in self._filters)

    @property
    def shared(self) -> dict[Any, Any]:
        """A place for what others keep for pods of this signature, while plugins read the same objects."""
        generations = self.generations()
        if generations != self._shared_for:
            self._shared.clear()
            self._shared_for = generations
        return self._shared

    def state_of(self, step: Step) -> CycleState:
        """What a kept plugin remembers for these pods."""
        return self._kept[step.name].state

    def skips(self, plugin: str) -> bool:
        """Whether a kept plugin's Filter is left out for these pods."""
        return plugin in self._kept and self._kept[plugin].skips

    def kept_plugins(self) -> Iterable[PluginResults]:
        return self._kept.values()

    def scorers(self) -> list[Step]:
        """The kept plugins that score these pods."""
        return [step for step, _ in (*self._plain, *self._normal)]

    # PreFilter

    @property
    def settled(self) -> bool:
        """Whether every kept PreFilter has answered, and nothing it read has changed since."""
        return self._objects_version == self._cluster.objects.version

    def settle(self) -> None:
        """Called when all kept PreFilters have been asked with the objects as they are."""
        self._objects_version = self._cluster.objects.version

    def pre_filter(self, plugin: Any, nodes: NodeColumns) -> Status | NodeNames:
        self._asked_again = True
        return self._kept[plugin.name].pre_filter(nodes)

    def follow_objects(self) -> None:
        """For plugins that take no part in PreFilter; to be called before those that do are asked."""
        self._asked_again = True
        asked = self._profile.pre_filters
        for kept in self._kept.values():
            if kept.plugin not in asked:
                kept.follow_objects()

    def generations(self) -> tuple[int, ...]:
        """Changes when objects that a kept plugin reads have changed."""
        return tuple(kept.generation for kept in self._kept.values())

    # Filter

    def sync(self) -> None:
        """Brings node_statuses (and scores, once somebody has asked for them) up to date."""
        cluster = self._cluster
        if self._asked_again:
            self._choose_plugins()
        node_cursor, usage_cursor = self._cursors
        nodes_end, usage_end = cluster.node_log.end, cluster.usage_log.end
        if not self._epochs or nodes_end != node_cursor or cluster.nodes.high != len(self.who):
            self._sync_all(node_cursor, usage_cursor)
        elif usage_end == usage_cursor + 1:
            # The usual case: one pod came or went.
            row = cluster.usage_log.last
            node = OneNode(cluster, row)
            for column in self._usage_columns:
                column.sync_row(node, row)
            self._combine_one(row)
        elif usage_end != usage_cursor:
            self._sync_usage(usage_cursor)
        self._cursors = (nodes_end, usage_end)

    def _sync_all(self, node_cursor: int, usage_cursor: int) -> None:
        """Node objects have changed, or who takes part."""
        cluster = self._cluster
        for column in self._columns():
            column.sync()
        before, self._epochs = self._epochs, self._epoch_sum()
        nodes, usage = cluster.node_log.since(node_cursor), cluster.usage_log.since(usage_cursor)
        if before != self._epochs or nodes is None or usage is None or cluster.nodes.high != len(self.who):
            self._combine_all()
        else:
            self._combine(distinct(nodes + usage), with_static=bool(nodes))

    def _sync_usage(self, usage_cursor: int) -> None:
        """What follows from the Node objects alone needs no look: none of them changed."""
        for column in self._usage_columns:
            column.sync()
        added = self._usage_epochs_added()
        usage = self._cluster.usage_log.since(usage_cursor)
        if added or usage is None:
            self._epochs += added
            self._combine_all()
            return
        rows = set(usage)
        if len(rows) <= FEW_ROWS:
            for row in rows:
                self._combine_one(row)
        else:
            self._combine(distinct(rows), with_static=False)

    def _combine_all(self) -> None:
        self._allocate(self._cluster.nodes.high)
        self.feasible_version += 1
        self._combine(None, with_static=True)

    def from_nodes_alone(self, rows: IdColumn) -> tuple[Who, Why]:
        """What plugins say that look only at the Node objects: it holds whatever pods may be there."""
        self.sync()
        return self._static_who.take(rows), self._static_why.take(rows)

    def _columns(self) -> list[PluginColumn]:
        """All kept columns that take part, brought up to date with what they depend on besides rows."""
        columns = [kept.verdict_column() for _, kept in self._filters]
        if self._scored:
            columns += [kept.score_column() for _, kept in (*self._plain, *self._normal)]
        self._usage_columns = [column for column in columns if column.reads_usage]
        return columns

    def _epoch_sum(self) -> int:
        """Grows whenever a column was computed anew as a whole. One is added, so that it is never 0."""
        columns = self._columns()
        self._usage_epochs = sum(column.epoch for column in self._usage_columns)
        return 1 + sum(column.epoch for column in columns)

    def _usage_epochs_added(self) -> int:
        before, self._usage_epochs = self._usage_epochs, sum(c.epoch for c in self._usage_columns)
        return self._usage_epochs - before

    def _choose_plugins(self) -> None:
        """After PreFilters were asked: who takes part, if an answer is new."""
        self._asked_again = False
        generations = self.generations()
        if generations == self._generations:
            return
        self._generations = generations
        self.tallies.clear()
        self._filters = [
            (step.index, self._kept[step.name])
            for step in self._profile.filters
            if step.cached and not self._kept[step.name].skips
        ]
        self._usage_filters = [(i, kept) for i, kept in self._filters if kept.plugin.depends_on.usage]
        self._scored = False
        self._epochs = 0

    def _combine(self, rows: IdColumn | None, *, with_static: bool) -> None:
        """Puts some rows (None: all) together with arrays."""
        where: Any = slice(None) if rows is None else rows
        count = self._cluster.nodes.high if rows is None else len(rows)
        self.rows_computed += count
        if with_static:
            static = [(i, kept) for i, kept in self._filters if not kept.plugin.depends_on.usage]
            self._static_who[where], self._static_why[where] = _first(static, where, count)
        who, why = self._static_who[where], self._static_why[where]
        if self._usage_filters:
            usage_who, usage_why = _first(self._usage_filters, where, count)
            later = usage_who < who
            who, why = np.where(later, usage_who, who), np.where(later, usage_why, why)
        self.who[where], self.why[where] = who, why
        now = (who == PASS) & self._cluster.nodes.exists.read[where]
        if not np.array_equal(now, self.ok[where]):
            self.ok[where] = now
            self.feasible_version += 1
        if self._scored:
            self._add_up(where, now, with_static=with_static)

    def _combine_one(self, row: int) -> None:
        """Puts one row together with plain numbers."""
        self.rows_computed += 1
        who, why = self._static_who_cell[row], self._static_why_cell[row]
        for index, kept in self._usage_filters:
            against = kept.node_statuses.cell[row]
            if against and index < who:
                who, why = index, against
        self._who_cell[row] = who
        self._why_cell[row] = why
        now = who == PASS and self._cluster.nodes.exists.cell[row]
        if now != self._ok_cell[row]:
            self._ok_cell[row] = now
            self.feasible_version += 1
        if not now or not self._scored:
            return
        total = self._static_total_cell[row]
        for step, kept in self._usage_plain:
            score = kept.raw_scores.cell[row]
            if not 0 <= score <= MAX_SCORE:
                calls.check_range(step, kept.raw_scores.values[row : row + 1])
            total += step.weight * score
        self._total_cell[row] = total

    # Score

    def prepare_scores(self) -> None:
        """Makes the kept scores of all rows; from now on `sync` keeps them up to date."""
        if self._scored:
            return
        self.tallies.clear()
        view = NodeColumns(self._cluster)
        with_pre_score = {plugin.name for plugin in self._profile.pre_scores}
        active = [
            (step, self._kept[step.name])
            for step in self._profile.scores
            if step.cached and self._kept[step.name].has_score(view, step.name in with_pre_score)
        ]
        for _, kept in active:
            kept.score_column().sync()
        self._plain = [(step, kept) for step, kept in active if not step.normalizes]
        self._usage_plain = [(step, kept) for step, kept in self._plain if step.usage]
        self._normal = [(step, kept) for step, kept in active if step.normalizes]
        self.normal_follows_usage = any(step.usage for step, _ in self._normal)
        self._add_up(slice(None), self.ok, with_static=True)
        self._scored = True
        self._epochs = self._epoch_sum()

    def _add_up(self, where: Any, feasible: NDArray[np.bool_], *, with_static: bool) -> None:
        if with_static:
            self._static_total[where] = 0
            for step, kept in self._plain:
                if not step.usage:
                    self._static_total[where] += _weighted(step, kept.raw_scores.values[where], feasible)
        total = self._static_total[where].copy()
        for step, kept in self._usage_plain:
            total += _weighted(step, kept.raw_scores.values[where], feasible)
        self._total[where] = total
        if with_static:
            self.scores_version += 1

    def total_of(self, row: int) -> int:
        """The weighted sum of those kept scores of a (feasible) row that need no normalising."""
        total: int = self._total_cell[row]
        return total

    def totals(self, rows: IdColumn) -> IntColumn:
        """The same for several rows."""
        return self._total.take(rows)

    def normalized(self, pod: Pod, rows: IdColumn) -> IntColumn | None:
        """The weighted sum of the other kept scores, normalised over these rows. None: no difference.

        Those that are equal for all rows stay so, and are left out.
        """
        varying = [(step, kept) for step, kept in self._normal if not kept.raw_scores.is_uniform]
        if not varying:
            return None
        view, sum_of_all = NodeColumns(self._cluster, rows), np.zeros(len(rows), dtype=np.int64)
        for step, kept in varying:
            raw = kept.raw_scores.values.take(rows)
            sum_of_all += step.weight * self._caller.calls.normalized(step, kept.state, pod, view, raw)
        return sum_of_all


def _first(filters: Filters, where: Any, count: int) -> tuple[Who, Why]:
    """The first plugin that rejects each row, and its reasons."""
    who = np.full(count, PASS, dtype=np.int8)
    why = np.zeros(count, dtype=np.int64)
    for index, kept in reversed(filters):
        against = kept.node_statuses.values[where]
        rejected = against != 0
        if rejected.any():
            np.copyto(who, index, where=rejected)
            np.copyto(why, against, where=rejected)
    return who, why


def _weighted(step: Step, scores: IntColumn, feasible: NDArray[np.bool_]) -> IntColumn:
    if scores.min(initial=0) < 0 or scores.max(initial=0) > MAX_SCORE:
        calls.check_range(step, scores[feasible])
    return scores if step.weight == 1 else step.weight * scores
