"""One pod, all nodes: PreFilter, Filter, PreScore, Score, and the choice of the best node.

`Framework.find` is a plain function of cluster and pod. The results of plugins that declare their
dependencies are in the pod's `SignatureResults`; the others are called in every cycle (`pre_filtering.py`,
`filtering.py`, `scoring.py`). `feasible.py` has the feasible rows and the best of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.framework.outcome import NO_STATUS, Diagnosis, LocalFilters, NodeStatuses
from bayplan.framework.points import Point, TieBreak
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.feasible import Feasible, SearchOrder, pick
from bayplan.runtime.filtering import Filtering
from bayplan.runtime.pre_filtering import PreFiltering
from bayplan.runtime.profile import Profile
from bayplan.runtime.repeated_search import RepeatedSearch
from bayplan.runtime.scoring import Scoring
from bayplan.runtime.search import (
    ExtenderSteps,
    Filtered,
    Found,
    NotFound,
    Search,
    SearchStart,
    Steps,
    run_through,
)
from bayplan.runtime.signature_cache import SignatureCache
from bayplan.runtime.timing import Caller, PointObserver
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.view import IntColumn, NodeColumns

MIN_FEASIBLE: Final = 100
"""Sampling never stops before this number of feasible nodes."""


class Framework:
    """The plugins of one profile on one cluster."""

    def __init__(
        self,
        profile: Profile,
        cluster: Cluster,
        *,
        cache: bool = True,
        percentage_of_nodes_to_score: int = 0,
        start: SearchStart | None = None,
        tie_break: TieBreak = TieBreak.KUBE_SCHEDULER,
    ) -> None:
        self.profile = profile
        self.cluster = cluster
        self.tie_break = tie_break
        self._cache = cache
        own = profile.percentage_of_nodes_to_score
        self._percentage = percentage_of_nodes_to_score if own is None else own
        self._start = SearchStart() if start is None else start
        self.observer: PointObserver | None = None
        """Measures extension points and counts evaluations; None: nothing is measured."""
        self.caller = Caller()
        self.extenders: ExtenderSteps | None = None
        """Called in the middle of a cycle, if the configuration has extenders."""
        self._signatures = SignatureCache(profile, cluster, self.caller)
        self._pre_filtering = PreFiltering(profile, cluster, self.caller)
        self.filtering = Filtering(profile, cluster, self.caller)
        self.scoring = Scoring(profile, cluster, self.caller)
        with_filter = {step.name for step in profile.filters}
        with_shortcut = {
            step.name
            for step in profile.pre_filters
            if step.rejected_rows is not None and step.name in with_filter
        }
        self._not_repeatable = frozenset(
            step.name
            for step in (*profile.pre_filters, *profile.filters)
            if not step.cached and step.name not in with_shortcut
        )
        """The plugins that have to be skipped for a search to be repeated."""
        changes = cluster.changes
        self._rotation: tuple[int, SearchOrder] | None = None
        self._rotation_freshness = changes.freshness((changes.order, changes.size))

    @property
    def rows_computed(self) -> int:
        """How many rows of cached results were computed, over all attempts."""
        return self._signatures.rows_computed

    # Search

    def begin(self, pod: Pod) -> Search:
        if not self._cache:
            return self.begin_uncached(pod)
        info = self.cluster.pod_infos.of(pod)
        signature, results = self._signatures.of(pod, info)
        return Search(pod, info, CycleState(signature.memory), signature, results)

    def begin_uncached(self, pod: Pod) -> Search:
        """A search that uses no cached results."""
        self.caller.use(None)
        signature, results = self._signatures.uncached(pod)
        return Search(pod, self.cluster.pod_infos.of(pod), CycleState(), signature, results)

    def find(self, pod: Pod) -> Found | NotFound:
        """The best node for the pod, or why there is none, without extenders."""
        search = self.start(pod)
        return search if isinstance(search, Found) else run_through(self.complete_search(search))

    def start(self, pod: Pod) -> Search | Found:
        """Begins a search; its result if the search for the last identical pod can be repeated."""
        search = self.begin(pod)
        if self.observer is not None:
            self.caller.use(self.observer.sample())
        return self._repeated(search) or search

    def complete_search(self, search: Search) -> Steps[Found | NotFound]:
        """The best node for the pod, or why there is none. Raises AttemptError if a plugin fails."""
        pod, extenders = search.pod, self.extenders
        rejected = self.pre_filter(search)
        if rejected is not None:
            return NotFound(search, rejected)
        search.results.update()
        nominated = self.try_nominated_node(search) if pod.status.nominated_node_name else None
        if nominated is not None and (extenders is None or (yield from extenders.accepts(nominated))):
            return nominated
        filtered = self.filtered(search, self.filtering.node_statuses(search))
        if extenders is not None:
            return (yield from extenders.choose(search, filtered))
        found = self.choose(search, filtered)
        if self._is_repeatable(search, filtered.feasible):
            search.signature.repeated = RepeatedSearch(
                self.cluster,
                search,
                filtered.feasible,
                self._start.index,
                self._pre_filtering.not_skipped(search),
                self.filtering,
                self.scoring,
            )
        return found

    # Repeated searches

    def _repeated(self, search: Search) -> Found | None:
        """The result if the search for the last identical pod can be repeated."""
        last = search.signature.repeated
        if last is None or self.extenders is not None or self.caller.timer is not None:
            return None
        return None if search.pod.status.nominated_node_name else last.found(search, self._start.index)

    def _is_repeatable(self, search: Search, feasible: Feasible) -> bool:
        """Whether uncached filters were skipped or have the shortcut for what they reject, and all nodes were
        evaluated."""
        return (
            search.skipped_filters >= self._not_repeatable
            and search.skipped_scores is not None
            and search.pre_filter_nodes is None
            and len(feasible.evaluated) == self.cluster.node_count
            and not self.cluster.nominated
            and not search.pod.status.nominated_node_name
        )

    def is_local(self, search: Search) -> bool:
        """Whether the results of the filters on a row depend on that row alone, for this pod."""
        return self._cache and not self.filtering.uncached_steps(search)

    def local_filters(self, search: Search) -> LocalFilters | None:
        """The results that depend on each row alone, if not all do."""
        if not self._cache or not self.filtering.uncached_steps(search):
            return None
        filtering = self.filtering
        return LocalFilters(
            filter_hypothesis=lambda hypothesis: filtering.filter_hypothesis(
                search, hypothesis, cached_only=True
            ),
            locally_decided=lambda: filtering.locally_decided(search),
        )

    # PreFilter

    def pre_filter(self, search: Search) -> Diagnosis | None:
        """Runs PreFilter. A Diagnosis means that no node has to be evaluated."""
        rejected = self._pre_filtering.run(search)
        timer = self.caller.timer
        if timer is not None:
            code = Code.SUCCESS if rejected is None else rejected.absent_nodes_status.code
            timer.passed(Point.PRE_FILTER, code)
        return rejected

    # The nominated node first

    def try_nominated_node(self, search: Search) -> Found | None:
        """A nominated pod gets its node if it fits there, and no other node is evaluated."""
        name = search.pod.status.nominated_node_name
        row = self.cluster.nodes.row_of.get(name)
        if row is None or not self.cluster.nodes.exists.cell[row]:
            return None
        try:
            fits = self.filtering.fits_row(search, row)
        except calls.AttemptError:
            self.caller.passed(Point.FILTER, Code.ERROR)
            return None
        self.caller.passed(Point.FILTER)
        return Found(search, row, name, 1, 1) if fits else None

    def with_nominated_node(
        self, search: Search, evaluated: IdColumn, node_statuses: NodeStatuses
    ) -> IdColumn:
        """The evaluated rows, with that of the nominated node, which was evaluated first and did not fit."""
        row = self.cluster.nodes.row_of.get(search.pod.status.nominated_node_name, -1)
        if row < 0 or not self.cluster.nodes.exists.cell[row] or row in evaluated:
            return evaluated
        status = node_statuses.status(row)
        return evaluated if status is None or not status.is_rejection else np.append(evaluated, row)

    # Choosing

    def choose(self, search: Search, filtered: Filtered) -> Found | NotFound:
        """The best of the feasible nodes."""
        feasible = filtered.feasible
        count = len(feasible)
        if count == 0:
            return self.not_found(search, filtered)
        row = feasible.row_at(0) if count == 1 else self._best(search, feasible)
        return Found(search, row, self.cluster.nodes.name[row], count, len(filtered.evaluated))

    def filtered(self, search: Search, node_statuses: NodeStatuses) -> Filtered:
        """The evaluated and the feasible nodes. Advances the start of the next search."""
        candidates, absent, plugins = self.candidates(search)
        feasible = self._feasible(search, candidates, node_statuses)
        evaluated = feasible.evaluated
        rejects_any = len(feasible) < len(evaluated)
        failed = (
            self.first_error(node_statuses, evaluated)
            if rejects_any and node_statuses.may_have_errors
            else None
        )
        if failed is not None:
            evaluated = evaluated[: failed[0]]
        if search.pod.status.nominated_node_name:
            evaluated = self.with_nominated_node(search, evaluated, node_statuses)
        total = self.cluster.node_count
        self._start.index = (self._start.index + len(evaluated)) % total if total else 0
        if failed is not None:
            raise failed[1]
        if self.caller.timer is not None:
            self.caller.timer.passed(Point.FILTER)
        return Filtered(evaluated, feasible, node_statuses, absent, tuple(plugins))

    def not_found(self, search: Search, filtered: Filtered) -> NotFound:
        diagnosis = Diagnosis(
            cluster=self.cluster,
            node_count=self.cluster.node_count,
            evaluated=filtered.evaluated,
            node_statuses=filtered.node_statuses.detached(),
            absent_nodes_status=filtered.absent_nodes_status,
        )
        diagnosis.rejecting_plugins.update(filtered.pre_filter_plugins)
        diagnosis.rejecting_plugins.update(status.plugin for status, _ in diagnosis.counts())
        return NotFound(search, diagnosis)

    def candidates(self, search: Search) -> tuple[SearchOrder, Status, list[str]]:
        """The rows to evaluate, in order, and the status of all others."""
        if search.pre_filter_nodes is None:
            return self._rotated(), NO_STATUS, search.pre_filter_plugins
        cluster, start = self.cluster, self._first_index()
        names = sorted(search.pre_filter_plugins)
        absent = Status(Code.UNRESOLVABLE, (f"node(s) didn't satisfy plugin(s) [{' '.join(names)}]",))
        row_of, exists = cluster.nodes.row_of, cluster.nodes.exists.cell
        named = {row_of[name] for name in search.pre_filter_nodes if name in row_of}
        wanted = np.zeros(cluster.nodes.high, dtype=np.bool_)
        wanted[[row for row in named if exists[row]]] = True
        order = cluster.order[wanted.take(cluster.order)]
        if len(order):
            order = np.roll(order, -(start % len(order)))
        return SearchOrder(order, cluster.nodes.high), absent, search.pre_filter_plugins

    def _first_index(self) -> int:
        """Where in the node list this search begins; the list may have become shorter."""
        return self._start.index % (self.cluster.node_count or 1)

    def _rotated(self) -> SearchOrder:
        """The node list from the first index on; the same object while neither changes."""
        cluster, start = self.cluster, self._first_index()
        rotation = self._rotation
        if rotation is None or rotation[0] != start or not self._rotation_freshness.is_current:
            order = cluster.order
            order = np.concatenate((order[start:], order[:start])) if start else order
            rotation = self._rotation = (start, SearchOrder(order, cluster.nodes.high))
            self._rotation_freshness.mark_current()
        return rotation[1]

    def _feasible(self, search: Search, order: SearchOrder, node_statuses: NodeStatuses) -> Feasible:
        """The feasible rows: those of the last identical pod, brought up to date."""
        results, masks = search.results, node_statuses.masks
        rejected = () if masks == () else self.filtering.rejected_rows(search)
        cached_in = results if rejected == () else search.signature
        last = cached_in.feasible
        if last is not None and (
            last.update(results, order, lambda: node_statuses.passing, masks)
            if rejected is None
            else last.update_rejected(results, order, rejected)
        ):
            return last
        made = cached_in.feasible = Feasible(
            self.cluster,
            results,
            order,
            node_statuses.passing,
            rejected,
            masks,
            wanted=self._nodes_to_find(len(order.rows)),
            max_total=self.profile.max_total,
            tie_break=self.tie_break,
        )
        return made

    def _nodes_to_find(self, count: int) -> int:
        extended = self.extenders is not None and self.extenders.needs_all_feasible
        if not self.profile.scores and not extended:
            return 1
        if count < MIN_FEASIBLE or not 0 < self._percentage < 100:
            return count
        return max(MIN_FEASIBLE, count * self._percentage // 100)

    @staticmethod
    def first_error(
        node_statuses: NodeStatuses, evaluated: IdColumn
    ) -> tuple[int, calls.AttemptError] | None:
        """The first error of a filter, and how many nodes were evaluated before it.

        It ends the search there, as in kube-scheduler with parallelism 1. With more threads kube-scheduler
        evaluates a few more nodes.
        """
        for position, row in enumerate(evaluated):
            status = node_statuses.status(int(row))
            if status is not None and status.code is Code.ERROR:
                return position, calls.filter_error(status.plugin, status.message)
        return None

    # Score

    def _best(self, search: Search, feasible: Feasible) -> int:
        """The best of several rows."""
        if not self.profile.scores:
            return feasible.row_at(pick(np.ones(len(feasible), dtype=np.int64), 1, self.tie_break))
        timer = self.caller.timer
        search.results.prepare_scores()
        uncached = self.scoring.uncached_steps(search, lambda: feasible.view)
        if timer is not None:
            timer.passed(Point.PRE_SCORE)
        uncached = self.scoring.varying(search, uncached)
        added = self.scoring.added(search, feasible.view, uncached, feasible.unit) if uncached else None
        row = feasible.best(search.pod, added)
        if timer is not None:
            timer.passed(Point.SCORE)
        return row

    def totals(self, search: Search, view: NodeColumns) -> IntColumn:
        """Total scores of feasible rows, for comparing them with one another."""
        if not self.profile.scores:
            return np.ones(len(view), dtype=np.int64)
        search.results.prepare_scores()
        uncached = self.scoring.uncached_steps(search, lambda: view)
        self.caller.passed(Point.PRE_SCORE)
        totals = self.scoring.totals(search, view, self.scoring.varying(search, uncached))
        self.caller.passed(Point.SCORE)
        return totals
