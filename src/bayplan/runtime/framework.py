"""One pod, all nodes: PreFilter → Filter → Score → select.

`Framework.search` is the only search for a node. It is a plain function of cluster and pod, written as a
generator for extenders, which are called in between; without them it never yields. It calls every plugin that
has to be called: results of plugins that declare their dependencies are in the pod's `SignatureResults` and
are brought up to date for rows that changed, and `Feasible` has the rows that pass, with their scores. So for
the second of two identical pods the same steps are taken, and there is almost nothing to compute.

Explanations observe this search: `Search.filtered` has what Filter found, `score_table` the scores by plugin.
Plugins are called by `calls.py`; Filter and hypotheses are in `filtering.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from bayplan.api.pod import Pod
from bayplan.framework.outcome import NO_STATUS, Diagnosis, FilterOutcome, NodeStatuses
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.points import TieBreak
from bayplan.framework.state import GROUP_CYCLE, CycleState, GroupCycleState
from bayplan.framework.status import SKIP_FOR_SIGNATURE, Code, Status
from bayplan.runtime import calls
from bayplan.runtime.extension_points import POINTS
from bayplan.runtime.feasible import Candidates, Feasible, Rejected, SearchOrder, pick
from bayplan.runtime.filtering import Filtering
from bayplan.runtime.profile import Profile, Step
from bayplan.runtime.search import (
    EXTENDER,
    Accepted,
    ExtenderSteps,
    Filtered,
    Found,
    NotFound,
    Search,
    SearchStart,
    Steps,
    run_through,
)
from bayplan.runtime.signature_results import SignatureCache
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.hypothesis import Hypothesis
from bayplan.state.pods import PodInfo
from bayplan.state.view import IntColumn, NodeColumns

if TYPE_CHECKING:
    from bayplan.runtime.observed import PointObserver

T = TypeVar("T")

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
        self.cache = cache
        own = profile.percentage_of_nodes_to_score
        self._percentage = percentage_of_nodes_to_score if own is None else own
        self._start = SearchStart() if start is None else start
        self.observer: PointObserver | None = None
        """Measures extension points and counts evaluations: then use it as an `ObservedFramework`."""
        self.points = POINTS
        """The other extension points, for the attempt that has begun."""
        self.caller = calls.Caller()
        self.extenders: ExtenderSteps | None = None
        """Called in the middle of a cycle, if the configuration has extenders."""
        self._signatures = SignatureCache(profile, cluster, self.caller)
        self.filtering = Filtering(profile, cluster, self.caller)
        self._nodes = NodeColumns(cluster)
        self._uncached_pre_filters = _uncached(profile.pre_filters)
        self._uncached_pre_filter_names = frozenset(step.name for step in self._uncached_pre_filters)
        self._uncached_filters = frozenset(step.name for step in _uncached(profile.filters))
        self._uncached_pre_scores = _uncached(profile.pre_scores)
        self._uncached_scores = _uncached(profile.scores)
        self._pre_filter_names = tuple(step.name for step in profile.pre_filters)
        self._all_pre_filters = frozenset(self._pre_filter_names)
        self._candidates = Candidates(cluster)

    @property
    def rows_computed(self) -> int:
        """How many rows of cached results were computed, over all attempts."""
        return self._signatures.rows_computed

    # The search

    def begin(self, pod: Pod, info: PodInfo | None = None) -> Search:
        if info is None:
            info = self.cluster.pod_infos.of(pod)
        if not self.cache:
            return Search(pod, info, CycleState(), *self._signatures.uncached(pod))
        signature, results = self._signatures.of(pod, info)
        state = CycleState()
        state.signature = signature.memory
        return Search(pod, info, state, signature, results)

    def begin_uncached(self, pod: Pod) -> Search:
        """A search that uses no cached results."""
        self.caller.calls = calls.PLAIN
        return Search(pod, self.cluster.pod_infos.of(pod), CycleState(), *self._signatures.uncached(pod))

    def find(self, pod: Pod) -> Found | NotFound:
        """The best node for the pod, or why there is none, without extenders."""
        return run_through(self.search(self.begin(pod)))

    def search(self, search: Search) -> Steps[Found | NotFound]:
        """The best node for the pod, or why there is none. Raises AttemptError if a plugin fails.

        schedule_one.go: schedulePod
        """
        pod, extenders, results = search.pod, self.extenders, search.results
        signature = search.signature
        search.is_settled = signature.settled_results is results and signature.settled.is_current
        if not search.is_settled:
            self.cluster.list_nodes()
        rejected = self.pre_filter(search)
        if rejected is not None:
            if search.rows is not None:
                rejected.node_count = len(search.rows)
            return NotFound(search, rejected)
        if search.is_settled:
            results.update_usage()
        else:
            results.update()
        nominated = self._try_nominated_node(search) if pod.status.nominated_node_name else None
        if nominated is not None and extenders is not None:
            accepted = yield from self._extended(extenders.accepts(nominated))
            nominated = nominated if accepted else None
        if nominated is not None and not search.explained:
            return nominated
        filtered = self._filter(search)
        feasible = filtered.feasible
        nodes: Feasible | Accepted = feasible
        if extenders is not None:
            nodes = yield from self._extended(extenders.filter(pod, feasible.view))
        count = nodes.count
        if count == 0:
            return NotFound(search, self._diagnosis(search, filtered, nodes))
        if count == 1:
            row = nodes.row_at(0)
        elif extenders is None:
            row = self._best(search, feasible)
        else:
            row = yield from extenders.best(pod, nodes.view, self._totals(search, nodes))
        found = Found(search, row, self.cluster.nodes.name[row], count, len(filtered.evaluated))
        return found if nominated is None else nominated

    def failed(self, error: calls.AttemptError) -> None:
        """A search has raised this. Only an `ObservedFramework` observes it."""

    def _extended(self, steps: Steps[T]) -> Steps[T]:
        """Calls extenders."""
        return (yield from steps)

    # PreFilter

    def pre_filter(self, search: Search) -> Diagnosis | None:
        """Runs the PreFilter plugins. A Diagnosis means that no node has to be evaluated.

        Those of cached plugins run again only if objects that they depend on have changed, and those that
        returned SKIP_FOR_SIGNATURE if objects or (anti-)affinity terms have.

        framework.go: RunPreFilterPlugins
        """
        results, signature = search.results, search.signature
        if search.is_settled and signature.skipped.filters >= self._uncached_pre_filter_names:
            search.skipped_filters = signature.skipped.filters
            search.pre_filtered = self._all_pre_filters
            return None
        pre_filtered = search.is_settled or results.is_pre_filtered
        if not pre_filtered:
            results.check_objects()
        if not search.is_settled:
            signature.skipped.update()
        skipped = search.skipped_filters = signature.skipped.filters
        remembered: Status | None = None
        rejected: Diagnosis | None = None
        for step in self._uncached_pre_filters if pre_filtered else self.profile.pre_filters:
            if step.cached:
                answer = results.pre_filter(step, self._nodes)
            elif step.name in skipped:
                continue
            else:
                answer = self.caller.calls.pre_filter(step, search.state, search.pod, self._nodes)
                if answer is SKIP_FOR_SIGNATURE:
                    signature.skipped.filters |= {step.name}
            if isinstance(answer, NodeNames):
                rejected = self._narrow(search, step.name, answer)
            elif answer.code is Code.SKIP:
                if not step.cached:
                    search.skipped_filters |= {step.name}
            elif answer.code is Code.UNRESOLVABLE:
                rejected = self._rejected(answer, {answer.plugin})
            elif answer.code is Code.UNSCHEDULABLE:
                remembered = answer
            if rejected is not None:
                # The plugins that ran, now or earlier for an identical pod.
                names = self._pre_filter_names
                search.pre_filtered = frozenset(names[: names.index(step.name) + 1])
                break
        else:
            search.pre_filtered = self._all_pre_filters
            if remembered is not None:
                rejected = self._rejected(remembered, {remembered.plugin, *search.pre_filter_plugins})
            elif not pre_filtered and search.pre_filter_nodes is None:
                results.mark_pre_filtered()
        return rejected

    def _narrow(self, search: Search, plugin: str, answer: NodeNames) -> Diagnosis | None:
        """Restricts the search to these nodes. A Diagnosis if none is left."""
        search.pre_filter_plugins += (plugin,)
        search.pre_filter_nodes = (
            answer.names if search.pre_filter_nodes is None else search.pre_filter_nodes & answer.names
        )
        if search.pre_filter_nodes:
            return None
        names = sorted(search.pre_filter_plugins)
        reason = (
            f"node(s) didn't satisfy plugin {names[0]}"
            if len(names) == 1
            else f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
        )
        return self._rejected(Status(Code.UNRESOLVABLE, (reason,)), set(names))

    def _rejected(self, status: Status, plugins: set[str]) -> Diagnosis:
        return Diagnosis(
            cluster=self.cluster,
            node_count=self.cluster.node_count,
            evaluated=np.zeros(0, dtype=np.intp),
            node_statuses=None,
            absent_nodes_status=status,
            pre_filter_message=status.message,
            rejecting_plugins={plugin for plugin in plugins if plugin},
        )

    # Filter

    def _try_nominated_node(self, search: Search) -> Found | None:
        """A nominated pod gets its node if it fits there, and no other node is evaluated.

        schedule_one.go: evaluateNominatedNode
        """
        name = search.pod.status.nominated_node_name
        row = self.cluster.nodes.row_of.get(name)
        if row is None or not self.cluster.nodes.exists.cell[row]:
            return None
        if search.rows is not None and row not in search.rows:
            return None
        try:
            fits = self._fits(search, row)
        except calls.AttemptError:
            return None
        return Found(search, row, name, 1, 1) if fits else None

    def _fits(self, search: Search, row: int) -> bool:
        return self.filtering.fits_row(search, row)

    def fits_on(self, pod: Pod, row: int, group: GroupCycleState) -> bool:
        """Whether a member of a group passes PreFilter and all filters on one row, pods nominated there
        included."""
        search = self.begin(pod)
        search.state.write(GROUP_CYCLE, group)
        if self.pre_filter(search) is not None:
            return False
        named = search.pre_filter_nodes
        if named is not None and self.cluster.nodes.name[row] not in named:
            return False
        search.results.update()
        return self._fits(search, row)

    def _filter(self, search: Search) -> Filtered:
        """The evaluated and the feasible nodes. Advances the start of the next search.

        schedule_one.go: findNodesThatPassFilters
        """
        rotation, start = self._candidates.rotation, self._start.index
        is_whole = search.is_settled and search.pre_filter_nodes is None and search.rows is None
        if is_whole and rotation is not None and rotation[0] == start:
            order = rotation[1]
        else:
            order = self._candidates.of(start, search.rows, search.pre_filter_nodes)
        absent = NO_STATUS if search.pre_filter_nodes is None else _not_named(search)
        rejected: Rejected = ()
        node_statuses: NodeStatuses | None = None
        if self.cluster.nominated or not search.skipped_filters >= self._uncached_filters:
            rejected, node_statuses = self.filtering.rejected_rows(search)
        feasible = self._feasible(search, order, rejected)
        evaluated = feasible.evaluated
        filtered = Filtered(evaluated, feasible, absent, node_statuses)
        if search.explained:
            search.filtered = filtered
        failed = None
        if feasible.count < len(evaluated) and search.results.may_have_errors:
            failed = calls.first_filter_error(self.node_statuses(search, filtered), evaluated)
            if failed is not None:
                evaluated = filtered.evaluated = evaluated[: failed[0]]
        if search.pod.status.nominated_node_name:
            evaluated = filtered.evaluated = self._with_nominated_node(search, filtered)
        total = self.cluster.node_count if search.rows is None else len(search.rows)
        if len(evaluated) != total and not search.explained:
            self._start.index = (start + len(evaluated)) % total if total else 0
        if failed is not None:
            raise failed[1]
        if not search.is_settled and search.results.is_pre_filtered and search.pre_filter_nodes is None:
            search.signature.settled_results = search.results
            search.signature.settled.mark_current()
        return filtered

    def node_statuses(self, search: Search, filtered: Filtered) -> NodeStatuses:
        """The results of the filters for every row."""
        if filtered.node_statuses is None:
            filtered.node_statuses = self.filtering.node_statuses(search)
        return filtered.node_statuses

    def _feasible(self, search: Search, order: SearchOrder, rejected: Rejected) -> Feasible:
        """The feasible rows: those of the last identical pod, brought up to date."""
        results = search.results
        cached_in = search.signature if rejected else results
        last = cached_in.feasible
        if last is not None and not search.explained and last.update(results, order, rejected):
            return last
        made = Feasible(
            self.cluster,
            results,
            order,
            rejected,
            wanted=self.nodes_to_find(search, len(order.rows)),
            max_total=self.profile.max_total,
            tie_break=self.tie_break,
        )
        if not search.explained:
            cached_in.feasible = made
        return made

    def nodes_to_find(self, search: Search, count: int) -> int:
        """schedule_one.go: numFeasibleNodesToFind"""
        if search.explained:
            return count
        extended = self.extenders is not None and self.extenders.needs_all_feasible
        if not self.profile.scores and not extended:
            return 1
        if count < MIN_FEASIBLE or not 0 < self._percentage < 100:
            return count
        return max(MIN_FEASIBLE, count * self._percentage // 100)

    def _with_nominated_node(self, search: Search, filtered: Filtered) -> IdColumn:
        """The evaluated rows, with that of the nominated node, which was evaluated first and did not fit."""
        evaluated = filtered.evaluated
        row = self.cluster.nodes.row_of.get(search.pod.status.nominated_node_name, -1)
        if row < 0 or not self.cluster.nodes.exists.cell[row] or row in evaluated:
            return evaluated
        if search.rows is not None and row not in search.rows:
            return evaluated
        status = self.node_statuses(search, filtered).status(row)
        return evaluated if status is None or not status.is_rejection else np.append(evaluated, row)

    def _diagnosis(self, search: Search, filtered: Filtered, left: Feasible | Accepted) -> Diagnosis:
        """Why no node fits."""
        diagnosis = Diagnosis(
            cluster=self.cluster,
            node_count=self.cluster.node_count if search.rows is None else len(search.rows),
            evaluated=filtered.evaluated,
            node_statuses=self.node_statuses(search, filtered).detached(),
            absent_nodes_status=filtered.absent_nodes_status,
            is_restricted=search.rows is not None,
        )
        diagnosis.rejecting_plugins.update(search.pre_filter_plugins)
        diagnosis.rejecting_plugins.update(status.plugin for status, _ in diagnosis.counts())
        if isinstance(left, Accepted):
            response, row_of = left.response, self.cluster.nodes.row_of
            diagnosis.overrule(
                {row_of[name]: status for name, status in response.statuses.items() if name in row_of}
            )
            if response.removed:
                diagnosis.rejecting_plugins.add(EXTENDER)
        return diagnosis

    def filter_outcome(self, result: NotFound) -> FilterOutcome:
        """The input of PostFilter plugins."""
        outcome = self.filtering.outcome(result.search, result.diagnosis, cached=self.cache)
        outcome.filter_again = partial(self._filter_again, result.search.pod)
        return outcome

    def _filter_again(self, pod: Pod) -> Callable[[Hypothesis], Status | None]:
        search = self.begin(pod)
        rejected = self.pre_filter(search)
        if rejected is not None:
            return lambda hypothesis: rejected.absent_nodes_status
        search.results.update()
        return lambda hypothesis: self.filtering.filter_hypothesis(search, hypothesis).status(0)

    # Score

    def _best(self, search: Search, feasible: Feasible) -> int:
        """The best of several rows.

        Scores that are equal for all rows change nothing, and are omitted where that is known.

        schedule_one.go: prioritizeNodes, selectHost
        """
        if not self.profile.scores:
            return feasible.row_at(pick(np.ones(feasible.count, dtype=np.int64), 1, self.tie_break))
        if not search.results.is_scored:
            search.results.prepare_scores()
        steps = self._pre_score(search, feasible)
        added = self._added(search, feasible.view, steps, feasible.unit) if steps else None
        return feasible.best(search.pod, added)

    def _pre_score(self, search: Search, nodes: Feasible | Accepted, *, varying: bool = True) -> list[Step]:
        """Runs PreScore of uncached plugins. Returns those that score this pod; usually there are none.

        With `varying`, those whose scores are known to be equal for all nodes are left out.

        framework.go: RunPreScorePlugins
        """
        skipped = search.signature.skipped
        search.skipped_scores = skipped.scores
        for step in self._uncached_pre_scores:
            if step.name not in skipped.scores:
                answer = self.caller.calls.pre_score(step, search.state, search.pod, nodes.view)
                if answer.code is Code.SKIP:
                    search.skipped_scores |= {step.name}
                    if answer is SKIP_FOR_SIGNATURE:
                        skipped.scores |= {step.name}
        steps = []
        for step in self._uncached_scores:
            if step.name in search.skipped_scores:
                continue
            if varying and step.uniform_score is not None:
                if step.name in search.skipped_filters:
                    continue
                if calls.has_uniform_score(step, search.state, search.pod):
                    continue
            steps.append(step)
        return steps

    def _added(self, search: Search, view: NodeColumns, steps: list[Step], unit: int) -> IntColumn | None:
        """What uncached plugins add: the weighted sum of their scores, in units. None: nothing."""
        added: IntColumn | None = None
        for step in steps:
            factor = step.weight * unit
            by_domain = (
                self.caller.calls.scores_by_domain(step, search.state, search.pod, view)
                if step.domain_scores is not None
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

    def _totals(self, search: Search, nodes: Feasible | Accepted) -> IntColumn:
        """Total scores of feasible rows, for comparing them with one another after extenders have scored."""
        view, results = nodes.view, search.results
        if not self.profile.scores:
            return np.ones(len(view), dtype=np.int64)
        results.prepare_scores()
        steps = self._pre_score(search, nodes)
        totals = results.totals(view.rows)
        for part in (results.normalized(search.pod, view.rows), self._added(search, view, steps, 1)):
            if part is not None:
                totals += part
        return totals

    def score_table(self, search: Search) -> list[tuple[Step, IntColumn, IntColumn]]:
        """For each plugin that scores the pod: raw and normalised scores of the feasible rows."""
        assert search.filtered is not None
        search.results.prepare_scores()
        feasible, pod = search.filtered.feasible, search.pod
        view = feasible.view
        steps = (*search.results.scorers(), *self._pre_score(search, feasible, varying=False))
        table = []
        for step in sorted(steps, key=lambda step: step.index):
            state = search.results.state_of(step) if step.cached else search.state
            raw = self.caller.calls.score_rows(step, state, pod, view)
            table.append((step, raw, self.caller.calls.normalized(step, state, pod, view, raw)))
        return table


def _not_named(search: Search) -> Status:
    """The status of nodes that PreFilter did not name."""
    names = sorted(search.pre_filter_plugins)
    return Status(Code.UNRESOLVABLE, (f"node(s) didn't satisfy plugin(s) [{' '.join(names)}]",))


def _uncached(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(step for step in steps if not step.cached)
