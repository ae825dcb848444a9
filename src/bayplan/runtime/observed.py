"""The same steps, measured: frameworks, calls and extension points with timers, for metrics and benchmarks.

A framework with an observer is used as an `ObservedFramework`, which has the same state and measures the
steps of the search. At the beginning of an attempt the observer decides whether it is sampled. If it is, one
`AttemptTimer` measures it up to PostBind: it observes each extension point when its plugins have run
(`passed`) and each plugin (`took`). Without an observer nothing of this is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Diagnosis, FilterOutcome, PostFilterResult, Reasons, Rejections
from bayplan.framework.plugin_api import NodeNames, PreBindPlugin, Wait
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.extension_points import UNRESERVE, ExtensionPoints, InTask, Placement, RejectedError
from bayplan.runtime.feasible import Feasible
from bayplan.runtime.framework import Framework
from bayplan.runtime.profile import PointStep, Profile, Step
from bayplan.runtime.search import Accepted, Filtered, Found, NotFound, Search, Steps
from bayplan.state.view import IntColumn, NodeColumns, NodeInfo

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


class PointObserver(Protocol):
    """Observes the extension points of one profile."""

    def clock(self) -> float: ...

    def sample(self) -> AttemptTimer:
        """The timer of the attempt that begins: `NO_TIMER` if this one is not sampled, as most are not."""

    def observe(self, point: str, code: Code, seconds: float) -> None:
        """A point that is measured in every attempt took this long."""

    def ended(self, result: Found | NotFound) -> None:
        """The search for a node has ended, without an error."""

    def preemption_tried(self) -> None:
        """The PostFilter of a plugin that evicts pods is called."""


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


class ObservedPoints(ExtensionPoints):
    """Extension points with a timer."""

    __slots__ = ("_has_work", "_observer", "_timer")

    def __init__(self, timer: AttemptTimer, observer: PointObserver) -> None:
        self._timer = timer
        self._observer = observer
        self._has_work = False
        """Whether a PreBind plugin has work to do."""

    def skipped(self, placed: Placement) -> frozenset[str]:
        # Upstream measures these plugins, too.
        return frozenset() if self._timer is not NO_TIMER else placed.skipped

    def steps(self, steps: Sequence[PointStep[T]], point: str) -> Sequence[PointStep[T]]:
        if self._timer is NO_TIMER and point is not Point.POST_FILTER:
            return steps
        return [replace(step, plugin=cast(T, _TimedPlugin(step, point, self))) for step in steps]

    def call(self, step: PointStep[Any], point: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method of a plugin, timed."""
        if point is Point.POST_FILTER and step.declared.preempts:
            self._observer.preemption_tried()
        time = timed_wait if point in (Point.PRE_BIND, Point.BIND) else timed
        return time(self._timer, step.name, point, method)

    @contextmanager
    def measured(self, point: str) -> Iterator[None]:
        since, code = self._observer.clock(), Code.SUCCESS
        try:
            yield
        except (RejectedError, calls.AttemptError) as error:
            code = error.code
            raise
        finally:
            self._observer.observe(point, code, self._observer.clock() - since)

    def _passing(self, point: str, run: Callable[[], T], code: Callable[[T], Code] | None = None) -> T:
        """Runs a point that is measured in sampled attempts."""
        self._timer.start()
        try:
            result = run()
        except (RejectedError, calls.AttemptError) as error:
            self._timer.passed(error.point, error.code)
            raise
        self._timer.passed(point, Code.SUCCESS if code is None else code(result))
        return result

    def post_filter(
        self, profile: Profile, state: CycleState, pod: Pod, outcome: FilterOutcome
    ) -> PostFilterResult:
        observer = self._observer
        since = observer.clock()
        result = super().post_filter(profile, state, pod, outcome)
        observer.observe(Point.POST_FILTER, result.status.code, observer.clock() - since)
        return result

    def reserve(self, placed: Placement) -> None:
        self._passing(Point.RESERVE, lambda: super(ObservedPoints, self).reserve(placed))

    def unreserve(self, placed: Placement) -> None:
        with self.measured(UNRESERVE):
            super().unreserve(placed)

    def permit(self, placed: Placement) -> dict[str, float]:
        return self._passing(
            Point.PERMIT,
            lambda: super(ObservedPoints, self).permit(placed),
            lambda seconds: Code.WAIT if seconds else Code.SUCCESS,
        )

    def pre_flight(self, placed: Placement) -> list[PointStep[PreBindPlugin]]:
        with_work = self._passing(
            calls.PRE_FLIGHT,
            lambda: super(ObservedPoints, self).pre_flight(placed),
            lambda steps: Code.SUCCESS if steps else Code.SKIP,
        )
        self._has_work = bool(with_work)
        names = {step.name for step in with_work}
        return [step for step in placed.profile.pre_binds if step.name in names]

    async def bind(
        self,
        placed: Placement,
        in_task: InTask,
        unknown: tuple[type[Exception], ...],
        read_back: Callable[[calls.AttemptError], Awaitable[None]],
    ) -> None:
        if not self._has_work:
            self._timer.start()
            self._timer.passed(Point.PRE_BIND)
        self._timer.start()
        try:
            await super().bind(placed, in_task, unknown, read_back)
        except (RejectedError, calls.AttemptError) as error:
            self._timer.passed(error.point, error.code)
            raise
        self._timer.passed(Point.BIND)

    def post_bind(self, placed: Placement) -> None:
        self._passing(Point.POST_BIND, lambda: super(ObservedPoints, self).post_bind(placed))


class _TimedPlugin:
    """A plugin whose methods are timed."""

    def __init__(self, step: PointStep[Any], point: str, points: ObservedPoints) -> None:
        self._step = step
        self._point = point
        self._points = points

    def __getattr__(self, name: str) -> Any:
        return self._points.call(self._step, self._point, getattr(self._step.plugin, name))


class ObservedFramework(Framework):
    """A framework whose steps are measured. It has the state of the one it is made of."""

    timer: AttemptTimer
    observer: PointObserver

    def __init__(self, framework: Framework, observer: PointObserver) -> None:
        self.__dict__ = framework.__dict__
        self.observer = observer

    def begin(self, pod: Pod) -> Search:
        timer = self.observer.sample()
        self.timer = timer
        self.caller.calls = calls.PLAIN if timer is NO_TIMER else TimedCalls(timer)
        self.points = ObservedPoints(timer, self.observer)
        return super().begin(pod)

    def search(self, search: Search) -> Steps[Found | NotFound]:
        try:
            result = yield from super().search(search)
        except calls.AttemptError as error:
            if error.point:
                self.timer.passed(error.point, Code.ERROR)
            raise
        self.observer.ended(result)
        return result

    def pre_filter(self, search: Search) -> Diagnosis | None:
        rejected = super().pre_filter(search)
        code = Code.SUCCESS if rejected is None else rejected.absent_nodes_status.code
        self.timer.passed(Point.PRE_FILTER, code)
        return rejected

    def _fits(self, search: Search, row: int) -> bool:
        try:
            fits = super()._fits(search, row)
        except calls.AttemptError:
            self.timer.passed(Point.FILTER, Code.ERROR)
            raise
        self.timer.passed(Point.FILTER)
        return fits

    def _filter(self, search: Search) -> Filtered:
        filtered = super()._filter(search)
        self.timer.passed(Point.FILTER)
        return filtered

    def _extended(self, steps: Steps[T]) -> Steps[T]:
        answer = yield from super()._extended(steps)
        # The time that extenders take belongs to no extension point.
        self.timer.start()
        return answer

    def _pre_score(self, search: Search, nodes: Feasible | Accepted) -> list[Step]:
        steps = super()._pre_score(search, nodes)
        self.timer.passed(Point.PRE_SCORE)
        return steps

    def _best(self, search: Search, feasible: Feasible) -> int:
        row = super()._best(search, feasible)
        self.timer.passed(Point.SCORE)
        return row

    def _totals(self, search: Search, nodes: Feasible | Accepted) -> IntColumn:
        totals = super()._totals(search, nodes)
        self.timer.passed(Point.SCORE)
        return totals


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
