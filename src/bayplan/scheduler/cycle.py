"""The scheduling cycle of one pod: finds a node, or explains why there is none and what preemption would do.

Cluster and pod in, `Decision` out; nothing is written, the caller executes the decision. It is a generator:
with extenders it yields each request and is resumed with the answer (`extender/steps.py`), without them it
never yields.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Diagnosis, Nomination, PostFilterResult, fit_error
from bayplan.framework.state import GROUP_CYCLE, GroupCycleState, is_cut_off
from bayplan.framework.status import SUCCESS, Code, Status
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.framework import Framework
from bayplan.runtime.observed import observed
from bayplan.runtime.search import Found, NotFound, Search, Steps
from bayplan.state.columns import IdColumn
from bayplan.state.pods import PodInfo

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
    is_cut_off: bool = False
    """Whether a plugin used up the time that it may search (`framework.state.mark_cut_off`)."""
    search: Search | None = None
    """The search that found no node."""

    @property
    def fits(self) -> bool:
        return self.found is not None


def decide(framework: Framework, pod: Pod, info: PodInfo | None = None) -> Decision:
    """One attempt to schedule the pod, without extenders.

    Args:
        info: of the pod, if it is known.
    """
    try:
        request = next(scheduling_cycle(framework, pod, info=info))
    except StopIteration as end:
        decision: Decision = end.value
        return decision
    raise RuntimeError(f"there are no extenders to answer {request!r}")


def scheduling_cycle(
    framework: Framework,
    pod: Pod,
    rows: IdColumn | None = None,
    group: GroupCycleState | None = None,
    *,
    runs_post_filter: bool = True,
    info: PodInfo | None = None,
) -> Steps[Decision]:
    """One attempt to schedule the pod.

    A member of a group may be restricted to some rows of the node list, and has no PostFilter of its own.

    schedule_one.go: schedulingAlgorithm
    """
    if not framework.cluster.node_count:
        framework.cluster.list_nodes()
        return Decision(pod, Status(Code.UNRESOLVABLE, (NO_NODES,)), NO_NODES, nomination=Nomination(""))
    observer, search = framework.observer, None
    if observer is not None:
        framework = observed(framework, observer)
    try:
        search = framework.begin(pod, info)
        search.rows = rows
        if group is not None:
            search.state.write(GROUP_CYCLE, group)
        result = yield from framework.search(search)
    except AttemptError as error:
        framework.failed(error)
        framework.cluster.list_nodes()
        cut_off = search is not None and is_cut_off(search.state)
        return error_decision(pod, str(error), error.plugin, error.traceback, cut_off=cut_off)
    if observer is not None:
        observer.ended(result)
    if isinstance(result, Found):
        return Decision(pod, SUCCESS, node_name=result.node_name, found=result)
    answer = None
    if framework.profile.post_filters and runs_post_filter:
        answer = run_post_filter(framework, result)
        if framework.extenders is not None:
            answer = yield from framework.extenders.select_victims(pod, answer)
    return _unschedulable(result, answer)


def run_post_filter(framework: Framework, result: NotFound) -> PostFilterResult:
    """The result of the PostFilter plugins for a pod that fits on no node."""
    search, outcome = result.search, framework.filter_outcome(result)
    return framework.points.post_filter(framework.profile, search.state, search.pod, outcome)


def error_decision(
    pod: Pod, text: str, plugin: str = "", traceback: str = "", *, cut_off: bool = False
) -> Decision:
    """The attempt failed because of an error, not because of the pod."""
    status = Status(Code.ERROR, (text,), plugin)
    return Decision(pod, status, text, nomination=Nomination(""), traceback=traceback, is_cut_off=cut_off)


def _unschedulable(result: NotFound, answer: PostFilterResult | None) -> Decision:
    """The message and the nomination of a pod that fits on no node."""
    message = diagnosis_message(result.diagnosis, "" if answer is None else answer.status.message)
    return Decision(
        result.search.pod,
        Status(Code.UNSCHEDULABLE, (message,)),
        message,
        diagnosis=result.diagnosis,
        post_filter=answer,
        nomination=Nomination("") if answer is None else answer.nomination,
        traceback="" if answer is None else answer.traceback,
        is_cut_off=is_cut_off(result.search.state),
        search=result.search,
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
