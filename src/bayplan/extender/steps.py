"""Where extenders take part in a scheduling cycle: after the filters, in scoring, and in preemption.

Each step yields its request and is resumed with the answer; nothing in the cluster changes in between.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Nomination, PostFilterResult
from bayplan.framework.points import TieBreak
from bayplan.framework.status import Code, Status
from bayplan.preemption.evaluation import pick_eviction, success_status
from bayplan.runtime import calls
from bayplan.runtime.feasible import pick
from bayplan.runtime.framework import Framework
from bayplan.runtime.search import (
    EXTENDER,
    Filtered,
    FilterRequest,
    FilterResponse,
    Found,
    NotFound,
    PreemptRequest,
    PreemptResponse,
    PrioritizeRequest,
    PrioritizeResponse,
    Search,
    Steps,
)
from bayplan.state.view import IntColumn, NodeColumns

ANY_TOTAL: Final = 2**63 - 1
"""The scores of extenders have no upper limit."""

NO_CANDIDATE: Final = "preemption: no candidate node for preemption"


class CycleExtenders:
    """The extenders of a cycle of one profile (`runtime.search.ExtenderSteps`)."""

    def __init__(self, framework: Framework, rng: random.Random, *, needs_all_feasible: bool) -> None:
        self.needs_all_feasible = needs_all_feasible
        self._framework = framework
        self._rng = rng

    def accepts(self, found: Found) -> Steps[bool]:
        response = yield FilterRequest(found.search.pod, [found.node_name])
        self._start_timer()
        assert isinstance(response, FilterResponse)
        return found.node_name in response.node_names

    def choose(self, search: Search, filtered: Filtered) -> Steps[Found | NotFound]:
        framework = self._framework
        left, response = yield from self._filter(search.pod, filtered)
        if not len(left):
            return self._not_found(search, filtered, response)
        names = [framework.cluster.nodes.name[row] for row in left.rows]
        best = 0
        if len(left) > 1:
            totals = framework.totals(search, left)
            scores = yield PrioritizeRequest(search.pod, names)
            assert isinstance(scores, PrioritizeResponse)
            best = self._best(totals, names, scores)
        return Found(search, int(left.rows[best]), names[best], len(left), len(filtered.evaluated))

    def select_victims(self, pod: Pod, answer: PostFilterResult) -> Steps[PostFilterResult]:
        if answer.alternatives is None:
            return answer
        response = yield PreemptRequest(pod, answer.alternatives())
        assert isinstance(response, PreemptResponse)
        if response.error:
            return PostFilterResult(Status(Code.ERROR, (f"preemption: {response.error}",)))
        eviction = pick_eviction(response.candidates)
        if eviction is None:
            # The reasons of earlier plugins come first, as if preemption had been rejected.
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (*answer.earlier, NO_CANDIDATE)))
        status = success_status(eviction, self._framework.cluster.release).by(answer.status.plugin)
        return PostFilterResult(status, Nomination(eviction.node_name), eviction)

    def _filter(self, pod: Pod, filtered: Filtered) -> Steps[tuple[NodeColumns, FilterResponse]]:
        """The rows that the extenders accept, in the order of their answer."""
        cluster = self._framework.cluster
        names = [cluster.nodes.name[row] for row in filtered.view.rows]
        if not names:
            return filtered.view, FilterResponse()
        response = yield FilterRequest(pod, names)
        self._start_timer()
        assert isinstance(response, FilterResponse)
        if response.error:
            raise calls.AttemptError(response.error)
        rows = np.array([cluster.nodes.row_of[name] for name in response.node_names], dtype=np.intp)
        return NodeColumns(cluster, rows), response

    def _start_timer(self) -> None:
        """The time that extenders take belongs to no extension point."""
        timer = self._framework.caller.timer
        if timer is not None:
            timer.start()

    def _not_found(self, search: Search, filtered: Filtered, response: FilterResponse) -> NotFound:
        result = self._framework.not_found(search, filtered)
        row_of = self._framework.cluster.nodes.row_of
        result.diagnosis.overrule(
            {row_of[name]: status for name, status in response.statuses.items() if name in row_of}
        )
        if response.removed:
            result.diagnosis.rejecting_plugins.add(EXTENDER)
        return result

    def _best(self, totals: IntColumn, names: Sequence[str], response: PrioritizeResponse) -> int:
        """Ties among nodes that an extender scored are broken at random, others by position.

        With FirstNode all are broken by position.
        """
        tie_break = self._framework.tie_break
        if not response.scores:
            return pick(totals, ANY_TOTAL, tie_break)
        totals = totals + np.array([response.scores.get(name, 0) for name in names], dtype=np.int64)
        tied = (totals == totals.max()).nonzero()[0]
        scored = [int(place) for place in tied if names[place] in response.scores]
        if len(tied) == 1 or not scored or tie_break is TieBreak.FIRST_NODE:
            return pick(totals, ANY_TOTAL, tie_break)
        return self._rng.choice(scored)
