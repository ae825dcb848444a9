"""From decision to binding: Reserve, Permit, waiting, PreBind, Bind; or undoing all of it.

`commit` is the end of the scheduling cycle and synchronous. What follows may take long (a permit, volumes,
the API server), so there is a coroutine for each pod, and many run at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.pod import Pod
from bayplan.errors import APIError, BayplanError, NotFoundError, ServerError, UnknownOutcomeError
from bayplan.framework.outcome import Nomination, fit_error
from bayplan.framework.plugin_api import Wait
from bayplan.framework.points import Point
from bayplan.framework.status import Code, Status, describe, traceback_of, wrong_result
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.profile import PointStep
from bayplan.runtime.timing import timed, timed_wait
from bayplan.scheduler.attempt import (
    Attempt,
    NoBinderError,
    RejectedError,
    check,
    code_of,
    plugin_error,
)
from bayplan.scheduler.binding_progress import BindingProgress, BindingStep
from bayplan.scheduler.context import Context
from bayplan.scheduler.failure import Failures, patch_status
from bayplan.scheduler.observing import PRE_FLIGHT, UNRESERVE
from bayplan.scheduler.pre_bind import pre_bind, pre_flight
from bayplan.scheduler.waiting import MAX_WAIT_SECONDS, WaitingPod
from bayplan.scheduling_queue.object_events import ASSIGNED_POD_DELETE
from bayplan.state.cache import CacheError

PODS_TO_ACTIVATE: Final = "kubernetes.io/pods-to-activate"
"""The key of the cycle state under which plugins store pods, by uid, that should be activated."""

READ_BACK_SECONDS: Final = 1.0
MAX_READ_BACK_SECONDS: Final = 30.0

# In Python 3.11 looking up a member of an enum takes longer than calling a function.
_RESERVE: Final = Point.RESERVE
_PERMIT: Final = Point.PERMIT
_BIND: Final = Point.BIND
_POST_BIND: Final = Point.POST_BIND
_SAMPLED: Final = (PRE_FLIGHT, _BIND)
"""The points of the binding cycle that are measured in sampled attempts only."""

_log = logging.getLogger(__name__)


class Binder(Protocol):
    """Extenders that bind pods instead of the plugins."""

    async def bind(self, pod: Pod, node_name: str) -> bool: ...


class Bindings:
    """Takes pods from decision to binding."""

    def __init__(self, context: Context, failures: Failures, binder: Binder | None) -> None:
        self._context = context
        self._failures = failures
        self._binder = binder
        self.under_way = 0
        """Pods between decision and binding."""

    # The end of the scheduling cycle

    def commit(self, attempt: Attempt) -> None:
        """Assumes the pod, runs Reserve and Permit, and starts the binding."""
        context, pod = self._context, attempt.pod
        try:
            context.cache.assume(pod, attempt.node_name, attempt.search.pod_info)
        except CacheError as error:
            self._report(attempt, BindingStep.FAILED, Point.RESERVE, reason=str(error))
            self._fail(attempt, Status(Code.ERROR, (str(error),)), str(error))
            return
        context.queue.nominations.remove(pod.metadata.uid)
        try:
            seconds = self._reserve_and_permit(attempt)
        except (RejectedError, AttemptError) as error:
            if attempt.timer is not None:
                attempt.timer.passed(error.point, code_of(error))
            self._undo(attempt)
            self._handle_failure(attempt, error)
            return
        if seconds:
            attempt.waiting = WaitingPod(pod, attempt.node_name, seconds, context.loop)
            context.waiting.add(attempt.waiting)
            self._report(attempt, BindingStep.WAITING, Point.PERMIT, tuple(seconds))
        self._activate(attempt)
        start = context.tasks.start if seconds else context.tasks.defer
        start(self._bind_cycle(attempt), "binding of pod", attempt.info.key)

    def _reserve_and_permit(self, attempt: Attempt) -> dict[str, float]:
        """Runs Reserve and Permit. Returns how long the pod has to wait for each plugin."""
        timer, profile = attempt.timer, attempt.profile
        state, pod, node_name = attempt.search.state, attempt.pod, attempt.node_name
        if timer is not None:
            timer.start()
        for step in profile.reserves:
            try:
                call = step.plugin.reserve
                if timer is not None:
                    call = timed(timer, step.name, _RESERVE, call)
                answer = call(state, pod, node_name)
            except Exception as error:
                raise plugin_error(step, _RESERVE, error) from error
            if answer is not None:
                check(step, _RESERVE, answer)
        if timer is not None:
            timer.passed(_RESERVE)
        seconds = self._permit(attempt) if profile.permits else {}
        if timer is not None:
            timer.passed(_PERMIT, Code.WAIT if seconds else Code.SUCCESS)
        return seconds

    def _permit(self, attempt: Attempt) -> dict[str, float]:
        seconds: dict[str, float] = {}
        for step in attempt.profile.permits:
            call = timed(attempt.timer, step.name, Point.PERMIT, step.plugin.permit)
            try:
                answer = call(attempt.search.state, attempt.pod, attempt.node_name)
            except Exception as error:
                raise plugin_error(step, Point.PERMIT, error) from error
            if isinstance(answer, Wait):
                given: object = answer.seconds
                if not isinstance(given, int | float):
                    wrong = wrong_result("permit", answer, "the seconds of Wait must be a number")
                    raise plugin_error(step, Point.PERMIT, wrong)
                seconds[step.name] = min(answer.seconds, MAX_WAIT_SECONDS)
            else:
                check(step, Point.PERMIT, answer)
        return seconds

    def _activate(self, attempt: Attempt) -> None:
        wanted = attempt.search.state.get(PODS_TO_ACTIVATE)
        if wanted:
            self._context.queue.activate(list(wanted.values()))
            self._context.wake()
            wanted.clear()

    def _undo(self, attempt: Attempt) -> bool:
        """Reverts everything that was assumed. False if the cache had already forgotten the pod."""
        points = attempt.points
        since = 0.0 if points is None else points.clock()
        for step in reversed(attempt.profile.reserves):
            try:
                call = timed(attempt.timer, step.name, UNRESERVE, step.plugin.unreserve)
                call(attempt.search.state, attempt.pod, attempt.node_name)
            except Exception as error:
                self._log_failure(step, "Unreserve", attempt, error)
        if points is not None:
            points.observe(UNRESERVE, Code.SUCCESS, points.clock() - since)
        try:
            return self._context.cache.forget(attempt.pod, attempt.node_name)
        except CacheError as error:
            _log.warning("pod %s: %s", attempt.pod.key, error)
            return False

    # The binding cycle

    async def _bind_cycle(self, attempt: Attempt) -> None:
        """Runs the binding cycle and handles its result."""
        self.under_way += 1
        try:
            await self._wait_and_bind(attempt)
        except (RejectedError, AttemptError) as error:
            if attempt.timer is not None and error.point in _SAMPLED:
                attempt.timer.passed(error.point, code_of(error))
            self._failed(attempt, error)
        except Exception as error:
            _log.exception("the binding of pod %s failed", attempt.pod.key)
            self._failed(attempt, AttemptError(describe(error)))
        else:
            self._bound(attempt)
        finally:
            self.under_way -= 1

    async def _wait_and_bind(self, attempt: Attempt) -> None:
        context, pod, timer = self._context, attempt.pod, attempt.timer
        uid = pod.metadata.uid
        try:
            if self._failures.is_writing(uid):
                await self._failures.written(uid)
            if timer is not None:
                timer.start()
            has_work = pre_flight(attempt)
            if timer is not None:
                timer.passed(PRE_FLIGHT, Code.SUCCESS if has_work else Code.SKIP)
            if has_work or attempt.waiting is not None:
                await self._set_expected_node(attempt)
            if attempt.waiting is not None:
                await self._wait_on_permit(attempt)
        finally:
            # Also after an error: a pod among the waiting ones must have a binding cycle.
            if attempt.waiting is not None:
                context.waiting.remove(uid)
        context.queue.done(uid)
        if has_work:
            await self._pre_bind(attempt)
        elif timer is not None:
            timer.start()
            timer.passed(Point.PRE_BIND)
        if self._binder is None or not await self._bound_by_extender(attempt, self._binder):
            await self._bind(attempt)

    async def _pre_bind(self, attempt: Attempt) -> None:
        points = attempt.points
        if points is None:
            await pre_bind(attempt, self._context)
            return
        since, code = points.clock(), Code.SUCCESS
        try:
            await pre_bind(attempt, self._context)
        except (RejectedError, AttemptError) as error:
            code = code_of(error)
            raise
        finally:
            points.observe(Point.PRE_BIND, code, points.clock() - since)

    async def _set_expected_node(self, attempt: Attempt) -> None:
        """Before a binding that may take long, writes the expected node into the pod's status."""
        context, pod, node_name = self._context, attempt.pod, attempt.node_name
        if not context.queue.nominations.set_expected_node(attempt.info, pod, node_name):
            return
        try:
            await patch_status(context, pod, PodStatusPatch(nominated_node_name=node_name))
        except APIError as error:
            _log.warning("cannot set nominatedNodeName of pod %s to %s: %s", pod.key, node_name, error)
            return
        context.queue.nominations.acknowledged(attempt.info, node_name)

    async def _wait_on_permit(self, attempt: Attempt) -> None:
        context, waiting = self._context, attempt.waiting
        assert waiting is not None
        since = context.loop.time()
        outcome = await waiting.outcome()
        context.metrics.permit_wait(outcome.code, context.loop.time() - since)
        if outcome.is_rejection:
            raise RejectedError(outcome)
        if not outcome.is_success:
            raise AttemptError(f"waiting on permit for pod: {outcome.message}", outcome.plugin)

    async def _bind(self, attempt: Attempt) -> None:
        """Calls the Bind plugins in turn until one binds the pod."""
        timer = attempt.timer
        if timer is not None:
            timer.start()
        for step in attempt.profile.binds:
            call = timed_wait(timer, step.name, _BIND, step.plugin.bind)
            if not step.built_in:
                call = self._context.tasks.in_task(call)
            try:
                answer = await call(attempt.search.state, attempt.pod, attempt.node_name)
            except (UnknownOutcomeError, ServerError) as error:
                await self._read_back(attempt, plugin_error(step, _BIND, error))
                answer = None
            except Exception as error:
                raise plugin_error(step, _BIND, error) from error
            if answer is not None:
                if isinstance(answer, Status) and answer.code is Code.SKIP:
                    continue
                check(step, _BIND, answer)
            break
        else:
            raise NoBinderError
        if timer is not None:
            timer.passed(_BIND)

    async def _bound_by_extender(self, attempt: Attempt, binder: Binder) -> bool:
        """False if no extender binds this pod, so that the plugins have to."""
        try:
            return await self._context.tasks.in_task(binder.bind)(attempt.pod, attempt.node_name)
        except BayplanError as error:
            # An extender that answered too late may still have bound the pod.
            await self._read_back(attempt, AttemptError(str(error)))
            return True

    async def _read_back(self, attempt: Attempt, failure: AttemptError) -> None:
        """Reads the pod until the API server says whether a binding without a response took effect.

        Raises `failure` if it did not.
        """
        wait = READ_BACK_SECONDS
        while True:
            try:
                pod = await self._context.api.get(Pod, attempt.pod.name, attempt.pod.namespace)
            except NotFoundError:
                raise failure from None
            except APIError as again:
                _log.warning("cannot read pod %s back, trying again: %s", attempt.pod.key, again)
                await asyncio.sleep(wait)
                wait = min(2 * wait, MAX_READ_BACK_SECONDS)
                continue
            if pod.uid == attempt.pod.uid and pod.spec.node_name == attempt.node_name:
                return
            raise failure

    # The end of an attempt

    def _bound(self, attempt: Attempt) -> None:
        context, info, profile = self._context, attempt.info, attempt.profile
        context.recorder.scheduled(attempt.pod, attempt.node_name, profile.scheduler_name)
        if context.on_binding is not None:
            self._report(attempt, BindingStep.BOUND)
        if context.metrics.enabled:
            seconds = context.loop.time() - attempt.started
            first = info.initial_attempt_timestamp
            assert first is not None, "set when the pod became active"
            context.metrics.pod_scheduled(
                profile.scheduler_name, seconds, info.attempts, context.now() - first
            )
            if info.was_flushed and context.cluster.release.queue.counts_flushed_pods:
                context.metrics.scheduled_after_flush()
        if profile.post_binds or attempt.timer is not None:
            self._post_bind(attempt)
        self._activate(attempt)

    def _post_bind(self, attempt: Attempt) -> None:
        timer = attempt.timer
        if timer is not None:
            timer.start()
        for step in attempt.profile.post_binds:
            call = timed(timer, step.name, Point.POST_BIND, step.plugin.post_bind)
            try:
                call(attempt.search.state, attempt.pod, attempt.node_name)
            except Exception as error:
                self._log_failure(step, Point.POST_BIND, attempt, error)
        if timer is not None:
            timer.passed(_POST_BIND)

    def _failed(self, attempt: Attempt, error: RejectedError | AttemptError) -> None:
        """Reverts a failed binding; if a cycle is waiting for an extender, after that cycle."""
        self._context.between_cycles(lambda: self._revert(attempt, error))

    def _revert(self, attempt: Attempt, error: RejectedError | AttemptError) -> None:
        """Reverts everything, and requeues pods that may now fit."""
        context, assigned = self._context, attempt.assigned_pod
        forgotten = self._undo(attempt)
        if not isinstance(error, RejectedError) and forgotten:
            context.queue.move_to_active_or_backoff(ASSIGNED_POD_DELETE, assigned, None)
        self._handle_failure(attempt, error)
        if isinstance(error, RejectedError) and forgotten:
            context.queue.move_to_active_or_backoff(
                ASSIGNED_POD_DELETE, assigned, None, precheck=lambda other: other.uid != attempt.pod.uid
            )
        preemptor = context.preemptors.pop(attempt.pod.uid, None)
        if preemptor is not None:
            context.queue.activate([preemptor])
        context.wake()

    def _log_failure(self, step: PointStep[Any], point: str, attempt: Attempt, error: Exception) -> None:
        """Logs an exception that does not fail the attempt."""
        text = f'running {point} plugin "{step.name}" for pod {attempt.pod.key}'
        self._context.failures.log(_log, f"{text}: {describe(error, step.plugin)}", traceback_of(error))

    def _handle_failure(self, attempt: Attempt, error: RejectedError | AttemptError) -> None:
        self._report_failure(attempt, error)
        if not isinstance(error, RejectedError):
            if error.traceback:
                self._context.failures.log(_log, f"pod {attempt.pod.key}: {error}", error.traceback)
            self._fail(attempt, Status(Code.ERROR, (str(error),)), str(error))
        elif error.late:
            self._fail(attempt, error.status, error.status.message)
        else:
            message = fit_error(1, [(error.status, 1)])
            self._fail(attempt, error.status, message, frozenset((error.status.plugin,)))

    def _report_failure(self, attempt: Attempt, error: RejectedError | AttemptError) -> None:
        point = error.point or (Point.PERMIT if attempt.pre_binding is None else Point.PRE_BIND)
        if isinstance(error, RejectedError):
            status = error.status
            self._report(attempt, BindingStep.REJECTED, point, (status.plugin,), status.message)
        else:
            self._report(attempt, BindingStep.FAILED, point, reason=str(error))

    def _report(
        self,
        attempt: Attempt,
        step: BindingStep,
        point: str = "",
        plugins: tuple[str, ...] = (),
        reason: str = "",
    ) -> None:
        on_binding = self._context.on_binding
        if on_binding is not None:
            on_binding(BindingProgress(attempt.pod, attempt.node_name, step, point, plugins, reason))

    def _fail(
        self, attempt: Attempt, status: Status, message: str, plugins: frozenset[str] = frozenset()
    ) -> None:
        result = "unschedulable" if status.is_rejection else "error"
        if self._context.metrics.enabled:
            seconds = self._context.loop.time() - attempt.started
            self._context.metrics.attempt(result, attempt.info.profile, seconds)
        self._failures.handle(
            attempt.info, attempt.assigned_pod, status, message, Nomination(""), plugins=plugins
        )
