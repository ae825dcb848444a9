"""The scheduling cycle of one pod: finds a node, or explains why there is none and what preemption would do.

Cluster and pod in, `Decision` out; nothing is written, the caller executes the decision. It is a generator:
with extenders it yields each request and is resumed with the answer (`extender/steps.py`), without them it
never yields.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import msgspec

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Diagnosis, FilterOutcome, Nomination, PostFilterResult, fit_error
from bayplan.framework.plugin_api import PostFilterPlugin
from bayplan.framework.points import Point
from bayplan.framework.status import (
    SUCCESS,
    Code,
    Status,
    WrongResultError,
    describe,
    traceback_of,
    wrong_result,
)
from bayplan.runtime import calls
from bayplan.runtime.framework import Framework
from bayplan.runtime.profile import PointStep
from bayplan.runtime.search import Found, NotFound, Search, Steps, run_through
from bayplan.runtime.timing import timed

NO_NODES: Final = "no nodes available to schedule pods"


class Decision(msgspec.Struct, frozen=True):
    """The result of one attempt.

    `status` is success (then `node_name` is set), a rejection, or an error. `message` is shown to the user.
    `nomination` is the change of the pod's nominated node (None: unchanged).
    """

    pod: Pod
    status: Status
    message: str = ""
    node_name: str = ""
    found: Found | None = None
    diagnosis: Diagnosis | None = None
    post_filter: PostFilterResult | None = None
    nomination: Nomination | None = None
    traceback: str = ""
    """Of the exception that a plugin raised, if that ended the attempt."""

    @property
    def fits(self) -> bool:
        return self.found is not None


def decide(framework: Framework, pod: Pod) -> Decision:
    """One attempt to schedule the pod, without extenders."""
    begun = _begin(framework, pod)
    return begun if isinstance(begun, Decision) else run_through(_complete(framework, begun))


def scheduling_cycle(framework: Framework, pod: Pod) -> Steps[Decision]:
    """One attempt to schedule the pod."""
    begun = _begin(framework, pod)
    return begun if isinstance(begun, Decision) else (yield from _complete(framework, begun))


def _begin(framework: Framework, pod: Pod) -> Search | Decision:
    """Begins an attempt. A Decision if the search for the last identical pod can be repeated, as usual."""
    # Upstream lists the nodes at the beginning of every attempt, even of one that does not evaluate them.
    if not len(framework.cluster.order):
        return _no_nodes(pod)
    try:
        begun = framework.start(pod)
    except calls.AttemptError as error:
        return _plugin_error(framework, pod, error)
    return _found(framework, begun) if isinstance(begun, Found) else begun


def _found(framework: Framework, found: Found) -> Decision:
    if framework.observer is not None:
        framework.observer.ended(found)
    return Decision(found.search.pod, SUCCESS, node_name=found.node_name, found=found)


def _complete(framework: Framework, search: Search) -> Steps[Decision]:
    """The rest of an attempt: a complete search and, if no node fits, PostFilter."""
    pod = search.pod
    try:
        result = yield from framework.complete_search(search)
    except calls.AttemptError as error:
        return _plugin_error(framework, pod, error)
    if isinstance(result, Found):
        return _found(framework, result)
    if framework.observer is not None:
        framework.observer.ended(result)
    answer = None
    if framework.profile.post_filters:
        answer = post_filter(framework, result)
        if framework.extenders is not None:
            answer = yield from framework.extenders.select_victims(pod, answer)
    return _unschedulable(result, answer)


def _no_nodes(pod: Pod) -> Decision:
    return Decision(pod, Status(Code.UNRESOLVABLE, (NO_NODES,)), NO_NODES, nomination=Nomination(""))


def error_decision(pod: Pod, text: str, plugin: str = "", traceback: str = "") -> Decision:
    """The attempt failed because of an error, not because of the pod."""
    status = Status(Code.ERROR, (text,), plugin)
    return Decision(pod, status, text, nomination=Nomination(""), traceback=traceback)


def _plugin_error(framework: Framework, pod: Pod, error: calls.AttemptError) -> Decision:
    """An error of a plugin or an extender ended the search."""
    if error.point:
        framework.caller.passed(error.point, Code.ERROR)
    return error_decision(pod, str(error), error.plugin, error.traceback)


def _unschedulable(result: NotFound, answer: PostFilterResult | None) -> Decision:
    """The message and the nomination of a pod that fits on no node."""
    pod, diagnosis = result.search.pod, result.diagnosis
    if answer is None:
        nomination: Nomination | None = Nomination("")
        text = ""
    else:
        nomination = answer.nomination
        text = answer.status.message
    message = diagnosis_message(diagnosis, text)
    status = Status(Code.UNSCHEDULABLE, (message,))
    return Decision(
        pod,
        status,
        message,
        diagnosis=diagnosis,
        post_filter=answer,
        nomination=nomination,
        traceback="" if answer is None else answer.traceback,
    )


def diagnosis_message(diagnosis: Diagnosis, post_filter_message: str = "") -> str:
    """The message of a pod that fits on no node."""
    return fit_error(
        diagnosis.node_count,
        diagnosis.counts(),
        diagnosis.absent_nodes_status,
        diagnosis.pre_filter_message,
        post_filter_message,
    )


def filter_outcome(framework: Framework, result: NotFound) -> FilterOutcome:
    """The input of PostFilter plugins."""
    search = result.search
    return FilterOutcome(
        cluster=framework.cluster,
        diagnosis=result.diagnosis,
        filter_hypothesis=lambda hypothesis: framework.filtering.filter_hypothesis(search, hypothesis),
        memory=search.results.memory,
        topics=search.results.topics,
        pre_filtered=search.pre_filtered,
        is_local=framework.is_local(search),
        local_filters=framework.local_filters(search),
        filter_row=framework.filtering.row_with_nominated(search),
    )


def post_filter(framework: Framework, result: NotFound) -> PostFilterResult:
    """Calls the PostFilter plugins in turn until one nominates a node or fails with an error."""
    observer = framework.observer
    if observer is None:
        return _post_filter(framework, result)
    since = observer.clock()
    answer = _post_filter(framework, result)
    observer.observe(Point.POST_FILTER, answer.status.code, observer.clock() - since)
    return answer


def _post_filter_text(step: PointStep[PostFilterPlugin], error: Exception) -> str:
    """Names plugin and point, unless the error is a deliberate one with kube-scheduler's text."""
    text = describe(error, step.plugin)
    if isinstance(error, WrongResultError) or traceback_of(error):
        return f'running PostFilter plugin "{step.name}": {text}'
    return text


def _post_filter(framework: Framework, result: NotFound) -> PostFilterResult:
    observer, timer = framework.observer, framework.caller.timer
    outcome = filter_outcome(framework, result)
    reasons: list[str] = []
    nomination: Nomination | None = None
    rejected_by = ""
    for step in framework.profile.post_filters:
        if observer is not None and step.declared.preempts:
            observer.preemption_tried()
        call = timed(timer, step.name, Point.POST_FILTER, step.plugin.post_filter)
        try:
            answer: object = call(result.search.state, result.search.pod, outcome)
        except Exception as error:
            status = Status(Code.ERROR, (_post_filter_text(step, error),), step.name)
            return PostFilterResult(status, traceback=traceback_of(error))
        if not isinstance(answer, PostFilterResult) or not isinstance(answer.status, Status):
            wrong = wrong_result("post_filter", answer, "return a PostFilterResult with a Status")
            return PostFilterResult(Status(Code.ERROR, (_post_filter_text(step, wrong),), step.name))
        code = answer.status.code
        if code is Code.SUCCESS:
            return dataclasses.replace(answer, status=answer.status.by(step.name), earlier=tuple(reasons))
        if code is Code.UNRESOLVABLE:
            return PostFilterResult(answer.status.by(step.name), answer.nomination)
        if not answer.status.is_rejection:
            # An error does not affect the nomination: it stays unchanged.
            return PostFilterResult(Status(Code.ERROR, answer.status.reasons, step.name))
        nomination = answer.nomination or nomination
        reasons.extend(answer.status.reasons)
        rejected_by = rejected_by or step.name
    return PostFilterResult(Status(Code.UNSCHEDULABLE, tuple(reasons), rejected_by), nomination)
