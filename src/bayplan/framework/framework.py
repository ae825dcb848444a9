"""One pod, all nodes: PreFilter, Filter, PreScore, Score, and which node is best.

`Framework.find` is a plain function of cluster and pod. Plugins that declare what they read are answered from
the pod's `Standing`; the others are asked here, in every cycle. If only kept plugins have a say, the best
node is read off the Standing; otherwise the feasible rows are put together and scored here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.framework import calls
from bayplan.framework.feasible import Candidates, Feasible
from bayplan.framework.filtering import Filtering
from bayplan.framework.outcome import NO_STATUS, Diagnosis
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.points import Point
from bayplan.framework.profile import Profile, Step
from bayplan.framework.search import Filtered, Found, NotFound, Search, SearchStart
from bayplan.framework.shapes import Shapes
from bayplan.framework.state import CycleState
from bayplan.framework.status import IDLE, Code, Status
from bayplan.framework.ties import pick
from bayplan.framework.timing import (
    BEGUN,
    FILTERED,
    PRE_FILTERED,
    PRE_SCORED,
    SCORED,
    Caller,
    PointObserver,
)
from bayplan.framework.verdicts import Verdicts
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.interning import IdColumn
from bayplan.snapshot.view import IntColumn, NodeColumns

MIN_FEASIBLE: Final = 100
"""Sampling never stops before so many nodes fit."""


class Framework:
    """The plugins of one profile at work on one cluster."""

    def __init__(
        self,
        profile: Profile,
        cluster: Cluster,
        *,
        keep: bool = True,
        percentage_of_nodes_to_score: int = 0,
        start: SearchStart | None = None,
    ) -> None:
        self.profile = profile
        self.cluster = cluster
        self._keep = keep
        own = profile.percentage_of_nodes_to_score
        self._percentage = percentage_of_nodes_to_score if own is None else own
        self._start = SearchStart() if start is None else start
        self.observer: PointObserver | None = None
        """Told how long each extension point took; nobody by default."""
        self.caller = Caller()
        self.finds_several = False
        """Whether somebody besides plugins (an extender) wants to choose among several nodes."""
        self._shapes = Shapes(profile, cluster, self.caller)
        self.filtering = Filtering(profile, cluster, self.caller)
        self._asked_scores = tuple(step for step in profile.scores if not step.kept)
        self._asked_pre_filters = tuple(p for p in profile.pre_filters if p.reads is None)
        self._asked_pre_scores = tuple(p for p in profile.pre_scores if p.reads is None)
        self._pre_filter_names = tuple(p.name for p in profile.pre_filters)
        self._all_pre_filters = frozenset(self._pre_filter_names)
        self._nodes = NodeColumns(cluster)
        self._rotation: tuple[tuple[int, int, int], Candidates] | None = None

    @property
    def rows_computed(self) -> int:
        """How many rows kept plugins were asked about, over all attempts."""
        return self._shapes.rows_computed

    # Search

    def begin(self, pod: Pod) -> Search:
        if not self._keep:
            return self.begin_anew(pod)
        facts = self.cluster.templates.facts(pod)
        standing, kept = self._shapes.of(pod, facts)
        return Search(pod, facts, CycleState(kept), standing)

    def begin_anew(self, pod: Pod) -> Search:
        """A search that uses nothing of what is kept."""
        return Search(pod, self.cluster.templates.facts(pod), CycleState(), self._shapes.anew(pod))

    def find(self, pod: Pod) -> Found | NotFound:
        """The best node for the pod, or why there is none. Raises AttemptError where a plugin broke."""
        search = self.begin(pod)
        rejected = self.pre_filter(search)
        if rejected is not None:
            return NotFound(search, rejected)
        search.standing.sync()
        nominated = self.nominated_first(search)
        if nominated is not None:
            return nominated
        return self._choose(search, self.filtering.verdicts(search))

    def _passed(self, search: Search, place: int) -> None:
        """Writes down when the search was so far."""
        if search.readings is not None:
            assert self.observer is not None
            search.readings[place] = self.observer.clock()

    def _filtered_once_more(self, search: Search, code: Code) -> None:
        """The filters were asked about one node, and will be asked about all."""
        observer, readings = self.observer, search.readings
        if observer is None:
            return
        seconds = None if readings is None else observer.clock() - readings[PRE_FILTERED]
        observer.observe(Point.FILTER, code, seconds)
        if readings is not None:
            observer.go_on(readings, PRE_FILTERED)

    def is_row_local(self, search: Search) -> bool:
        """Whether the filters' verdict on a row follows from that row alone, for this pod."""
        return self._keep and not self.filtering.asked(search)

    # PreFilter

    def pre_filter(self, search: Search) -> Diagnosis | None:
        """Runs PreFilter. A Diagnosis means that no node has to be looked at."""
        observer = self.observer
        if observer is None:
            return self._pre_filter(search)
        readings = search.readings = observer.begin(self.caller)
        rejected = self._pre_filter(search)
        if rejected is not None:
            seconds = None if readings is None else observer.clock() - readings[BEGUN]
            observer.observe(Point.PRE_FILTER, rejected.absent.code, seconds)
        elif readings is not None:
            readings[PRE_FILTERED] = observer.clock()
        return rejected

    def _pre_filter(self, search: Search) -> Diagnosis | None:
        standing, pod = search.standing, search.pod
        plugins = self._asked_pre_filters if standing.settled else self.profile.pre_filters
        remembered: Status | None = None
        search.node_set = None
        if not standing.settled:
            standing.follow_objects()
        idle = search.idle(self.cluster.rules_version).filters
        if idle:
            search.skipped |= idle
            search.pre_filtered |= idle
        for plugin in plugins:
            if plugin.name in idle:
                continue
            if plugin.reads is None:
                answer = self.caller.calls.pre_filter(plugin, search.state, pod, self._nodes)
                if isinstance(answer, Status) and answer.code is Code.SKIP:
                    search.skipped.add(plugin.name)
                    if answer is IDLE:
                        idle.add(plugin.name)
            else:
                answer = standing.pre_filter(plugin, self._nodes)
            if isinstance(answer, NodeNames):
                rejected = self._narrow(search, plugin.name, answer)
                if rejected is not None:
                    search.pre_filtered = self._pre_filters_up_to(plugin.name)
                    return rejected
            elif answer.code is Code.UNRESOLVABLE:
                search.pre_filtered = self._pre_filters_up_to(plugin.name)
                return self._rejected_by_pre_filter(answer, {answer.plugin})
            elif answer.code is Code.UNSCHEDULABLE:
                remembered = answer
        search.pre_filtered = self._all_pre_filters
        if remembered is not None:
            return self._rejected_by_pre_filter(remembered, {remembered.plugin, *search.node_set_by})
        if search.node_set is None:
            standing.settle()
        return None

    def _pre_filters_up_to(self, name: str) -> frozenset[str]:
        """Whoever had their turn when this one ended it, asked now or earlier for a pod like this one."""
        return frozenset(self._pre_filter_names[: self._pre_filter_names.index(name) + 1])

    def _narrow(self, search: Search, plugin: str, answer: NodeNames) -> Diagnosis | None:
        search.node_set_by.append(plugin)
        search.node_set = answer.names if search.node_set is None else search.node_set & answer.names
        if search.node_set:
            return None
        names = sorted(search.node_set_by)
        reason = (
            f"node(s) didn't satisfy plugin {names[0]}"
            if len(names) == 1
            else f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
        )
        return self._rejected_by_pre_filter(Status(Code.UNRESOLVABLE, (reason,)), set(names))

    def _rejected_by_pre_filter(self, status: Status, plugins: set[str]) -> Diagnosis:
        return Diagnosis(
            cluster=self.cluster,
            node_count=self.cluster.node_count,
            looked_at=np.zeros(0, dtype=np.intp),
            verdicts=None,
            absent=status,
            pre_filter_message=status.message,
            rejecting_plugins={plugin for plugin in plugins if plugin},
        )

    # The nominated node first

    def nominated_first(self, search: Search) -> Found | None:
        """A pod that was promised a node gets it if it fits there, and no other node is looked at."""
        name = search.pod.status.nominated_node_name
        if not name:
            return None
        row = self.cluster.nodes.row_of.get(name)
        if row is None or not self.cluster.nodes.exists.cell[row]:
            return None
        try:
            fits = self.filtering.fits_row(search, row)
        except calls.AttemptError:
            self._filtered_once_more(search, Code.ERROR)
            return None
        if fits:
            self._passed(search, FILTERED)
        else:
            self._filtered_once_more(search, Code.SUCCESS)
        return Found(search, row, name, 1, 1) if fits else None

    def with_nominated_node(self, search: Search, looked_at: IdColumn, verdicts: Verdicts) -> IdColumn:
        """The rows looked at, with that of the nominated node, which was looked at first and did not fit."""
        row = self.cluster.nodes.row_of.get(search.pod.status.nominated_node_name, -1)
        if row < 0 or not self.cluster.nodes.exists.cell[row] or row in looked_at:
            return looked_at
        status = verdicts.status(row)
        return looked_at if status is None or not status.is_rejection else np.append(looked_at, row)

    # Choosing

    def _choose(self, search: Search, verdicts: Verdicts) -> Found | NotFound:
        """Takes candidates in order, stops early where sampling says so, scores what fits."""
        filtered = self.filtered(search, verdicts)
        feasible = filtered.feasible
        if len(feasible) == 0:
            return self.not_found(search, filtered)
        row = feasible.row_at(0) if len(feasible) == 1 else self._best(search, feasible)
        return Found(search, row, self.cluster.nodes.name[row], len(feasible), len(filtered.looked_at))

    def filtered(self, search: Search, verdicts: Verdicts) -> Filtered:
        """Which nodes are looked at, and which of them fit. Moves on where the next search begins."""
        candidates, absent, by = self.candidates(search)
        feasible = self._feasible(search, candidates, verdicts)
        looked_at = feasible.looked_at
        error = self.first_error(verdicts, looked_at)
        looked_at = self.with_nominated_node(search, looked_at, verdicts)
        total = self.cluster.node_count
        self._start.index = (self._start.index + len(looked_at)) % total if total else 0
        if error is not None:
            raise error
        self._passed(search, FILTERED)
        return Filtered(looked_at, feasible, verdicts, absent, tuple(by))

    def not_found(self, search: Search, filtered: Filtered) -> NotFound:
        diagnosis = Diagnosis(
            cluster=self.cluster,
            node_count=self.cluster.node_count,
            looked_at=filtered.looked_at,
            verdicts=filtered.verdicts.detached(),
            absent=filtered.absent,
        )
        diagnosis.rejecting_plugins.update(filtered.narrowed_by)
        diagnosis.rejecting_plugins.update(status.plugin for status, _ in diagnosis.statuses())
        return NotFound(search, diagnosis)

    def candidates(self, search: Search) -> tuple[Candidates, Status, list[str]]:
        """The rows to look at, in order, and what holds for all others."""
        if search.node_set is None:
            return self._rotated(), NO_STATUS, search.node_set_by
        cluster, start = self.cluster, self._first_index()
        names = sorted(search.node_set_by)
        absent = Status(Code.UNRESOLVABLE, (f"node(s) didn't satisfy plugin(s) [{' '.join(names)}]",))
        row_of, exists = cluster.nodes.row_of, cluster.nodes.exists.cell
        named = {row_of[name] for name in search.node_set if name in row_of}
        wanted = np.zeros(cluster.nodes.high, dtype=np.bool_)
        wanted[[row for row in named if exists[row]]] = True
        order = cluster.order[wanted.take(cluster.order)]
        if len(order):
            order = np.roll(order, -(start % len(order)))
        return Candidates(order, cluster.nodes.high), absent, search.node_set_by

    def _first_index(self) -> int:
        """Where in the node list this search begins; the list may have become shorter."""
        return self._start.index % max(self.cluster.node_count, 1)

    def _rotated(self) -> Candidates:
        """The node list from the first index on; the same object as long as neither changes."""
        cluster, start = self.cluster, self._first_index()
        key = (cluster.order_version, start, cluster.nodes.high)
        if self._rotation is None or self._rotation[0] != key:
            order = cluster.order
            order = np.concatenate((order[start:], order[:start])) if start else order
            key = (cluster.order_version, start, cluster.nodes.high)
            self._rotation = (key, Candidates(order, cluster.nodes.high))
        return self._rotation[1]

    def _feasible(self, search: Search, candidates: Candidates, verdicts: Verdicts) -> Feasible:
        """The rows that fit: those that fitted the pod before, if they still do."""
        standing, masks = search.standing, verdicts.masks
        last: Feasible | None = search.state.kept.get(Feasible) if masks != () else standing.feasible
        if last is not None and last.is_about(candidates):
            if last.holds(standing, masks):
                return last
            passing = verdicts.passing
            if last.follow(standing, passing, masks):
                return last
        else:
            passing = verdicts.passing
        made = Feasible(
            self.cluster,
            standing,
            candidates,
            passing,
            masks,
            wanted=self._nodes_to_find(len(candidates.rows)),
            most=self.profile.most_score,
        )
        if masks != ():
            search.state.kept[Feasible] = made
        else:
            standing.feasible = made
        return made

    def _nodes_to_find(self, count: int) -> int:
        if not self.profile.scores and not self.finds_several:
            return 1
        if count < MIN_FEASIBLE or not 0 < self._percentage < 100:
            return count
        return max(MIN_FEASIBLE, count * self._percentage // 100)

    @staticmethod
    def first_error(verdicts: Verdicts, looked_at: IdColumn) -> calls.AttemptError | None:
        if not verdicts.may_have_errors:
            return None
        for row in looked_at:
            status = verdicts.status(int(row))
            if status is not None and status.code is Code.ERROR:
                return calls.filter_error(status.plugin, status.message)
        return None

    # Score

    def _best(self, search: Search, feasible: Feasible) -> int:
        """The best of several rows."""
        if not self.profile.scores:
            return feasible.row_at(pick(np.ones(len(feasible), dtype=np.int64), 1))
        search.standing.prepare_scores()
        asked = self._asked_scorers(search, lambda: feasible.view)
        self._passed(search, PRE_SCORED)
        added = self._added(search, feasible.view, asked, feasible.unit) if asked else None
        row = feasible.best(search.pod, added)
        self._passed(search, SCORED)
        return row

    def _asked_scorers(self, search: Search, view: Callable[[], NodeColumns]) -> list[Step]:
        """The plugins whose scores are not kept and that have something to say about this pod.

        As a rule there are none, and then nobody needs to see the rows that fit.
        """
        idle = search.idle(self.cluster.rules_version).scores
        silent = search.silent = set(idle)
        for plugin in self._asked_pre_scores:
            if plugin.name not in idle:
                answer = self.caller.calls.pre_score(plugin, search.state, search.pod, view())
                if answer.code is Code.SKIP:
                    silent.add(plugin.name)
                    if answer is IDLE:
                        idle.add(plugin.name)
        return [step for step in self._asked_scores if step.name not in silent]

    def totals(self, search: Search, view: NodeColumns) -> IntColumn:
        """Total scores of feasible rows, for comparing them with one another."""
        if not self.profile.scores:
            return np.ones(len(view), dtype=np.int64)
        standing = search.standing
        standing.prepare_scores()
        asked = self._asked_scorers(search, lambda: view)
        self._passed(search, PRE_SCORED)
        totals = standing.totals(view.rows)
        for part in (standing.normalized(search.pod, view.rows), self._added(search, view, asked, 1)):
            if part is not None:
                totals += part
        self._passed(search, SCORED)
        return totals

    def _added(self, search: Search, view: NodeColumns, asked: list[Step], unit: int) -> IntColumn | None:
        """What plugins add that are not kept: the weighted sum of their scores, in units.

        Scores that are equal for all rows change nothing, and are left out where that is known.
        """
        added: IntColumn | None = None
        for step in asked:
            factor = step.weight * unit
            by_domain = (
                self.caller.calls.scores_by_domain(step, search.state, search.pod, view)
                if step.scores_by_domain
                else None
            )
            if by_domain is not None:
                if not by_domain.differ:
                    continue
                scores: IntColumn = view.by_domain(by_domain.topology_key, by_domain.table * factor)
            else:
                raw = self.caller.calls.score_rows(step, search.state, search.pod, view)
                scores = factor * self.caller.calls.normalized(step, search.state, search.pod, view, raw)
            added = scores if added is None else added + scores
        return added

    def score_table(self, search: Search, rows: IdColumn) -> list[tuple[Step, IntColumn, IntColumn]]:
        """For each plugin that scores the pod: raw and normalised scores of these (feasible) rows."""
        search.standing.prepare_scores()
        view = NodeColumns(self.cluster, rows)
        steps = (*search.standing.scorers(), *self._asked_scorers(search, lambda: view))
        table = []
        for step in sorted(steps, key=lambda step: step.index):
            state = search.standing.state_of(step) if step.kept else search.state
            raw = self.caller.calls.score_rows(step, state, search.pod, view)
            table.append((step, raw, self.caller.calls.normalized(step, state, search.pod, view, raw)))
        return table
