"""The scheduling cycle where extenders have a say.

Still a plain function, but one that stops in the middle: it yields what it wants to ask the extenders and is
resumed with the answer. Nothing in the cluster may change in between. Without extenders `cycle.py` is enough.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Final

import numpy as np

from bayplan.api.pod import Pod
from bayplan.extender.requests import (
    EXTENDER,
    FilterRequest,
    FilterResponse,
    PreemptRequest,
    PreemptResponse,
    PrioritizeRequest,
    PrioritizeResponse,
    Request,
    Response,
)
from bayplan.framework.outcome import Nomination, PostFilterResult
from bayplan.framework.points import Point
from bayplan.framework.status import SUCCESS, Code, Status
from bayplan.preemption.evaluation import least_loss
from bayplan.runtime import calls
from bayplan.runtime.framework import Framework
from bayplan.runtime.search import Filtered, Found, NotFound, Search
from bayplan.runtime.ties import pick
from bayplan.runtime.timing import FILTERED
from bayplan.scheduler.cycle import (
    Decision,
    broke,
    no_nodes,
    post_filter,
    unschedulable_decision,
)
from bayplan.snapshot.view import IntColumn, NodeColumns

ANY_TOTAL: Final = 2**63 - 1
"""Extenders may add whatever they like."""

NO_CANDIDATE: Final = "preemption: no candidate node for preemption"

Asking = Generator[Request, Response, Decision]


def decide_asking(framework: Framework, pod: Pod, chance: random.Random) -> Asking:
    """One attempt to schedule the pod, asking extenders on the way."""
    # Upstream lists the nodes at the beginning of every attempt, even of one that does not look at them.
    if not len(framework.cluster.order):
        return no_nodes(pod)
    try:
        result = yield from _find(framework, pod, chance)
    except calls.AttemptError as error:
        return broke(framework, pod, error)
    if framework.observer is not None:
        framework.observer.ended(result)
    if isinstance(result, Found):
        return Decision(pod, SUCCESS, node_name=result.node_name, found=result)
    if not framework.profile.plugins[Point.POST_FILTER]:
        return unschedulable_decision(result, None)
    answer = yield from _preempt(framework, result)
    return unschedulable_decision(result, answer)


def _find(
    framework: Framework, pod: Pod, chance: random.Random
) -> Generator[Request, Response, Found | NotFound]:
    search = framework.begin(pod)
    rejected = framework.pre_filter(search)
    if rejected is not None:
        return NotFound(search, rejected)
    search.standing.sync()
    promised = framework.nominated_first(search)
    if promised is not None:
        response = yield FilterRequest(pod, [promised.node_name])
        assert isinstance(response, FilterResponse)
        if promised.node_name in response.node_names:
            return promised
    filtered = framework.filtered(search, framework.filtering.verdicts(search))
    left, response = yield from _ask_filters(framework, pod, filtered)
    if not len(left):
        return _not_found(framework, search, filtered, response)
    names = [framework.cluster.nodes.name[row] for row in left.rows]
    if len(left) == 1:
        best = 0
    else:
        if framework.observer is not None and search.readings is not None:
            framework.observer.go_on(search.readings, FILTERED)  # extenders are no plugins
        totals = framework.totals(search, left)
        scores = yield PrioritizeRequest(pod, names)
        assert isinstance(scores, PrioritizeResponse)
        best = _best(totals, names, scores, chance)
    row = int(left.rows[best])
    return Found(search, row, names[best], len(left), len(filtered.looked_at))


def _ask_filters(
    framework: Framework, pod: Pod, filtered: Filtered
) -> Generator[Request, Response, tuple[NodeColumns, FilterResponse]]:
    """The rows that extenders leave, in the order of their answer."""
    names = [framework.cluster.nodes.name[row] for row in filtered.view.rows]
    if not names:
        return filtered.view, FilterResponse()
    response = yield FilterRequest(pod, names)
    assert isinstance(response, FilterResponse)
    if response.error:
        raise calls.AttemptError(response.error)
    row_of = framework.cluster.nodes.row_of
    rows = np.array([row_of[name] for name in response.node_names], dtype=np.intp)
    return NodeColumns(framework.cluster, rows), response


def _not_found(
    framework: Framework, search: Search, filtered: Filtered, response: FilterResponse
) -> NotFound:
    result = framework.not_found(search, filtered)
    row_of = framework.cluster.nodes.row_of
    result.diagnosis.overrule(
        {row_of[name]: status for name, status in response.statuses.items() if name in row_of}
    )
    if response.removed:
        result.diagnosis.rejecting_plugins.add(EXTENDER)
    return result


def _best(
    totals: IntColumn, names: Sequence[str], response: PrioritizeResponse, chance: random.Random
) -> int:
    """Ties among nodes that an extender scored are broken by chance, all others by the order of the list."""
    if not response.scores:
        return pick(totals, ANY_TOTAL)
    totals = totals + np.array([response.scores.get(name, 0) for name in names], dtype=np.int64)
    tied = (totals == totals.max()).nonzero()[0]
    scored = [int(place) for place in tied if names[place] in response.scores]
    if len(tied) == 1 or not scored:
        return pick(totals, ANY_TOTAL)
    return chance.choice(scored)


def _preempt(framework: Framework, result: NotFound) -> Generator[Request, Response, PostFilterResult]:
    """PostFilter, with the extenders' word on whom to evict."""
    answer = post_filter(framework, result)
    if answer.alternatives is None:
        return answer
    response = yield PreemptRequest(result.search.pod, answer.alternatives())
    assert isinstance(response, PreemptResponse)
    if response.error:
        return PostFilterResult(Status(Code.ERROR, (f"preemption: {response.error}",)))
    eviction = least_loss(response.candidates)
    if eviction is None:
        # What other plugins had said before comes first, as if preemption had only been refused.
        return PostFilterResult(Status(Code.UNSCHEDULABLE, (*answer.earlier, NO_CANDIDATE)))
    return PostFilterResult(answer.status, Nomination(eviction.node_name), eviction)
