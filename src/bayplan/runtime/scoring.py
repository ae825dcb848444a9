"""Runs the uncached Score plugins and computes totals.

Totals are only compared among feasible nodes, so scores that are equal for all of them may be omitted.
"""

from __future__ import annotations

from collections.abc import Callable

from bayplan.framework.status import SKIP_FOR_SIGNATURE, Code
from bayplan.runtime import calls
from bayplan.runtime.profile import Profile, Step
from bayplan.runtime.search import Search
from bayplan.runtime.timing import Caller
from bayplan.state.cluster import Cluster
from bayplan.state.columns import IdColumn
from bayplan.state.view import IntColumn, NodeColumns


class Scoring:
    """The Score plugins of one profile on one cluster."""

    def __init__(self, profile: Profile, cluster: Cluster, caller: Caller) -> None:
        self._cluster = cluster
        self._caller = caller
        self._pre_scores = tuple(step for step in profile.pre_scores if not step.cached)
        self._scores = tuple(step for step in profile.scores if not step.cached)

    def uncached_steps(self, search: Search, view: Callable[[], NodeColumns]) -> list[Step]:
        """The uncached plugins that score this pod. Usually there are none."""
        for_signature = search.signature.skipped.scores
        skipped = search.skipped_scores = set(for_signature)
        for step in self._pre_scores:
            if step.name not in for_signature:
                answer = self._caller.calls.pre_score(step, search.state, search.pod, view())
                if answer.code is Code.SKIP:
                    skipped.add(step.name)
                    if answer is SKIP_FOR_SIGNATURE:
                        for_signature.add(step.name)
        return [step for step in self._scores if step.name not in skipped]

    def varying(self, search: Search, steps: list[Step]) -> list[Step]:
        """The steps whose scores may differ between nodes."""
        return [
            step
            for step in steps
            if step.uniform_score is None or not calls.has_uniform_score(step, search.state, search.pod)
        ]

    def without_pre_score(self, search: Search) -> list[Step] | None:
        """The uncached plugins that score the pods of this signature, if no PreScore runs for them; else
        None."""
        skipped = search.signature.skipped.scores
        if any(step.name not in skipped for step in self._pre_scores):
            return None
        return [step for step in self._scores if step.name not in skipped]

    def totals(self, search: Search, view: NodeColumns, steps: list[Step]) -> IntColumn:
        """Total scores of these (feasible) rows."""
        results = search.results
        totals = results.totals(view.rows)
        for part in (results.normalized(search.pod, view.rows), self.added(search, view, steps, 1)):
            if part is not None:
                totals += part
        return totals

    def added(self, search: Search, view: NodeColumns, steps: list[Step], unit: int) -> IntColumn | None:
        """What uncached plugins add: the weighted sum of their scores, in units.

        Scores that are equal for all rows change nothing, and are omitted where that is known.
        """
        added: IntColumn | None = None
        for step in steps:
            factor = step.weight * unit
            by_domain = (
                self._caller.calls.scores_by_domain(step, search.state, search.pod, view)
                if step.domain_scores is not None
                else None
            )
            if by_domain is not None:
                if not by_domain.differ:
                    continue
                scores: IntColumn = view.by_domain(by_domain.topology_key, by_domain.table * factor)
            else:
                raw = self._caller.calls.score_rows(step, search.state, search.pod, view)
                scores = factor * self._caller.calls.normalized(step, search.state, search.pod, view, raw)
            added = scores if added is None else added + scores
        return added

    def table(self, search: Search, rows: IdColumn) -> list[tuple[Step, IntColumn, IntColumn]]:
        """For each plugin that scores the pod: raw and normalised scores of these (feasible) rows."""
        search.results.prepare_scores()
        view = NodeColumns(self._cluster, rows)
        steps = (*search.results.scorers(), *self.uncached_steps(search, lambda: view))
        table = []
        for step in sorted(steps, key=lambda step: step.index):
            state = search.results.state_of(step) if step.cached else search.state
            raw = self._caller.calls.score_rows(step, state, search.pod, view)
            table.append((step, raw, self._caller.calls.normalized(step, state, search.pod, view, raw)))
        return table
