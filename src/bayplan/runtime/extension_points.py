"""Runs the extension points around the search: QueueSort, PreEnqueue, PostFilter, and Reserve to PostBind.

Each method runs all plugins of a point, as upstream's Run…Plugins do, and handles their exceptions and wrong
results. From Reserve on, None and success let an attempt continue; a rejection raises `RejectedError`,
anything else `AttemptError`. `calls.py` has the points of the search, `observed.py` the same points with
timers. No other module calls a plugin; queueing hints are functions that plugins register
(`scheduling_queue/hints.py`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.framework.group_api import (
    GroupOutcome,
    GroupPostFilterResult,
    GroupSteps,
    NodePlacement,
)
from bayplan.framework.outcome import FilterOutcome, Nomination, PostFilterResult
from bayplan.framework.plugin_api import (
    BindPlugin,
    PermitPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    SortKey,
    Wait,
)
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import (
    SUCCESS,
    Code,
    Status,
    WrongResultError,
    describe,
    failure,
    is_cancelled,
    plugin_exceptions,
    running_task,
    traceback_of,
    wrong_result,
)
from bayplan.runtime.calls import PRE_FLIGHT, AttemptError, plugin_error
from bayplan.runtime.profile import METHODS, PointStep, Profile
from bayplan.state.groups import Group

UNRESERVE: Final = "Unreserve"
MAX_WAIT_SECONDS: Final = 15 * 60.0
"""The longest time that Permit may keep a pod waiting."""

# In Python 3.11 looking up a member of an enum takes longer than calling a function.
_SUCCESS: Final = Code.SUCCESS
_SKIP: Final = Code.SKIP
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


class Gated(NamedTuple):
    """The PreEnqueue plugin that keeps a pod out of the active queue."""

    plugin: str
    status: Status


class Placement(msgspec.Struct, eq=False):
    """A pod on its node, between decision and binding: what plugins are called with."""

    profile: Profile
    state: CycleState
    pod: Pod
    node_name: str
    skipped: frozenset[str] = frozenset()
    """Plugins that have nothing to reserve and to prepare (`Plugin.skip_covers_binding`)."""


def sort_key_of(profile: Profile) -> Callable[[Pod, float], SortKey]:
    """The function that orders the active queue: the plugin's own, if it is built in."""
    step = profile.queue_sorts[0]
    return step.plugin.sort_key if step.built_in else _CheckedKeys(profile)


class _CheckedKeys:
    """Keys as tuples: (0, key), or (1, timestamp) if the key is unusable.

    A key that cannot be computed or compared must not stop the queue: such pods come last, in the order in
    which they entered it.
    """

    def __init__(self, profile: Profile) -> None:
        self._step = profile.queue_sorts[0]
        self._failures = profile.failures
        self._usable: SortKey | None = None
        """The last usable key: others must be comparable with it."""

    def __call__(self, pod: Pod, timestamp: float) -> SortKey:
        step = self._step
        try:
            key: SortKey | None = step.plugin.sort_key(pod, timestamp)
            if key is None:
                raise wrong_result("sort_key", key, "return a number, a string, or a tuple of these")
            other = key if self._usable is None else self._usable
            _ = (key < other, other < key)
        except plugin_exceptions() as error:
            text = f'running QueueSort plugin "{step.name}": {describe(error, step.declared)}'
            self._failures.log(_log, f"pod {pod.key} is queued last: {text}", traceback_of(error))
            return (1, timestamp)
        self._usable = key
        return (0, key)


InTask = Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]
"""Makes a call one that runs in a task of its own."""

T = TypeVar("T")


class ExtensionPoints:
    """Runs the plugins of a profile at these points."""

    __slots__ = ()

    def measured(self, point: str) -> AbstractContextManager[None]:
        """Around the plugins of a point that the caller runs one by one."""
        return nullcontext()

    def pre_enqueue(
        self, profile: Profile, steps: Sequence[PointStep[PreEnqueuePlugin]], pod: Pod
    ) -> Gated | None:
        """The first of these plugins that rejects the pod. A plugin that fails rejects the pod."""
        spec = pod.spec
        for step in steps:
            if step.pre_enqueue_field and not getattr(spec, step.pre_enqueue_field):
                continue
            try:
                status = step.plugin.pre_enqueue(pod)
                if status is None:
                    continue
                answer: object = status
                if not isinstance(answer, Status):
                    raise wrong_result("pre_enqueue", answer, 'return None or unschedulable("reason")')
            except plugin_exceptions() as error:
                text = f'running PreEnqueue plugin "{step.name}": {describe(error, step.declared)}'
                profile.failures.log(_log, f"pod {pod.key} stays gated: {text}", traceback_of(error))
                status = failure(text)
            if status.code is not _SUCCESS:
                return Gated(step.name, status)
        return None

    def post_filter(
        self, profile: Profile, state: CycleState, pod: Pod, outcome: FilterOutcome
    ) -> PostFilterResult:
        """Calls the PostFilter plugins in turn until one nominates a node or fails with an error.

        framework.go: RunPostFilterPlugins
        """
        reasons: list[str] = []
        nomination: Nomination | None = None
        rejected_by = ""
        for step in profile.post_filters:
            try:
                answer = self.call_post_filter(step, state, pod, outcome)
                if not isinstance(answer, PostFilterResult) or not isinstance(answer.status, Status):
                    raise wrong_result("post_filter", answer, "return a PostFilterResult with a Status")
            except plugin_exceptions() as error:
                # A deliberate error has kube-scheduler's text, which does not name plugin and point.
                is_deliberate = not isinstance(error, WrongResultError) and not traceback_of(error)
                text = describe(error, step.declared)
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

    def call_post_filter(
        self, step: PointStep[PostFilterPlugin], state: CycleState, pod: Pod, outcome: FilterOutcome
    ) -> object:
        """Calls one PostFilter plugin; its answer is not checked yet."""
        return step.plugin.post_filter(state, pod, outcome)

    def placement_feasible(self, profile: Profile, group: Group, scheduled: int, remaining: int) -> Status:
        """Whether the members of a group that are placed so far are enough."""
        for plugin in profile.placement_feasible:
            try:
                answer = plugin.placement_feasible(group, scheduled, remaining)
            except plugin_exceptions() as error:
                return Status(Code.ERROR, (describe(error),))
            if answer is not None and not answer.is_success:
                return answer
        return SUCCESS

    def generate_placements(
        self, profile: Profile, group: Group, scheduled: Sequence[Pod], within: NodePlacement
    ) -> Sequence[NodePlacement] | Status:
        """The sets of nodes for a group: all of them, if no plugin divides them; or why there are none."""
        for step in profile.placement_generators:
            try:
                return step.plugin.generate_placements(group, scheduled, within)
            except plugin_exceptions() as error:
                return Status(Code.ERROR, (describe(error, step.declared),), step.name)
        return (within,)

    def score_placements(
        self,
        profile: Profile,
        group: Group,
        scheduled: Sequence[Pod],
        placements: Sequence[NodePlacement],
        placed: Sequence[Sequence[Pod]],
    ) -> list[int]:
        """The total of each placement. Raises AttemptError if a plugin fails."""
        totals = [0] * len(placements)
        for step, weight in zip(profile.placement_scores, profile.placement_weights, strict=True):
            try:
                scores = step.plugin.score_placements(group, scheduled, placements, placed)
                totals = [total + weight * score for total, score in zip(totals, scores, strict=True)]
            except plugin_exceptions() as error:
                raise plugin_error(step, Point.PLACEMENT_SCORE, error) from error
        return totals

    def pod_group_post_filter(
        self, profile: Profile, outcome: GroupOutcome
    ) -> GroupSteps[GroupPostFilterResult]:
        """Calls the PodGroupPostFilter plugins in turn until one succeeds or rules out that others help.

        framework.go: RunPodGroupPostFilterPlugins
        """
        reasons: list[str] = []
        for step in profile.pod_group_post_filters:
            try:
                answer = yield from step.plugin.pod_group_post_filter(outcome)
            except plugin_exceptions() as error:
                answer = GroupPostFilterResult(Status(Code.ERROR, (describe(error, step.declared),)))
            status = answer.status.by(step.name)
            if step.declared.preempts:
                outcome.preemption_code = status.code
            if status.code in (Code.SUCCESS, Code.UNRESOLVABLE):
                return GroupPostFilterResult(status, answer.nominations, answer.eviction)
            if status.code is not Code.UNSCHEDULABLE:
                text = f'error in "{step.name}" PodGroupPostFilter plugins: {status.message}'
                return GroupPostFilterResult(Status(Code.ERROR, (text,)))
            reasons.extend(status.reasons)
        return GroupPostFilterResult(Status(Code.UNSCHEDULABLE, tuple(reasons)))

    def reserve(self, placed: Placement) -> None:
        """framework.go: RunReservePluginsReserve"""
        state, pod, node_name, skipped = placed.state, placed.pod, placed.node_name, placed.skipped
        for step in placed.profile.reserves:
            if step.name in skipped:
                continue
            try:
                answer = step.plugin.reserve(state, pod, node_name)
            except plugin_exceptions() as error:
                raise plugin_error(step, _RESERVE, error) from error
            if answer is not None:
                check(step, _RESERVE, answer)

    def unreserve(self, placed: Placement) -> None:
        """Runs Unreserve of all plugins, in reverse order. Exceptions are only logged.

        framework.go: RunReservePluginsUnreserve
        """
        for step in reversed(placed.profile.reserves):
            if step.name in placed.skipped:
                continue
            try:
                step.plugin.unreserve(placed.state, placed.pod, placed.node_name)
            except plugin_exceptions() as error:
                _log_failure(placed, step, UNRESERVE, error)

    def permit(self, placed: Placement) -> dict[str, float]:
        """How long the pod has to wait for each plugin; empty if it need not.

        framework.go: RunPermitPlugins
        """
        seconds: dict[str, float] = {}
        for step in placed.profile.permits:
            wait = self.permit_of(step, placed)
            if wait is not None:
                seconds[step.name] = min(wait.seconds, MAX_WAIT_SECONDS)
        return seconds

    def permit_of(self, step: PointStep[PermitPlugin], placed: Placement) -> Wait | None:
        """Runs Permit of one plugin. None if it allows the pod."""
        try:
            answer = step.plugin.permit(placed.state, placed.pod, placed.node_name)
            if isinstance(answer, Wait):
                given: object = answer.seconds
                if not isinstance(given, int | float):
                    raise wrong_result("permit", answer, "the seconds of Wait must be a number")
                return answer
        except plugin_exceptions() as error:
            raise plugin_error(step, Point.PERMIT, error) from error
        check(step, Point.PERMIT, answer)
        return None

    def pre_flight(self, placed: Placement) -> list[PointStep[PreBindPlugin]]:
        """The PreBind plugins that have work to do.

        framework.go: RunPreBindPreFlights
        """
        state, pod, node_name, skipped = placed.state, placed.pod, placed.node_name, placed.skipped
        with_work = []
        for step in placed.profile.pre_binds:
            if step.name in skipped:
                continue
            try:
                answer: object = step.plugin.pre_bind_pre_flight(state, pod, node_name)
                if answer is not None and not isinstance(answer, Status):
                    raise wrong_result("pre_bind_pre_flight", answer, "return None, SKIP or failure(text)")
            except plugin_exceptions() as error:
                raise plugin_error(step, PRE_FLIGHT, error) from error
            code = _SUCCESS if answer is None else answer.code
            if code is _SUCCESS:
                with_work.append(step)
            elif code is Code.ERROR and answer is not None:
                raise plugin_error(step, PRE_FLIGHT, answer.message)
            elif code is not _SKIP:
                raise AttemptError(
                    f'{PRE_FLIGHT} {step.name} returned "{code.label}", which is unsupported. '
                    "It is supposed to return Success, Skip, or Error status",
                    step.name,
                    PRE_FLIGHT,
                )
        return with_work

    async def pre_bind(
        self, step: PointStep[PreBindPlugin], placed: Placement, cause: Callable[[], str]
    ) -> None:
        """Runs PreBind of one plugin. `cause` says why it was cancelled; empty if it was not.

        framework.go: runPreBindPlugin
        """
        task = running_task()
        try:
            answer = await step.plugin.pre_bind(placed.state, placed.pod, placed.node_name)
        except plugin_exceptions() as error:
            if is_cancelled(error, task):
                if not cause():
                    raise
                raise plugin_error(step, Point.PRE_BIND, cause()) from None
            raise plugin_error(step, Point.PRE_BIND, error) from error
        check(step, Point.PRE_BIND, answer)

    async def bind(
        self,
        placed: Placement,
        in_task: InTask,
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
        for step in placed.profile.binds:
            try:
                if step.built_in:
                    answer = await step.plugin.bind(placed.state, placed.pod, placed.node_name)
                else:
                    answer = await in_task(_bind)(step, placed, unknown)
            except unknown as error:
                await read_back(plugin_error(step, _BIND, error))
                answer = None
            except (AttemptError, asyncio.CancelledError):
                raise
            except plugin_exceptions() as error:
                raise plugin_error(step, _BIND, error) from error
            if answer is not None:
                if isinstance(answer, Status) and answer.code is _SKIP:
                    continue
                check(step, _BIND, answer)
            break
        else:
            raise NoBinderError

    def post_bind(self, placed: Placement) -> None:
        """Runs PostBind. Exceptions are only logged.

        framework.go: RunPostBindPlugins
        """
        for step in placed.profile.post_binds:
            try:
                step.plugin.post_bind(placed.state, placed.pod, placed.node_name)
            except plugin_exceptions() as error:
                _log_failure(placed, step, Point.POST_BIND, error)


async def _bind(
    step: PointStep[BindPlugin], placed: Placement, unknown: tuple[type[Exception], ...]
) -> Status | None:
    """Runs Bind of a plugin that is not built in. SystemExit must not leave the task: it ends the loop."""
    task = running_task()
    try:
        return await step.plugin.bind(placed.state, placed.pod, placed.node_name)
    except unknown:
        raise
    except plugin_exceptions() as error:
        if is_cancelled(error, task):
            raise
        raise plugin_error(step, _BIND, error) from error


def _log_failure(placed: Placement, step: PointStep[Any], point: str, error: BaseException) -> None:
    """Logs an exception that does not fail the attempt."""
    text = f'running {point} plugin "{step.name}" for pod {placed.pod.key}: {describe(error, step.declared)}'
    placed.profile.failures.log(_log, text, traceback_of(error))


POINTS: Final = ExtensionPoints()
"""Without timers."""
