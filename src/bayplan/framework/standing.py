"""What is kept for pods that are alike: verdicts and scores of every row, brought up to date by what changed.

One `Standing` serves all pods of one signature. It holds the answers of the plugins that declare what they
read. When the next such pod comes, only rows that changed since are asked about again:

    node_log   → the Node object changed: every kept plugin, on these rows
    usage_log  → pods came or went: only plugins that read usage, on these rows

After one placement that is one row, evaluated with plain numbers (`OneNode`). The best node is then one
argmax over `_key`, which holds total score and tie-break in one integer. Without keeping, a fresh Standing is
made for every attempt, and the very same code computes all rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.framework import calls
from bayplan.framework.plugin_api import MAX_SCORE, NodeNames
from bayplan.framework.profile import Profile, Step
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.framework.ties import heap_rank
from bayplan.framework.verdicts import PASS, Reasons, Verdicts, Who, Why
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.one_node import OneNode
from bayplan.snapshot.view import IntColumn, NodeColumns

FEW_ROWS: Final = 10
"""Up to so many changed rows plain numbers beat arrays."""

NOT_FEASIBLE: Final = -1


class Standing:
    """Verdicts and scores of all rows for one signature."""

    def __init__(self, profile: Profile, cluster: Cluster) -> None:
        self._profile = profile
        self._cluster = cluster
        self.state = CycleState()
        self.reasons = {step.index: Reasons(step.name) for step in profile.filters}
        self.skipped: set[str] = set()
        self.scorers: list[Step] = []
        """The kept plugins that score pods of this signature, once somebody has asked for scores."""
        self.rows_computed = 0
        self.feasible_version = 0
        self._answers: dict[str, tuple[tuple[int, ...], Status | NodeNames]] = {}
        self._objects_version = -1
        self._images_version = -1
        self._stale = True
        self._scored = False
        self._node_cursor = 0
        self._usage_cursor = 0
        self._filters: list[Step] = []
        self._usage_filters: list[Step] = []
        self._plain_scores: list[Step] = []
        self._usage_scores: list[Step] = []
        self._normal_scores: list[Step] = []
        self._elementwise = False
        self._feasible: tuple[tuple[int, int, int], IdColumn] | None = None
        self._key_for: tuple[int, int, int] | None = None
        self._shift = 0
        self._allocate(0)

    def _allocate(self, rows: int) -> None:
        self.who: Who = np.full(rows, PASS, dtype=np.int8)
        self.why: Why = np.zeros(rows, dtype=np.int64)
        self.ok: NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)
        self._static_who: Who = np.full(rows, PASS, dtype=np.int8)
        self._static_why: Why = np.zeros(rows, dtype=np.int64)
        self._plain: IntColumn = np.zeros(rows, dtype=np.int64)
        self._static_plain: IntColumn = np.zeros(rows, dtype=np.int64)
        self._raw: dict[int, IntColumn] = {}
        self._uniform: dict[int, bool] = {}
        self._normal: IntColumn = np.zeros(rows, dtype=np.int64)
        self._tie: IntColumn = np.zeros(rows, dtype=np.int64)
        self._key: IntColumn = np.full(rows, NOT_FEASIBLE, dtype=np.int64)
        self._key_for = None

    @property
    def may_have_errors(self) -> bool:
        """Whether a kept plugin has ever answered that it broke on some row."""
        return any(self.reasons[step.index].has_errors for step in self._filters)

    # PreFilter

    @property
    def settled(self) -> bool:
        """Whether every kept PreFilter has answered, and nothing it read has changed since."""
        return self._objects_version == self._cluster.objects.version

    def settle(self) -> None:
        """Called when all kept PreFilters have been asked with the objects as they are."""
        self._objects_version = self._cluster.objects.version

    def pre_filter(self, plugin: Any, pod: Pod, nodes: NodeColumns) -> Status | NodeNames:
        """The answer of a kept plugin's PreFilter: the one from before, unless what it read has changed."""
        versions = self._cluster.objects.versions(plugin.reads.kinds)
        known = self._answers.get(plugin.name)
        if known is not None and known[0] == versions:
            return known[1]
        answer = calls.pre_filter(plugin, self.state, pod, nodes)
        self._answers[plugin.name] = (versions, answer)
        skips = isinstance(answer, Status) and answer.code is Code.SKIP
        if skips:
            self.skipped.add(plugin.name)
        else:
            self.skipped.discard(plugin.name)
        if known is None or not skips or answer != known[1]:
            self._stale = True
        return answer

    # Rows

    def sync(self, pod: Pod) -> None:
        """Brings verdicts (and scores, once somebody has asked for them) up to date."""
        try:
            self._sync(pod)
        except calls.AttemptError:
            self._stale = True
            raise

    def _sync(self, pod: Pod) -> None:
        cluster = self._cluster
        if self._images_version != cluster.images_version:
            self._images_version = cluster.images_version
            self._stale = self._stale or any(step.plugin.reads.images for step in self._plain_scores)
        nodes = cluster.node_log.since(self._node_cursor)
        usage = cluster.usage_log.since(self._usage_cursor)
        if self._stale or nodes is None or usage is None or cluster.nodes.high != len(self.who):
            self._start_over(pod)
        elif nodes:
            self._renew(pod, _distinct(nodes + usage), with_static=True)
        elif usage:
            if len(usage) <= FEW_ROWS and self._elementwise:
                for row in usage if len(usage) == 1 else set(usage):
                    self._renew_one(pod, row)
            else:
                self._renew(pod, _distinct(usage), with_static=False)
        self._node_cursor = cluster.node_log.end
        self._usage_cursor = cluster.usage_log.end

    def _start_over(self, pod: Pod) -> None:
        self._stale = False
        self._scored = False
        self._allocate(self._cluster.nodes.high)
        self._filters = [
            step for step in self._profile.filters if step.kept and step.name not in self.skipped
        ]
        self._usage_filters = [step for step in self._filters if step.usage]
        self._elementwise = all(step.plugin.elementwise for step in self._usage_filters)
        self.feasible_version += 1
        self._renew(pod, None, with_static=True)

    def _renew(self, pod: Pod, rows: IdColumn | None, *, with_static: bool) -> None:
        """Asks about some rows (None: all) with arrays."""
        view = NodeColumns(self._cluster, rows)
        where: Any = slice(None) if rows is None else rows
        self.rows_computed += len(view)
        if with_static:
            static = self._judge([step for step in self._filters if not step.usage], pod, view)
            self._static_who[where], self._static_why[where] = static.who, static.why
        usage = self._judge(self._usage_filters, pod, view)
        static_who, static_why = self._static_who[where], self._static_why[where]
        who, why = usage.who, usage.why
        static_first = static_who < who
        if static_first.any():
            who = np.where(static_first, static_who, who)
            why = np.where(static_first, static_why, why)
        self.who[where], self.why[where] = who, why
        now = (who == PASS) & view.exists
        if not np.array_equal(now, self.ok[where]):
            self.ok[where] = now
            self.feasible_version += 1
        if self._scored:
            self._rescore(pod, view, where, with_static=with_static)

    def _judge(self, steps: list[Step], pod: Pod, view: NodeColumns) -> Verdicts:
        verdicts = Verdicts(
            np.full(len(view), PASS, dtype=np.int8), np.zeros(len(view), dtype=np.int64), self.reasons
        )
        for step in steps:
            found = calls.filter_rows(step, self.state, pod, view, self.reasons[step.index])
            if found is not None:
                verdicts.add(step.index, found)
        return verdicts

    def _renew_one(self, pod: Pod, row: int) -> None:
        """Asks about one row with plain numbers."""
        self.rows_computed += 1
        one = OneNode(self._cluster, row)
        who, why = int(self._static_who[row]), int(self._static_why[row])
        for step in self._usage_filters:
            if step.index >= who:
                break
            bits = calls.filter_one(step, self.state, pod, one, self.reasons[step.index])
            if bits:
                who, why = step.index, bits
                break
        self.who[row] = who
        self.why[row] = why
        now = who == PASS and self._cluster.nodes.exists.cell[row]
        if now != self.ok[row]:
            self.ok[row] = now
            self.feasible_version += 1
        if self._scored and now:
            total = int(self._static_plain[row])
            for step in self._usage_scores:
                total += step.weight * calls.score_one(step, self.state, pod, one)
            self._plain[row] = total
            self._key[row] = (total + int(self._normal[row])) << self._shift | int(self._tie[row])
        else:
            self._key[row] = NOT_FEASIBLE

    # Scores

    def prepare_scores(self, pod: Pod) -> None:
        """Computes the kept scores of all rows; from now on `sync` keeps them up to date."""
        if self._scored:
            return
        view = NodeColumns(self._cluster)
        silent = {
            plugin.name
            for plugin in self._profile.pre_scores
            if plugin.reads is not None and not calls.pre_score(plugin, self.state, pod, view)
        }
        active = [step for step in self._profile.scores if step.kept and step.name not in silent]
        self.scorers = active
        self._plain_scores = [step for step in active if not step.normalizes]
        self._usage_scores = [step for step in self._plain_scores if step.usage]
        self._normal_scores = [step for step in active if step.normalizes]
        self._elementwise = all(
            step.plugin.elementwise for step in (*self._usage_filters, *self._usage_scores)
        ) and not any(step.usage for step in self._normal_scores)
        self._rescore(pod, view, slice(None), with_static=True)
        self._scored = True

    def _rescore(self, pod: Pod, view: NodeColumns, where: Any, *, with_static: bool) -> None:
        feasible = self.ok[where]
        if with_static:
            self._static_plain[where] = self._weighted(
                [step for step in self._plain_scores if not step.usage], pod, view, feasible
            )
        self._plain[where] = self._static_plain[where] + self._weighted(
            self._usage_scores, pod, view, feasible
        )
        for step in self._normal_scores:
            if with_static or step.usage:
                scores = calls.score_rows(step, self.state, pod, view)
                raw = self._raw.get(step.index)
                if raw is None or isinstance(where, slice):
                    raw = self._raw[step.index] = scores.copy()
                else:
                    raw[where] = scores
                self._uniform[step.index] = bool(len(raw)) and bool((raw == raw[0]).all())
                self._key_for = None
        if self._key_for is not None:
            totals = (self._plain[where] + self._normal[where]) << self._shift
            self._key[where] = np.where(feasible, totals | self._tie[where], NOT_FEASIBLE)

    def _weighted(
        self, steps: list[Step], pod: Pod, view: NodeColumns, feasible: NDArray[np.bool_]
    ) -> IntColumn:
        total = np.zeros(len(view), dtype=np.int64)
        for step in steps:
            scores = calls.score_rows(step, self.state, pod, view)
            if scores.min(initial=0) < 0 or scores.max(initial=0) > MAX_SCORE:
                calls.check_range(step, scores[feasible])
            total += step.weight * scores
        return total

    def totals(self, pod: Pod, rows: IdColumn) -> IntColumn:
        """The weighted sum of the kept scores over the given (feasible) rows, less what is equal for all."""
        total = self._plain.take(rows)
        for step, scores in self._normalized(pod, rows):
            total += step.weight * scores
        return total

    def _normalized(self, pod: Pod, rows: IdColumn) -> list[tuple[Step, IntColumn]]:
        """Normalised scores, but those that are equal for all rows: they stay so and change nothing."""
        steps = [step for step in self._normal_scores if not self._uniform[step.index]]
        if not steps:
            return []
        view = NodeColumns(self._cluster, rows)
        return [
            (step, calls.normalized(step, self.state, pod, view, self._raw[step.index].take(rows)))
            for step in steps
        ]

    # Choosing

    def feasible_rows(self, start: int) -> IdColumn:
        """The rows that pass, in the order of the node list from `start` on."""
        cluster = self._cluster
        current = (self.feasible_version, cluster.order_version, start)
        if self._feasible is None or self._feasible[0] != current:
            order = cluster.order
            if start:
                order = np.concatenate((order[start:], order[:start]))
            self._feasible = (current, order.take(self.ok.take(order).nonzero()[0]))
        return self._feasible[1]

    def best_row(self, pod: Pod, start: int) -> int:
        """The winner, where nothing but kept plugins has a say. There must be two feasible rows or more."""
        if self._key_for != (self.feasible_version, self._cluster.order_version, start):
            self._rank(pod, start)
        return int(self._key.argmax())

    def _rank(self, pod: Pod, start: int) -> None:
        rows = self.feasible_rows(start)
        rank = heap_rank(len(rows))
        self._shift = len(rank).bit_length()
        self._normal.fill(0)
        for step, scores in self._normalized(pod, rows):
            self._normal[rows] += step.weight * scores
        self._tie[rows] = len(rank) - rank[: len(rows)]
        self._key.fill(NOT_FEASIBLE)
        totals = (self._plain.take(rows) + self._normal.take(rows)) << self._shift
        self._key[rows] = totals | self._tie.take(rows)
        self._key_for = (self.feasible_version, self._cluster.order_version, start)


def _distinct(rows: list[int]) -> IdColumn:
    return np.array(sorted(set(rows)), dtype=np.intp)
