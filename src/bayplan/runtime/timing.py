"""Who wants to know how long plugins take, all of a point or one by one.

An attempt carries a row of clock readings along, made by a `PointObserver`. Single plugins are timed only in
the few cycles for which it hands out a `PluginTimer`. Whoever calls plugins of a framework does so through
its `Caller`. Most of the time that is `calls.py` itself; in a cycle that is looked at closely, `TimedCalls`
has the same functions and a clock in its hand.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from bayplan.api.pod import Pod
from bayplan.framework.node_statuses import Collected, Reasons
from bayplan.framework.outcome import PostFilterResult
from bayplan.framework.plugin_api import NodeNames, Wait
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.profile import Step
from bayplan.snapshot.view import IntColumn, NodeColumns

if TYPE_CHECKING:
    from bayplan.runtime.search import Found, NotFound

NORMALIZE: Final = "ScoreExtensionNormalize"
ADJUST: Final = "PreFilterExtension"
"""Followed by AddPod or RemovePod."""

P = ParamSpec("P")
T = TypeVar("T")


class PluginTimer(Protocol):
    """Told how long single plugins take."""

    def clock(self) -> float: ...

    def took(self, plugin: str, point: str, code: Code, seconds: float) -> None: ...


(
    BEGUN,
    PRE_FILTERED,
    FILTERED,
    PRE_SCORED,
    SCORED,
    RESERVING,
    RESERVED,
    PERMITTED,
    PRE_FLYING,
    PRE_FLOWN,
    BINDING,
    BOUND,
    POST_BOUND,
) = range(13)
"""Where in a row of `Readings` the time stands at which an attempt was so far."""

Readings: TypeAlias = "array[float]"
"""When an attempt passed which point, by the clock of its observer; not a number where it did not (yet)."""


def last_reading(readings: Readings) -> float:
    return max(reading for reading in readings if not math.isnan(reading))


class PointObserver(Protocol):
    """Wants to know about the extension points of one profile."""

    clock: Callable[[], float]

    def begin(self, caller: Caller) -> Readings | None:
        """A search begins. In most, nothing is timed (None): points are counted when all is over.

        The caller is told who wants to know about single plugins, if anybody.
        """

    def go_on(self, readings: Readings, place: int) -> None:
        """What was read so far counts, and from here on it is read anew: now is the time at this place."""

    def observe(self, point: str, code: Code, seconds: float | None) -> None:
        """A point was passed with something else than success, or has no place in a row of readings.

        Without seconds it was not timed.
        """

    def ended(self, result: Found | NotFound) -> None:
        """The search has ended, and no plugin broke. Of a node that was found the last is not yet heard."""

    def broke(self, point: str) -> None:
        """The search ended because a plugin broke there."""

    def preemption_tried(self) -> None:
        """A plugin that evicts pods was asked to make room."""


class Calls(Protocol):
    """The functions of `calls.py`."""

    def pre_filter(
        self, plugin: Any, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Status | NodeNames: ...

    def filter_one(
        self, step: Step, state: CycleState, pod: Pod, node: NodeColumns, reasons: Reasons
    ) -> int: ...

    def filter_rows(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, reasons: Reasons
    ) -> Collected | None: ...

    def pre_score(self, plugin: Any, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status: ...

    def score_rows(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn: ...

    def score_one(self, step: Step, state: CycleState, pod: Pod, node: NodeColumns) -> int: ...

    def normalized(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn
    ) -> IntColumn: ...

    def scores_by_domain(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> calls.DomainScores | None: ...


class TimedCalls:
    """`calls.py` with a clock."""

    def __init__(self, timer: PluginTimer) -> None:
        self._timer = timer

    def pre_filter(self, plugin: Any, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | NodeNames:
        return timed(self._timer, plugin.name, Point.PRE_FILTER, calls.pre_filter)(plugin, state, pod, nodes)

    def filter_one(self, step: Step, state: CycleState, pod: Pod, node: NodeColumns, reasons: Reasons) -> int:
        return timed(self._timer, step.name, Point.FILTER, calls.filter_one)(step, state, pod, node, reasons)

    def filter_rows(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, reasons: Reasons
    ) -> Collected | None:
        call = timed(self._timer, step.name, Point.FILTER, calls.filter_rows)
        return call(step, state, pod, nodes, reasons)

    def pre_score(self, plugin: Any, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status:
        return timed(self._timer, plugin.name, Point.PRE_SCORE, calls.pre_score)(plugin, state, pod, nodes)

    def score_rows(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return timed(self._timer, step.name, Point.SCORE, calls.score_rows)(step, state, pod, nodes)

    def score_one(self, step: Step, state: CycleState, pod: Pod, node: NodeColumns) -> int:
        return timed(self._timer, step.name, Point.SCORE, calls.score_one)(step, state, pod, node)

    def normalized(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn
    ) -> IntColumn:
        if not step.normalizes:
            return calls.normalized(step, state, pod, nodes, scores)
        return timed(self._timer, step.name, NORMALIZE, calls.normalized)(step, state, pod, nodes, scores)

    def scores_by_domain(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> calls.DomainScores | None:
        """Not told where it has no answer: `score_rows` is asked instead, and told."""
        code, started = Code.ERROR, self._timer.clock()
        try:
            answer = calls.scores_by_domain(step, state, pod, nodes)
            code = Code.SUCCESS if answer is not None else Code.SKIP
            return answer
        finally:
            if code is not Code.SKIP:
                self._timer.took(step.name, Point.SCORE, code, self._timer.clock() - started)


class Caller:
    """How the plugins of one framework are called in this cycle; shared by all who call them."""

    __slots__ = ("calls", "timer")

    def __init__(self) -> None:
        self.calls: Calls = calls
        self.timer: PluginTimer | None = None

    def use(self, timer: PluginTimer | None) -> None:
        """From now on plugins are timed, or not (None)."""
        self.timer = timer
        self.calls = calls if timer is None else TimedCalls(timer)


def timed(timer: PluginTimer | None, plugin: str, point: str, call: Callable[P, T]) -> Callable[P, T]:
    """The call, timed if there is somebody to tell."""
    if timer is None:
        return call

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        code, started = Code.ERROR, timer.clock()
        try:
            answer = call(*args, **kwargs)
            code = _code(answer)
            return answer
        finally:
            timer.took(plugin, point, code, timer.clock() - started)

    return run


def timed_wait(
    timer: PluginTimer | None, plugin: str, point: str, call: Callable[P, Awaitable[T]]
) -> Callable[P, Awaitable[T]]:
    """The same for a call that is waited for."""
    if timer is None:
        return call

    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        code, started = Code.ERROR, timer.clock()
        try:
            answer = await call(*args, **kwargs)
            code = _code(answer)
            return answer
        finally:
            timer.took(plugin, point, code, timer.clock() - started)

    return run


def _code(answer: object) -> Code:
    """What a plugin's answer amounts to."""
    if isinstance(answer, PostFilterResult):
        answer = answer.status
    if isinstance(answer, Status):
        return answer.code
    return Code.WAIT if isinstance(answer, Wait) else Code.SUCCESS
