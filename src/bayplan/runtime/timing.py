"""How long extension points and single plugins take, in the attempts that are sampled.

At the beginning of an attempt the `PointObserver` decides whether it is sampled. If it is, one `AttemptTimer`
measures it up to PostBind: it observes each extension point when its plugins have run (`passed`) and each
plugin (`took`). All plugins of a framework are called through its `Caller`: without a timer that is
`calls.py` itself, with a timer `TimedCalls`, which has the same functions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

from bayplan.api.pod import Pod
from bayplan.framework.outcome import PostFilterResult, Reasons, Rejections
from bayplan.framework.plugin_api import NodeNames, Wait
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.profile import Step
from bayplan.state.view import IntColumn, NodeColumns, NodeInfo

if TYPE_CHECKING:
    from bayplan.runtime.search import Found, NotFound

ADJUST: Final = "PreFilterExtension"
"""Followed by AddPod or RemovePod."""

# In Python 3.11 looking up a member of an enum takes longer than calling a function.
_SUCCESS: Final = Code.SUCCESS
_ERROR: Final = Code.ERROR
_FILTER: Final = Point.FILTER
_SCORE: Final = Point.SCORE

P = ParamSpec("P")
T = TypeVar("T")


class AttemptTimer:
    """Measures one attempt. This class measures nothing: it is the timer of attempts that are not sampled."""

    __slots__ = ()

    def clock(self) -> float:
        return 0.0

    def start(self) -> None:
        """The next extension point begins now: the time since the last one is not counted."""

    def passed(self, point: str, code: Code = Code.SUCCESS) -> None:
        """The plugins of a point have run, with this result; the next point begins."""

    def took(self, plugin: str, point: str, code: Code, seconds: float, rows: int = 0) -> None:
        """One plugin has run, for so many rows at Filter and Score."""


NO_TIMER: Final = AttemptTimer()


class PointObserver:
    """Observes the extension points of one profile. This class observes nothing."""

    def clock(self) -> float:
        return 0.0

    def sample(self) -> AttemptTimer:
        """The timer of the attempt that begins: `NO_TIMER` if this one is not sampled, as most are not."""
        return NO_TIMER

    def observe(self, point: str, code: Code, seconds: float) -> None:
        """A point that is measured in every attempt took this long."""

    def ended(self, result: Found | NotFound) -> None:
        """The search for a node has ended, without an error."""

    def preemption_tried(self) -> None:
        """The PostFilter of a plugin that evicts pods is called."""


NO_OBSERVER: Final = PointObserver()


class Calls(Protocol):
    """The functions of `calls.py`."""

    def pre_filter(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Status | NodeNames: ...

    def filter_one(
        self, step: Step, state: CycleState, pod: Pod, node: NodeColumns, reasons: Reasons
    ) -> int: ...

    def filter_rows(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, reasons: Reasons
    ) -> Rejections | None: ...

    def shortcut(self, step: Step, point: Point, shortcut: Callable[[int], int]) -> Callable[[int], int]: ...

    def adjust(
        self, step: Step, verb: str, state: CycleState, pod: Pod, others: Iterable[Pod], node: NodeInfo
    ) -> None: ...

    def pre_score(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status: ...

    def score_rows(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn: ...

    def score_one(self, step: Step, state: CycleState, pod: Pod, node: NodeColumns) -> int: ...

    def normalized(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn
    ) -> IntColumn: ...

    def scores_by_domain(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> calls.DomainScores | None: ...


class TimedCalls:
    """The functions of `calls.py`, timed."""

    def __init__(self, timer: AttemptTimer) -> None:
        self._timer = timer

    def pre_filter(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | NodeNames:
        return timed(self._timer, step.name, Point.PRE_FILTER, calls.pre_filter)(step, state, pod, nodes)

    def filter_one(self, step: Step, state: CycleState, pod: Pod, node: NodeColumns, reasons: Reasons) -> int:
        return timed(self._timer, step.name, _FILTER, calls.filter_one, 1)(step, state, pod, node, reasons)

    def filter_rows(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, reasons: Reasons
    ) -> Rejections | None:
        call = timed(self._timer, step.name, _FILTER, calls.filter_rows, len(nodes))
        return call(step, state, pod, nodes, reasons)

    def shortcut(self, step: Step, point: Point, shortcut: Callable[[int], int]) -> Callable[[int], int]:
        """Not observed if the shortcut returns True: `filter_one` is then called and observed instead."""
        timer = self._timer

        def run(row: int) -> int:
            started = timer.clock()
            answer = shortcut(row)
            if answer is not True:
                timer.took(step.name, point, _SUCCESS, timer.clock() - started, 1)
            return answer

        return run

    def adjust(
        self, step: Step, verb: str, state: CycleState, pod: Pod, others: Iterable[Pod], node: NodeInfo
    ) -> None:
        for other in others:
            timed(self._timer, step.name, ADJUST + verb, calls.adjust)(step, verb, state, pod, (other,), node)

    def pre_score(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status:
        return timed(self._timer, step.name, Point.PRE_SCORE, calls.pre_score)(step, state, pod, nodes)

    def score_rows(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
        return timed(self._timer, step.name, _SCORE, calls.score_rows, len(nodes))(step, state, pod, nodes)

    def score_one(self, step: Step, state: CycleState, pod: Pod, node: NodeColumns) -> int:
        return timed(self._timer, step.name, _SCORE, calls.score_one, 1)(step, state, pod, node)

    def normalized(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn
    ) -> IntColumn:
        if not step.normalizes:
            return calls.normalized(step, state, pod, nodes, scores)
        return timed(self._timer, step.name, calls.NORMALIZE, calls.normalized, len(nodes))(
            step, state, pod, nodes, scores
        )

    def scores_by_domain(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> calls.DomainScores | None:
        """Not observed if it returns None: `score_rows` is then called and observed instead."""
        code, started = Code.ERROR, self._timer.clock()
        try:
            answer = calls.scores_by_domain(step, state, pod, nodes)
            code = Code.SUCCESS if answer is not None else Code.SKIP
            return answer
        finally:
            if code is not Code.SKIP:
                self._timer.took(step.name, _SCORE, code, self._timer.clock() - started)


class Caller:
    """Calls the plugins of one framework in this cycle, timed or not; shared by all parts of the runtime."""

    __slots__ = ("calls", "timer")

    def __init__(self) -> None:
        self.calls: Calls = calls
        self.timer = NO_TIMER

    def use(self, timer: AttemptTimer) -> None:
        """Times the plugins from now on, or not (`NO_TIMER`)."""
        if timer is not self.timer:
            self.timer = timer
            self.calls = calls if timer is NO_TIMER else TimedCalls(timer)


def timed(
    timer: AttemptTimer, plugin: str, point: str, call: Callable[P, T], rows: int = 0
) -> Callable[P, T]:
    """The call, timed unless this attempt is not sampled."""
    if timer is NO_TIMER:
        return call

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        code, started = _ERROR, timer.clock()
        try:
            answer = call(*args, **kwargs)
            code = _code(answer)
            return answer
        finally:
            timer.took(plugin, point, code, timer.clock() - started, rows)

    return run


def timed_wait(
    timer: AttemptTimer, plugin: str, point: str, call: Callable[P, Awaitable[T]]
) -> Callable[P, Awaitable[T]]:
    """Like `timed`, for an awaitable call."""
    if timer is NO_TIMER:
        return call

    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        code, started = _ERROR, timer.clock()
        try:
            answer = await call(*args, **kwargs)
            code = _code(answer)
            return answer
        finally:
            timer.took(plugin, point, code, timer.clock() - started)

    return run


def _code(answer: object) -> Code:
    """The status code of a plugin's answer."""
    if answer is None:
        return _SUCCESS
    if isinstance(answer, PostFilterResult):
        answer = answer.status
    if isinstance(answer, Status):
        return answer.code
    return Code.WAIT if isinstance(answer, Wait) else _SUCCESS
