"""From decision to binding: Reserve, Permit, waiting, PreBind, Bind; or undoing all of it.

`commit` is the end of the scheduling cycle and synchronous. What follows may take long (a permit, volumes,
the API server), so there is a coroutine for each pod, and many run at once. The plugins are called by
`runtime/extension_points.py`.

PreBind plugins report in advance whether they have work. Neighbours that allow it run in parallel; the first
failure cancels the others. While they run the pod may be preempted: then all of them are cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from bayplan.api.cluster_api import PodStatusPatch
from bayplan.api.pod import Pod
from bayplan.errors import APIError, BayplanError, NotFoundError, ServerError, UnknownOutcomeError
from bayplan.framework.outcome import Nomination, fit_error
from bayplan.framework.plugin_api import PreBindPlugin
from bayplan.framework.points import Point
from bayplan.framework.status import Code, Status, describe
from bayplan.runtime.calls import AttemptError
from bayplan.runtime.extension_points import POINTS, ExtensionPoints, Placement, RejectedError
from bayplan.runtime.framework import Framework
from bayplan.runtime.profile import PointStep
from bayplan.runtime.search import Found, Search
from bayplan.scheduler.context import Context
from bayplan.scheduler.failure import Failures, patch_status, pods_of
from bayplan.scheduler.waiting import BindingProgress, BindingStep, PreBinding, WaitingPod
from bayplan.scheduling_queue.object_events import ASSIGNED_POD_DELETE
from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.state.cache import CacheError

PODS_TO_ACTIVATE: Final = "kubernetes.io/pods-to-activate"
"""The key of the cycle state under which plugins store pods, by uid, that should be activated."""

_UNKNOWN_OUTCOME: Final = (UnknownOutcomeError, ServerError)
"""After these errors it is not known whether the pod was bound."""

READ_BACK_SECONDS: Final = 1.0
MAX_READ_BACK_SECONDS: Final = 30.0


_log = logging.getLogger(__name__)


class Attempt(Placement, eq=False, kw_only=True):
    """A pod between decision and binding."""

    info: QueuedPod
    search: Search
    started: float
    """By the loop's clock, when its scheduling cycle began."""
    points: ExtensionPoints
    """Runs its extension points."""
    waiting: WaitingPod | None = None
    pre_binds: Collection[PointStep[PreBindPlugin]] = ()
    """PreBind plugins that have work to do for this pod."""
    pre_binding: PreBinding | None = None
    """Set while they run."""
    running_tasks: Sequence[asyncio.Task[None]] = ()
    """PreBind plugins that are running now, in parallel. Those that finish without waiting have no task."""

    @property
    def assigned_pod(self) -> Pod:
        """The pod with its node."""
        return replace(self.pod, spec=replace(self.pod.spec, node_name=self.node_name))


def make_attempt(framework: Framework, found: Found, info: QueuedPod, started: float) -> Attempt:
    """The attempt of a pod for which a node was found."""
    search, profile = found.search, framework.profile
    return Attempt(
        profile,
        search.state,
        search.pod,
        found.node_name,
        profile.covered_by_skip & (search.skipped_filters | search.results.skipped),
        info=info,
        search=search,
        started=started,
        points=framework.points,
    )


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

    def assume(self, attempt: Attempt) -> bool:
        """Assumes the pod. False if that failed, which is handled."""
        context, pod = self._context, attempt.pod
        try:
            context.cache.assume(pod, attempt.node_name, attempt.search.pod_info)
        except CacheError as error:
            self._report(attempt, BindingStep.FAILED, Point.RESERVE, reason=str(error))
            self._fail(attempt, Status(Code.ERROR, (str(error),)), str(error))
            return False
        if context.queue.nominations.nodes:
            context.queue.nominations.remove(pod.metadata.uid)
        return True

    def commit(
        self, attempt: Attempt, with_siblings: dict[str, float] | None = None
    ) -> RejectedError | AttemptError | None:
        """Assumes the pod, runs Reserve and Permit, and starts the binding. Returns why that failed.

        Args:
            with_siblings: for a member of a group: what it waits for in addition if it has to wait. It is
                assumed already, and its binding is not started.
        """
        context = self._context
        if with_siblings is None and not self.assume(attempt):
            return None
        try:
            attempt.points.reserve(attempt)
            seconds = attempt.points.permit(attempt)
        except (RejectedError, AttemptError) as error:
            self.reject(attempt, error)
            return error
        if seconds:
            self.hold(attempt, seconds | (with_siblings or {}))
        if PODS_TO_ACTIVATE in attempt.search.state:
            self._activate(attempt)
        if with_siblings is None:
            start = context.tasks.start if seconds else context.tasks.defer
            start(self._bind_cycle(attempt), "binding of pod", attempt.info.key)
        return None

    def start(self, attempt: Attempt) -> None:
        """Starts the binding of a member of a group, together with those of the others."""
        self._context.tasks.defer(self._bind_cycle(attempt), "binding of pod", attempt.info.key)

    def reject(self, attempt: Attempt, error: RejectedError | AttemptError) -> None:
        """Reverts what was assumed for a pod whose binding has not started, and handles its failure."""
        self._undo(attempt)
        self._handle_failure(attempt, error)

    def hold(self, attempt: Attempt, seconds: dict[str, float]) -> None:
        """Lets the pod wait at Permit, so long for each plugin, before its binding begins."""
        attempt.waiting = WaitingPod(attempt.pod, attempt.node_name, seconds, self._context.loop)
        self._context.waiting.add(attempt.waiting)
        self._report(attempt, BindingStep.WAITING, Point.PERMIT, tuple(seconds))

    def _activate(self, attempt: Attempt) -> None:
        wanted = attempt.search.state[PODS_TO_ACTIVATE]
        if wanted:
            self._context.queue.activate(list(wanted.values()))
            self._context.wake()
            wanted.clear()

    def _undo(self, attempt: Attempt) -> bool:
        """Reverts everything that was assumed. False if the cache had already forgotten the pod."""
        attempt.points.unreserve(attempt)
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
            self._failed(attempt, error)
        except Exception as error:
            _log.exception("the binding of pod %s failed", attempt.pod.key)
            self._failed(attempt, AttemptError(describe(error)))
        else:
            self._bound(attempt)
        finally:
            self.under_way -= 1

    async def _wait_and_bind(self, attempt: Attempt) -> None:
        context, uid = self._context, attempt.pod.metadata.uid
        try:
            if uid in self._failures.writing:
                await self._failures.written(uid)
            has_work = attempt.pre_binds = attempt.points.pre_flight(attempt)
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
        if self._binder is None or not await self._bound_by_extender(attempt, self._binder):
            await attempt.points.bind(
                attempt,
                context.tasks.in_task,
                _UNKNOWN_OUTCOME,
                lambda error: self._read_back(attempt, error),
            )

    async def _pre_bind(self, attempt: Attempt) -> None:
        """Runs PreBind. Meanwhile the pod is in `context.pre_binding`, where it can be cancelled.

        framework.go: RunPreBindPlugins
        """
        context, uid = self._context, attempt.pod.metadata.uid

        def stop() -> None:
            for task in attempt.running_tasks:
                task.cancel()

        attempt.pre_binding = context.pre_binding[uid] = PreBinding(stop)
        try:
            with attempt.points.measured(Point.PRE_BIND):
                for group in _pre_bind_groups(attempt):
                    await self._pre_bind_together(attempt, group)
                    if attempt.pre_binding.cause:
                        break
                if not attempt.pre_binding.finish():
                    raise AttemptError(attempt.pre_binding.cause)
        finally:
            del context.pre_binding[uid]

    async def _pre_bind_together(self, attempt: Attempt, steps: list[PointStep[PreBindPlugin]]) -> None:
        running: list[asyncio.Task[None]] = []
        attempt.running_tasks = running

        def cause() -> str:
            return "" if attempt.pre_binding is None else attempt.pre_binding.cause

        try:
            for step in steps:
                work = attempt.points.pre_bind(step, attempt, cause)
                # None: it ran without a task and has already finished.
                task = self._context.tasks.begin(work) if step.built_in else asyncio.ensure_future(work)
                if task is not None:
                    running.append(task)
            if len(running) == 1:
                await running[0]
            elif running:
                for first in asyncio.as_completed(running):
                    await first
        except asyncio.CancelledError:
            # A plugin that was cancelled before its first step could not report the cause.
            if not cause():
                raise
        finally:
            for task in running:
                task.cancel()
            if not all(task.done() for task in running):
                # Nothing may be reverted while a plugin is still running.
                await asyncio.gather(*running, return_exceptions=True)

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
        if context.observers.progressed is not None:
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
        if profile.post_binds or attempt.points is not POINTS:
            attempt.points.post_bind(attempt)
        if PODS_TO_ACTIVATE in attempt.search.state:
            self._activate(attempt)

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
            context.queue.activate(pods_of(preemptor, context.cluster))
        context.wake()

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
        progressed = self._context.observers.progressed
        if progressed is not None:
            progressed(BindingProgress(attempt.pod, attempt.node_name, step, point, plugins, reason))

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


def _pre_bind_groups(attempt: Attempt) -> list[list[PointStep[PreBindPlugin]]]:
    """The PreBind plugins with work to do, in order, grouped if they may run in parallel."""
    groups: list[list[PointStep[PreBindPlugin]]] = [[]]
    for step in attempt.profile.pre_binds:
        has_work, alone = step in attempt.pre_binds, not step.declared.pre_binds_in_parallel
        if alone:
            groups.append([])
        if has_work:
            groups[-1].append(step)
        if alone:
            groups.append([])
    return [group for group in groups if group]
