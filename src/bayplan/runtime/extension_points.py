"""Runs the extension points around the search: PreEnqueue, PostFilter, and Reserve to PostBind.

Each function runs all plugins of a point, as upstream's Run…Plugins do, and handles their exceptions and
wrong results. From Reserve on, None and success let an attempt continue; a rejection raises `RejectedError`,
anything else `AttemptError`. `calls.py` has the points of the search. No other module calls a plugin.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.framework.outcome import FilterOutcome, Nomination, PostFilterResult
from bayplan.framework.plugin_api import PreBindPlugin, PreEnqueuePlugin, Wait
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import (
    Code,
    Status,
    WrongResultError,
    describe,
    failure,
    traceback_of,
    wrong_result,
)
from bayplan.runtime.calls import PRE_FLIGHT, AttemptError, plugin_error
from bayplan.runtime.profile import METHODS, PointStep, Profile
from bayplan.runtime.timing import NO_TIMER, AttemptTimer, PointObserver, timed, timed_wait

UNRESERVE: Final = "Unreserve"
MAX_WAIT_SECONDS: Final = 15 * 60.0
"""The longest time that Permit may keep a pod waiting."""

# In Python 3.11 looking up a member of an enum takes longer than calling a function.
_SUCCESS: Final = Code.SUCCESS
_SKIP: Final = Code.SKIP
_PRE_ENQUEUE: Final = Point.PRE_ENQUEUE
_RESERVE: Final = Point.RESERVE
_BIND: Final = Point.BIND

_log = logging.getLogger(__name__)


class NoBinderError(AttemptError):
    """All Bind plugins returned SKIP. No plugin is to blame, and there is no message."""

    def __init__(self) -> None:
        super().__init__("", point=Point.BIND)

    @property
    def code(self) -> Code:
        return Code.SKIP


class RejectedError(BayplanError):
    """A plugin rejected the pod after a node had been found, at an extension point or while the pod waited.

    `late`: at PreBind or Bind. That is reported as a rejection, but the pod is requeued as after an error.
    """

    def __init__(self, status: Status, point: str = "") -> None:
        super().__init__(status.message)
        self.status = status
        self.point = point

    @property
    def late(self) -> bool:
        return self.point in (Point.PRE_BIND, Point.BIND)

    @property
    def code(self) -> Code:
        return self.status.code


def check(step: PointStep[Any], point: Point, answer: object) -> None:
    """Raises if the answer ends the attempt."""
    if answer is None:
        return
    if not isinstance(answer, Status):
        method, more = METHODS[point], " or Wait(seconds)" if point is Point.PERMIT else ""
        expected = f'return None, unschedulable("reason"), failure("text"){more}'
        raise plugin_error(step, point, wrong_result(method, answer, expected))
    if answer.is_success:
        return
    if answer.is_rejection:
        raise RejectedError(answer.by(step.name), point)
    raise plugin_error(step, point, answer.message or f"{point} gave {answer.code.label}")


# Before the queue


class Gated(NamedTuple):
    """The PreEnqueue plugin that keeps a pod out of the active queue."""

    plugin: str
    status: Status


def pre_enqueue(
    profile: Profile, steps: Iterable[PointStep[PreEnqueuePlugin]], pod: Pod, timer: AttemptTimer = NO_TIMER
) -> Gated | None:
    """The first of these plugins that rejects the pod. A plugin that fails rejects the pod."""
    for step in steps:
        try:
            status = timed(timer, step.name, _PRE_ENQUEUE, step.plugin.pre_enqueue)(pod)
            if status is None:
                continue
            answer: object = status
            if not isinstance(answer, Status):
                raise wrong_result("pre_enqueue", answer, 'return None or unschedulable("reason")')
        except Exception as error:
            text = f'running PreEnqueue plugin "{step.name}": {describe(error, step.plugin)}'
            profile.failures.log(_log, f"pod {pod.key} stays gated: {text}", traceback_of(error))
            status = failure(text)
        if status.code is not _SUCCESS:
            return Gated(step.name, status)
    return None


# PostFilter


def post_filter(
    profile: Profile,
    state: CycleState,
    pod: Pod,
    outcome: FilterOutcome,
    timer: AttemptTimer,
    observer: PointObserver,
) -> PostFilterResult:
    """Calls the PostFilter plugins in turn until one nominates a node or fails with an error.

    framework.go: RunPostFilterPlugins
    """
    since = observer.clock()
    result = _post_filter(profile, state, pod, outcome, timer, observer)
    observer.observe(Point.POST_FILTER, result.status.code, observer.clock() - since)
    return result


def _post_filter(
    profile: Profile,
    state: CycleState,
    pod: Pod,
    outcome: FilterOutcome,
    timer: AttemptTimer,
    observer: PointObserver,
) -> PostFilterResult:
    reasons: list[str] = []
    nomination: Nomination | None = None
    rejected_by = ""
    for step in profile.post_filters:
        if step.declared.preempts:
            observer.preemption_tried()
        try:
            call = timed(timer, step.name, Point.POST_FILTER, step.plugin.post_filter)
            answer: object = call(state, pod, outcome)
            if not isinstance(answer, PostFilterResult) or not isinstance(answer.status, Status):
                raise wrong_result("post_filter", answer, "return a PostFilterResult with a Status")
        except Exception as error:
            # A deliberate error has kube-scheduler's text, which does not name plugin and point.
            is_deliberate = not isinstance(error, WrongResultError) and not traceback_of(error)
            text = describe(error, step.plugin)
            if not is_deliberate:
                text = str(plugin_error(step, Point.POST_FILTER, text))
            return PostFilterResult(Status(Code.ERROR, (text,), step.name), traceback=traceback_of(error))
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


# From decision to binding


class Placement(msgspec.Struct, eq=False):
    """A pod on its node, between decision and binding: what the plugins of these points are called with."""

    profile: Profile
    state: CycleState
    pod: Pod
    node_name: str
    timer: AttemptTimer = NO_TIMER


def reserve(placed: Placement) -> None:
    """framework.go: RunReservePluginsReserve"""
    state, pod, node_name, timer = placed.state, placed.pod, placed.node_name, placed.timer
    timer.start()
    for step in placed.profile.reserves:
        call = step.plugin.reserve
        try:
            answer = (call if timer is NO_TIMER else timed(timer, step.name, _RESERVE, call))(
                state, pod, node_name
            )
        except Exception as error:
            raise plugin_error(step, _RESERVE, error) from error
        if answer is not None:
            check(step, _RESERVE, answer)
    timer.passed(_RESERVE)


def unreserve(placed: Placement, observer: PointObserver) -> None:
    """Runs Unreserve of all plugins, in reverse order. Exceptions are only logged.

    framework.go: RunReservePluginsUnreserve
    """
    since = observer.clock()
    for step in reversed(placed.profile.reserves):
        try:
            call = timed(placed.timer, step.name, UNRESERVE, step.plugin.unreserve)
            call(placed.state, placed.pod, placed.node_name)
        except Exception as error:
            _log_failure(placed, step, UNRESERVE, error)
    observer.observe(UNRESERVE, Code.SUCCESS, observer.clock() - since)


def permit(placed: Placement) -> dict[str, float]:
    """How long the pod has to wait for each plugin; empty if it need not.

    framework.go: RunPermitPlugins
    """
    seconds: dict[str, float] = {}
    for step in placed.profile.permits:
        try:
            call = timed(placed.timer, step.name, Point.PERMIT, step.plugin.permit)
            answer = call(placed.state, placed.pod, placed.node_name)
            if isinstance(answer, Wait):
                given: object = answer.seconds
                if not isinstance(given, int | float):
                    raise wrong_result("permit", answer, "the seconds of Wait must be a number")
        except Exception as error:
            raise plugin_error(step, Point.PERMIT, error) from error
        if isinstance(answer, Wait):
            seconds[step.name] = min(answer.seconds, MAX_WAIT_SECONDS)
        else:
            check(step, Point.PERMIT, answer)
    placed.timer.passed(Point.PERMIT, Code.WAIT if seconds else Code.SUCCESS)
    return seconds


def pre_flight(placed: Placement) -> list[PointStep[PreBindPlugin]]:
    """The PreBind plugins that have work to do.

    framework.go: RunPreBindPreFlights
    """
    state, pod, node_name, timer = placed.state, placed.pod, placed.node_name, placed.timer
    with_work = []
    timer.start()
    for step in placed.profile.pre_binds:
        try:
            call = timed(timer, step.name, PRE_FLIGHT, step.plugin.pre_bind_pre_flight)
            answer: object = call(state, pod, node_name)
            if answer is not None and not isinstance(answer, Status):
                raise wrong_result("pre_bind_pre_flight", answer, "return None, SKIP or failure(text)")
        except Exception as error:
            raise plugin_error(step, PRE_FLIGHT, error) from error
        if answer is None or answer.is_success:
            with_work.append(step)
        elif answer.code is _SKIP:
            continue
        elif answer.code is Code.ERROR:
            raise plugin_error(step, PRE_FLIGHT, answer.message)
        else:
            raise AttemptError(
                f'{PRE_FLIGHT} {step.name} returned "{answer.code.label}", which is unsupported. '
                "It is supposed to return Success, Skip, or Error status",
                step.name,
                PRE_FLIGHT,
            )
    timer.passed(PRE_FLIGHT, _SUCCESS if with_work else _SKIP)
    return with_work


async def pre_bind(step: PointStep[PreBindPlugin], placed: Placement, cause: Callable[[], str]) -> None:
    """Runs PreBind of one plugin. `cause` says why the pod is not bound after all; empty if it still may be.

    framework.go: runPreBindPlugin
    """
    try:
        call = timed_wait(placed.timer, step.name, Point.PRE_BIND, step.plugin.pre_bind)
        answer = await call(placed.state, placed.pod, placed.node_name)
    except asyncio.CancelledError:
        if not cause():
            raise
        raise plugin_error(step, Point.PRE_BIND, cause()) from None
    except Exception as error:
        raise plugin_error(step, Point.PRE_BIND, error) from error
    check(step, Point.PRE_BIND, answer)


async def bind(
    placed: Placement,
    in_task: Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]],
    unknown: tuple[type[Exception], ...],
    read_back: Callable[[AttemptError], Awaitable[None]],
) -> None:
    """Calls the Bind plugins in turn until one binds the pod.

    Args:
        in_task: how plugins that are not built in are called.
        unknown: errors after which it is not known whether the pod is bound.
        read_back: finds out, and raises the error if it is not.

    framework.go: RunBindPlugins
    """
    timer = placed.timer
    timer.start()
    for step in placed.profile.binds:
        call = (
            step.plugin.bind if timer is NO_TIMER else timed_wait(timer, step.name, _BIND, step.plugin.bind)
        )
        if not step.built_in:
            call = in_task(call)
        try:
            answer = await call(placed.state, placed.pod, placed.node_name)
        except unknown as error:
            await read_back(plugin_error(step, _BIND, error))
            answer = None
        except Exception as error:
            raise plugin_error(step, _BIND, error) from error
        if answer is not None:
            if isinstance(answer, Status) and answer.code is _SKIP:
                continue
            check(step, _BIND, answer)
        break
    else:
        raise NoBinderError
    timer.passed(_BIND)


def post_bind(placed: Placement) -> None:
    """Runs PostBind. Exceptions are only logged.

    framework.go: RunPostBindPlugins
    """
    placed.timer.start()
    for step in placed.profile.post_binds:
        try:
            call = timed(placed.timer, step.name, Point.POST_BIND, step.plugin.post_bind)
            call(placed.state, placed.pod, placed.node_name)
        except Exception as error:
            _log_failure(placed, step, Point.POST_BIND, error)
    placed.timer.passed(Point.POST_BIND)


def _log_failure(placed: Placement, step: PointStep[Any], point: str, error: Exception) -> None:
    """Logs an exception that does not fail the attempt."""
    text = f'running {point} plugin "{step.name}" for pod {placed.pod.key}: {describe(error, step.plugin)}'
    placed.profile.failures.log(_log, text, traceback_of(error))
