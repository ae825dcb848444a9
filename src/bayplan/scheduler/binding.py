"""From decision to binding: reserve, permit, wait, prepare, bind; or undo all of it.

`commit` is the end of the scheduling cycle and plain code. What follows may take long (a permit, volumes, the
API server), so it is a coroutine of its own for each pod, and many are under way at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from bayplan.api.pod import Pod
from bayplan.cache.cache import CacheError
from bayplan.errors import APIError, BayplanError, NotFoundError, ServerError, UnknownOutcomeError
from bayplan.framework import calls
from bayplan.framework.cluster_api import PodStatusPatch
from bayplan.framework.framework import Framework
from bayplan.framework.outcome import Nomination, fit_error
from bayplan.framework.plugin_api import Wait
from bayplan.framework.points import Point
from bayplan.framework.search import Search
from bayplan.framework.status import Code, Status
from bayplan.queue.object_events import ASSIGNED_POD_DELETE
from bayplan.queue.queued import QueuedPod
from bayplan.scheduler.context import Context
from bayplan.scheduler.failure import Failures, patch_status
from bayplan.scheduler.waiting import LONGEST_WAIT_SECONDS, PreBinding, WaitingPod

PODS_TO_ACTIVATE: Final = "kubernetes.io/pods-to-activate"
"""Plugins put pods here, by uid, that are to be tried after this one."""

READ_BACK_SECONDS: Final = 1.0
LONGEST_READ_BACK_SECONDS: Final = 30.0

_log = logging.getLogger(__name__)


class Binder(Protocol):
    """Extenders that bind in place of the plugins."""

    async def bind(self, pod: Pod, node_name: str) -> bool: ...


@dataclass(slots=True)
class Attempt:
    """A pod on its way to a node."""

    info: QueuedPod
    pod: Pod
    framework: Framework
    search: Search
    node_name: str
    started: float
    """By the loop's clock, when its scheduling cycle began."""
    waiting: WaitingPod | None = None
    idle_pre_binds: set[str] = field(default_factory=set)
    """PreBind plugins that have nothing to do for this pod."""

    def plugins(self, point: Point) -> tuple[Any, ...]:
        return self.framework.profile.plugins[point]

    @property
    def placed(self) -> Pod:
        """The pod as it would be with its node."""
        return msgspec.structs.replace(
            self.pod, spec=msgspec.structs.replace(self.pod.spec, node_name=self.node_name)
        )


class RejectedError(BayplanError):
    """A plugin turned the pod away after a node had been found.

    `late`: when the pod was no longer waited for (PreBind, Bind). That is told as a rejection, but the pod
    comes back like one whose attempt broke: there is no event that could help it.
    """

    def __init__(self, status: Status, *, late: bool = False) -> None:
        super().__init__(status.message)
        self.status = status
        self.late = late


class Bindings:
    """Takes pods from decision to binding."""

    def __init__(
        self, context: Context, failures: Failures, binder: Binder | None, when_free: Callable[[], Any]
    ) -> None:
        self._context = context
        self._failures = failures
        self._binder = binder
        self._when_free = when_free
        """Awaited before the columns are changed: a cycle may be waiting for an extender."""

    # The end of the scheduling cycle

    def commit(self, attempt: Attempt) -> None:
        """Assumes the pod, asks Reserve and Permit, and starts the binding."""
        context, pod = self._context, attempt.pod
        try:
            context.cache.assume(pod, attempt.node_name, attempt.search.facts)
        except CacheError as error:
            self._fail(attempt, Status(Code.ERROR, (str(error),)), str(error))
            return
        context.queue.nominator.delete(pod.uid)
        try:
            self._reserve(attempt)
            seconds = self._permit(attempt)
        except (RejectedError, calls.AttemptError) as error:
            self._undo(attempt)
            self._rejected_or_broken(attempt, error)
            return
        if seconds:
            attempt.waiting = WaitingPod(pod, attempt.node_name, seconds, context.loop)
            context.waiting.add(attempt.waiting)
        self._activate(attempt)
        context.tasks.start(self._bind_cycle(attempt), f"binding of pod {pod.key}")

    def _reserve(self, attempt: Attempt) -> None:
        for plugin in attempt.plugins(Point.RESERVE):
            try:
                answer = plugin.reserve(attempt.search.state, attempt.pod, attempt.node_name)
            except Exception as error:
                raise _broken("Reserve", plugin.name, calls.describe(error)) from error
            _check(plugin.name, "Reserve", answer)

    def _permit(self, attempt: Attempt) -> dict[str, float]:
        """How long each plugin wants the pod to wait."""
        seconds: dict[str, float] = {}
        for plugin in attempt.plugins(Point.PERMIT):
            try:
                answer = plugin.permit(attempt.search.state, attempt.pod, attempt.node_name)
            except Exception as error:
                raise _broken("Permit", plugin.name, calls.describe(error)) from error
            if isinstance(answer, Wait):
                seconds[plugin.name] = min(answer.seconds, LONGEST_WAIT_SECONDS)
            else:
                _check(plugin.name, "Permit", answer)
        return seconds

    def _activate(self, attempt: Attempt) -> None:
        wanted = attempt.search.state.get(PODS_TO_ACTIVATE)
        if wanted:
            self._context.queue.activate(list(wanted.values()))
            wanted.clear()

    def _undo(self, attempt: Attempt) -> bool:
        """Takes back all that was assumed. False where the cache had forgotten the pod already."""
        for plugin in reversed(attempt.plugins(Point.RESERVE)):
            try:
                plugin.unreserve(attempt.search.state, attempt.pod, attempt.node_name)
            except Exception:
                _log.exception("plugin %s: Unreserve of pod %s failed", plugin.name, attempt.pod.key)
        try:
            return self._context.cache.forget(attempt.pod, attempt.node_name)
        except CacheError as error:
            _log.warning("pod %s: %s", attempt.pod.key, error)
            return False

    # The binding cycle

    async def _bind_cycle(self, attempt: Attempt) -> None:
        context = self._context
        context.metrics.running("binding", 1)
        try:
            await self._wait_and_bind(attempt)
        except (RejectedError, calls.AttemptError) as error:
            await self._failed(attempt, error)
        except Exception as error:
            _log.exception("binding of pod %s broke", attempt.pod.key)
            await self._failed(attempt, calls.AttemptError(calls.describe(error)))
        else:
            self._bound(attempt)
        finally:
            context.metrics.running("binding", -1)

    async def _wait_and_bind(self, attempt: Attempt) -> None:
        context, pod = self._context, attempt.pod
        works = self._pre_flight(attempt)
        if works or attempt.waiting is not None:
            await self._announce(attempt)
        if attempt.waiting is not None:
            await self._wait(attempt)
        context.queue.done(pod.uid)
        if works:
            await self._pre_bind(attempt)
        await self._bind(attempt)

    def _pre_flight(self, attempt: Attempt) -> bool:
        """Whether some PreBind plugin has work to do."""
        works = False
        for plugin in attempt.plugins(Point.PRE_BIND):
            try:
                answer = plugin.pre_bind_pre_flight(attempt.search.state, attempt.pod, attempt.node_name)
            except Exception as error:
                raise _broken("PreBindPreFlight", plugin.name, calls.describe(error), kind="") from error
            if answer is None or answer.is_success:
                works = True
            elif answer.code is Code.SKIP:
                attempt.idle_pre_binds.add(plugin.name)
            elif answer.code is Code.ERROR:
                raise _broken("PreBindPreFlight", plugin.name, answer.message, kind="")
            else:
                raise calls.AttemptError(
                    f'PreBindPreFlight {plugin.name} returned "{answer.code.label}", which is unsupported. '
                    "It is supposed to return Success, Skip, or Error status",
                    plugin.name,
                )
        return works

    async def _announce(self, attempt: Attempt) -> None:
        """Before a binding that may take long others can see where the pod is going."""
        latest = self._context.latest(attempt.pod) or attempt.pod
        if latest.status.nominated_node_name == attempt.node_name:
            return
        try:
            await patch_status(
                self._context, attempt.pod, PodStatusPatch(nominated_node_name=attempt.node_name)
            )
        except APIError as error:
            _log.warning("cannot announce the node of pod %s: %s", attempt.pod.key, error)

    async def _wait(self, attempt: Attempt) -> None:
        context, waiting = self._context, attempt.waiting
        assert waiting is not None
        since = context.loop.time()
        try:
            outcome = await waiting.outcome()
        finally:
            context.waiting.remove(attempt.pod.uid)
        context.metrics.permit_wait(outcome.code, context.loop.time() - since)
        if outcome.is_rejection:
            raise RejectedError(outcome)
        if not outcome.is_success:
            raise calls.AttemptError(f"waiting on permit for pod: {outcome.message}", outcome.plugin)

    async def _pre_bind(self, attempt: Attempt) -> None:
        """All plugins that have work to do. Those that allow it run side by side."""
        work = asyncio.ensure_future(self._run_pre_binds(attempt))
        pre_binding = PreBinding(work.cancel)
        self._context.pre_binding[attempt.pod.uid] = pre_binding
        try:
            await work
            if not pre_binding.finish():
                raise calls.AttemptError(pre_binding.cause)
        except asyncio.CancelledError:
            if not pre_binding.cause or not work.cancelled():
                work.cancel()
                raise
            raise calls.AttemptError(pre_binding.cause) from None
        finally:
            del self._context.pre_binding[attempt.pod.uid]

    async def _run_pre_binds(self, attempt: Attempt) -> None:
        group: list[Any] = []
        for plugin in attempt.plugins(Point.PRE_BIND):
            parallel = plugin.pre_binds_in_parallel
            if not parallel:
                await self._run_group(attempt, group)
                group = []
            if plugin.name not in attempt.idle_pre_binds:
                group.append(plugin)
                if not parallel:
                    await self._run_group(attempt, group)
                    group = []
        await self._run_group(attempt, group)

    async def _run_group(self, attempt: Attempt, plugins: list[Any]) -> None:
        if len(plugins) == 1:
            await _pre_bind(plugins[0], attempt)
            return
        tasks = [asyncio.ensure_future(_pre_bind(plugin, attempt)) for plugin in plugins]
        try:
            for task in asyncio.as_completed(tasks):
                await task
        finally:
            for unfinished in tasks:
                unfinished.cancel()

    async def _bind(self, attempt: Attempt) -> None:
        pod, node_name = attempt.pod, attempt.node_name
        if self._binder is not None and await self._bound_by_extender(attempt, self._binder):
            return
        for plugin in attempt.plugins(Point.BIND):
            try:
                answer = await plugin.bind(attempt.search.state, pod, node_name)
            except (UnknownOutcomeError, ServerError) as error:
                await self._read_back(attempt, _broken("Bind", plugin.name, str(error)))
                return
            except Exception as error:
                raise _broken("Bind", plugin.name, calls.describe(error)) from error
            if answer is not None and answer.code is Code.SKIP:
                continue
            _check(plugin.name, "Bind", answer)
            return
        raise calls.AttemptError("")

    async def _bound_by_extender(self, attempt: Attempt, binder: Binder) -> bool:
        """False where binding is left to the plugins."""
        try:
            return await binder.bind(attempt.pod, attempt.node_name)
        except BayplanError as error:
            # An extender that answered too late may have bound the pod all the same.
            await self._read_back(attempt, calls.AttemptError(str(error)))
            return True

    async def _read_back(self, attempt: Attempt, failure: calls.AttemptError) -> None:
        """Whether a binding without an answer took effect: asked until the API server says.

        Raises `failure` where it did not.
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
                wait = min(2 * wait, LONGEST_READ_BACK_SECONDS)
                continue
            if pod.uid == attempt.pod.uid and pod.spec.node_name == attempt.node_name:
                return
            raise failure

    # How it ends

    def _bound(self, attempt: Attempt) -> None:
        context, pod, profile = self._context, attempt.pod, attempt.info.profile
        context.recorder.scheduled(pod, attempt.node_name, profile)
        if context.metrics.enabled:
            now = context.loop.time()
            context.metrics.attempt("scheduled", profile, now - attempt.started)
            first = attempt.info.initial_attempt_timestamp
            if first is not None:
                context.metrics.pod_scheduled(attempt.info.attempts, context.now() - first)
        for plugin in attempt.plugins(Point.POST_BIND):
            try:
                plugin.post_bind(attempt.search.state, pod, attempt.node_name)
            except Exception:
                _log.exception("plugin %s: PostBind of pod %s failed", plugin.name, pod.key)
        self._activate(attempt)

    async def _failed(self, attempt: Attempt, error: RejectedError | calls.AttemptError) -> None:
        """The binding did not come about: everything is taken back, and others may use the room."""
        await self._when_free()
        context, placed = self._context, attempt.placed
        forgotten = self._undo(attempt)
        if not isinstance(error, RejectedError) and forgotten:
            context.queue.move_all(ASSIGNED_POD_DELETE, placed, None)
        self._rejected_or_broken(attempt, error)
        if isinstance(error, RejectedError) and forgotten:
            context.queue.move_all(
                ASSIGNED_POD_DELETE, placed, None, precheck=lambda other: other.uid != attempt.pod.uid
            )
        context.wake()

    def _rejected_or_broken(self, attempt: Attempt, error: RejectedError | calls.AttemptError) -> None:
        if not isinstance(error, RejectedError):
            self._fail(attempt, Status(Code.ERROR, (str(error),)), str(error))
        elif error.late:
            self._fail(attempt, error.status, error.status.message)
        else:
            message = fit_error(1, [(error.status, 1)])
            self._fail(attempt, error.status, message, frozenset((error.status.plugin,)))

    def _fail(
        self, attempt: Attempt, status: Status, message: str, plugins: frozenset[str] = frozenset()
    ) -> None:
        result = "unschedulable" if status.is_rejection else "error"
        if self._context.metrics.enabled:
            seconds = self._context.loop.time() - attempt.started
            self._context.metrics.attempt(result, attempt.info.profile, seconds)
        self._failures.handle(attempt.info, attempt.placed, status, message, Nomination(""), plugins=plugins)


async def _pre_bind(plugin: Any, attempt: Attempt) -> None:
    try:
        answer = await plugin.pre_bind(attempt.search.state, attempt.pod, attempt.node_name)
    except Exception as error:
        raise _broken("PreBind", plugin.name, calls.describe(error)) from error
    _check(plugin.name, "PreBind", answer)


def _check(plugin: str, point: str, answer: Status | None) -> None:
    if answer is None or answer.is_success:
        return
    if answer.is_rejection:
        raise RejectedError(answer.by(plugin), late=point in ("PreBind", "Bind"))
    raise _broken(point, plugin, answer.message)


def _broken(point: str, plugin: str, text: str, kind: str = "plugin ") -> calls.AttemptError:
    return calls.AttemptError(f'running {point} {kind}"{plugin}": {text}', plugin)
