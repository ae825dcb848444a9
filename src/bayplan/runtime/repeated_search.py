"""Repeats a search for an identical pod, while nothing but the pods on the nodes has changed.

Every PreFilter would return the same, the same plugins are skipped and the same nodes are evaluated. So it is
enough to bring the rows up to date whose pods have changed, and to take the best row. This requires that
every uncached plugin returned SKIP_FOR_SIGNATURE, or returns SKIP for each pod, or has the same score for all
nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.feasible import Feasible
from bayplan.runtime.profile import Step
from bayplan.runtime.search import Found, Search
from bayplan.snapshot.cluster import Cluster
from bayplan.snapshot.view import NodeColumns


class RepeatedSearch:
    """The last search for a pod of one signature.

    Args:
        search: the last search. It evaluated all nodes, and no uncached plugin took part in it.
        feasible: the rows that passed.
        start: where in the node list it began. The next search must begin there, too.
        skipping: uncached plugins whose PreFilter returned SKIP; it is called for every pod.
        uniform: uncached plugins that gave all nodes the same score, which is checked for every pod.
    """

    __slots__ = (
        "_cluster",
        "_feasible",
        "_freshness",
        "_nodes",
        "_pre_filtered",
        "_results",
        "_skipped_filters",
        "_skipped_scores",
        "_skipping",
        "_start",
        "_uniform",
    )

    def __init__(
        self,
        cluster: Cluster,
        search: Search,
        feasible: Feasible,
        start: int,
        skipping: Sequence[Step],
        uniform: Sequence[Step],
    ) -> None:
        self._cluster = cluster
        self._nodes = NodeColumns(cluster)
        self._results = search.results
        self._feasible = feasible
        self._start = start
        self._skipping = skipping
        self._uniform = uniform
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
        results, feasible = self._results, self._feasible
        if search.results is not results or results.feasible is not feasible or start != self._start:
            return None
        if not self._freshness.is_current:
            return None
        for step in self._skipping:
            answer = calls.pre_filter(step, search.state, search.pod, self._nodes)
            search.pre_filter_answers[step.name] = answer
            if not (isinstance(answer, Status) and answer.code is Code.SKIP):
                return None
        for step in self._uniform:
            if not calls.has_uniform_score(step, search.state, search.pod):
                return None
        results.update_usage()
        if results.usage_errors or not feasible.update_passing() or len(feasible) < 2:
            return None
        search.pre_filtered = self._pre_filtered
        search.skipped_filters, search.skipped_scores = self._skipped_filters, self._skipped_scores
        row, count = feasible.best(search.pod, None), len(feasible)
        return Found(search, row, self._cluster.nodes.name[row], count, len(feasible.evaluated))
