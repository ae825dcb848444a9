"""Where extenders take part in a scheduling cycle: after the filters, in scoring, and in preemption.

Each step yields its request and is resumed with the answer; nothing in the cluster changes in between.
"""

from __future__ import annotations

import random
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
    Accepted,
    FilterRequest,
    FilterResponse,
    Found,
    PreemptRequest,
    PreemptResponse,
    PrioritizeRequest,
    PrioritizeResponse,
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
        response = yield from self._filter(found.search.pod, [found.node_name])
        return found.node_name in response.node_names

    def filter(self, pod: Pod, feasible: NodeColumns) -> Steps[Accepted]:
        """The nodes that the extenders accept, in the order of their answer.

        schedule_one.go: findNodesThatPassExtenders
        """
        cluster = self._framework.cluster
        names = [cluster.nodes.name[row] for row in feasible.rows]
        if not names:
            return Accepted(feasible, FilterResponse())
        response = yield from self._filter(pod, names)
        if response.error:
            raise calls.AttemptError(response.error)
        rows = np.array([cluster.nodes.row_of[name] for name in response.node_names], dtype=np.intp)
        return Accepted(NodeColumns(cluster, rows), response)

    def _filter(self, pod: Pod, names: list[str]) -> Steps[FilterResponse]:
        response = yield FilterRequest(pod, names)
        assert isinstance(response, FilterResponse)
        return response

    def best(self, pod: Pod, nodes: NodeColumns, totals: IntColumn) -> Steps[int]:
        """The best row. Ties among nodes that an extender scored are broken at random, others by position.

        With FirstNode all are broken by position.
        """
        tie_break = self._framework.tie_break
        names = [self._framework.cluster.nodes.name[row] for row in nodes.rows]
        response = yield PrioritizeRequest(pod, names)
        assert isinstance(response, PrioritizeResponse)
        position = -1
        if response.scores:
            totals = totals + np.array([response.scores.get(name, 0) for name in names], dtype=np.int64)
            tied = (totals == totals.max()).nonzero()[0]
            scored = [int(place) for place in tied if names[place] in response.scores]
            if len(tied) > 1 and scored and tie_break is not TieBreak.FIRST_NODE:
                position = self._rng.choice(scored)
        return int(nodes.rows[position if position >= 0 else pick(totals, ANY_TOTAL, tie_break)])

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
