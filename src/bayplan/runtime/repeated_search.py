"""Repeats a search for an identical pod, while nothing but the pods on the nodes has changed.

Every cached PreFilter would return the same, and the same nodes are evaluated. So it is enough to bring the
rows up to date whose pods have changed, and to take the best row. This requires that the same filters are
skipped as before, and that every other uncached one has the shortcut for the rows that it rejects
(`RejectedRowsPlugin`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.feasible import Feasible
from bayplan.runtime.filtering import Filtering
from bayplan.runtime.profile import Step
from bayplan.runtime.scoring import Scoring
from bayplan.runtime.search import Found, Search
from bayplan.state.cluster import Cluster
from bayplan.state.columns import RowMask
from bayplan.state.view import IntColumn, NodeColumns


class RepeatedSearch:
    """The last search for a pod of one signature.

    Args:
        search: the last search. It evaluated all nodes.
        feasible: the rows that passed.
        start: where in the node list it began. The next search must begin there, too.
        pre_filters: uncached plugins whose PreFilter is called for every pod.
        filtering: the Filter plugins.
        scoring: the Score plugins.
    """

    __slots__ = (
        "_cluster",
        "_evaluated",
        "_filtering",
        "_freshness",
        "_nodes",
        "_order",
        "_pre_filtered",
        "_pre_filters",
        "_results",
        "_scores",
        "_scoring",
        "_skipped_filters",
        "_skipped_scores",
        "_start",
    )

    def __init__(
        self,
        cluster: Cluster,
        search: Search,
        feasible: Feasible,
        start: int,
        pre_filters: Sequence[Step],
        filtering: Filtering,
        scoring: Scoring,
    ) -> None:
        self._cluster = cluster
        self._nodes = NodeColumns(cluster)
        self._results = search.results
        self._order = feasible.order
        self._evaluated = len(feasible.evaluated)
        self._start = start
        self._pre_filters = pre_filters
        self._filtering = filtering
        self._scoring = scoring
        self._scores = scoring.without_pre_score(search)
        self._pre_filtered = search.pre_filtered
        # Frozen: the counter of evaluated plugins is found by these sets for every pod.
        self._skipped_filters = frozenset(search.skipped_filters)
        self._skipped_scores = frozenset(search.signature.skipped.scores)
        changes = cluster.changes
        self._freshness = changes.freshness(
            (
                changes.nodes,
                changes.nominations,
                changes.size,
                changes.order,
                changes.topology,
                changes.images,
                changes.terms,
                changes.objects,
            )
        )
        self._freshness.mark_current()

    def found(self, search: Search, start: int) -> Found | None:
        """The result for an identical pod; None if a complete search is needed."""
        results = self._results
        if search.results is not results or start != self._start or not self._freshness.is_current:
            return None
        search.skipped_filters = self._skipped_filters
        rejected = self._rejected_rows(search) if self._pre_filters else ()
        if rejected is None:
            return None
        feasible = results.feasible if rejected == () else search.signature.feasible
        if feasible is None or len(feasible.evaluated) != self._evaluated:
            return None
        results.update_usage()
        if results.usage_errors or not feasible.update_rejected(results, self._order, rejected):
            return None
        if len(feasible) < 2:
            return None
        search.pre_filtered = self._pre_filtered
        row, count = feasible.best(search.pod, self._added(search, feasible)), len(feasible)
        return Found(search, row, self._cluster.nodes.name[row], count, self._evaluated)

    def _rejected_rows(self, search: Search) -> tuple[RowMask, ...] | None:
        """The rows that uncached plugins reject; None if they have to be filtered."""
        for step in self._pre_filters:
            answer = calls.pre_filter(step, search.state, search.pod, self._nodes)
            search.pre_filter_answers[step.name] = answer
            code = answer.code if isinstance(answer, Status) else None
            if code is not (Code.SKIP if step.name in self._skipped_filters else Code.SUCCESS):
                return None
        return self._filtering.rejected_rows(search)

    def _added(self, search: Search, feasible: Feasible) -> IntColumn | None:
        """What uncached plugins add to the scores."""
        scoring, steps = self._scoring, self._scores
        if steps is None:
            steps = scoring.uncached_steps(search, lambda: feasible.view)
        else:
            search.skipped_scores = self._skipped_scores
        varying = scoring.varying(search, steps) if steps else ()
        return scoring.added(search, feasible.view, varying, feasible.unit) if varying else None
