"""The same steps, measured: frameworks, calls and extension points with timers, for metrics and benchmarks.

At the beginning of an attempt the observer of a framework decides whether it is sampled (`observed`). If it
is, an `ObservedFramework`, which has the same state, measures the steps of the search, and one `AttemptTimer`
everything up to PostBind: it observes each extension point when its plugins have run (`passed`) and each
plugin (`took`). Other attempts take the ordinary steps. Without an observer nothing of this is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, Final, ParamSpec, Protocol, TypeVar

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Diagnosis, FilterOutcome, PostFilterResult, Reasons, Rejections
from bayplan.framework.plugin_api import NodeNames, PostFilterPlugin, PreBindPlugin, Wait
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.extension_points import UNRESERVE, ExtensionPoints, InTask, Placement, RejectedError
from bayplan.runtime.feasible import Feasible
from bayplan.runtime.framework import Framework
from bayplan.runtime.profile import METHODS, PointStep, Profile, Step
from bayplan.runtime.search import Accepted, Filtered, Found, NotFound, Search, Steps
from bayplan.state.view import IntColumn, NodeColumns, NodeInfo

ADJUST: Final = "PreFilterExtension"
"""Followed by AddPod or RemovePod."""

# In Python 3.11 looking up a member of an enum takes longer than calling a function.
_SUCCESS: Final = Code.SUCCESS
_ERROR: Final = Code.ERROR
_FILTER: Final = Point.FILTER
_SCORE: Final = Point.SCORE
_RESERVE: Final = Point.RESERVE
_PERMIT: Final = Point.PERMIT
_POST_BIND: Final = Point.POST_BIND
_AWAITED: Final = (Point.PRE_BIND, Point.BIND)

_METHODS: Final[dict[str, str]] = {
    **dict[str, str](METHODS.items()),
    UNRESERVE: "unreserve",
    calls.PRE_FLIGHT: "pre_bind_pre_flight",
}
"""What is called at each point."""

P = ParamSpec("P")
T = TypeVar("T")


class AttemptTimer:
    """Measures one attempt. This class measures nothing: it is the timer of attempts that are not sampled."""

    __slots__ = ()

    clock: Callable[[], float] = staticmethod(float)
    """Seconds."""
    for_metrics: ClassVar[bool] = True
    """Whether points and plugins that have nothing to do are measured, too, as upstream's metrics do."""

    def start(self) -> None:
        """The next extension point begins now: the time since the last one is not counted."""

    def passed(self, point: str, code: Code = Code.SUCCESS) -> None:
        """The plugins of a point have run, with this result; the next point begins."""

    def idle(self, point: str, code: Code = Code.SUCCESS) -> None:
        """Like `passed`, for a point at which no plugin had anything to do."""
        self.passed(point, code)

    def ran(self, point: str, code: Code, begin: float, end: float) -> None:
        """A point has run that is measured in every attempt (`PointObserver.observe`)."""

    def took(self, plugin: str, point: str, code: Code, seconds: float, rows: int = 0) -> None:
        """One plugin has run, for so many rows at Filter and Score."""


NO_TIMER: Final = AttemptTimer()


class PointObserver(Protocol):
    """Observes the extension points of one profile."""

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds."""

    def sample(self) -> AttemptTimer:
        """The timer of the attempt that begins: `NO_TIMER` if this one is not sampled, as most are not."""

    def observe(self, point: str, code: Code, seconds: float) -> None:
        """A point that is measured in every attempt took this long."""

    def ended(self, result: Found | NotFound) -> None:
        """The search for a node has ended, without an error."""

    def preemption_tried(self, code: Code, seconds: float) -> None:
        """The PostFilter of a plugin that evicts pods took this long and returned this status."""

    @property
    def rare_points(self) -> RarePoints:
        """The extension points of attempts that are not sampled."""


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
        timer, clock = self._timer, self._timer.clock
        if step.built_in and not timer.for_metrics:
            # Never long: a few operations on one row.
            return shortcut

        def run(row: int) -> int:
            started = clock()
            answer = shortcut(row)
            if answer is not True:
                timer.took(step.name, point, _SUCCESS, clock() - started, 1)
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
        if step.normalize is None:
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


class _Measured(AbstractContextManager[None]):
    """Observes how long the plugins of one point took, and their result."""

    __slots__ = ("_observer", "_point", "_since", "_timer")

    def __init__(self, observer: PointObserver, point: str, timer: AttemptTimer) -> None:
        self._observer = observer
        self._point = point
        self._timer = timer
        self._since = observer.clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code = error.code if isinstance(error, (RejectedError, calls.AttemptError)) else _SUCCESS
        now = self._observer.clock()
        self._observer.observe(self._point, code, now - self._since)
        self._timer.ran(self._point, code, self._since, now)


class RarePoints(ExtensionPoints):
    """Measures the extension points that few attempts reach: PostFilter, Unreserve and PreBind."""

    __slots__ = ("_observer", "_timer")

    def __init__(self, observer: PointObserver, timer: AttemptTimer = NO_TIMER) -> None:
        self._observer = observer
        self._timer = timer

    def timed(self, placed: Placement, steps: str, point: str) -> Placement:
        """The same with timed plugins among these steps of the profile."""
        if not getattr(placed.profile, steps):
            return placed
        profile = self.timed_profile(placed.profile, steps, point)
        # Upstream also measures the plugins that are skipped here.
        return Placement(profile, placed.state, placed.pod, placed.node_name)

    def timed_profile(self, profile: Profile, steps: str, point: str) -> Profile:
        """What one point needs of a profile, with timed plugins: copying all of it takes longer."""
        timed: Any = SimpleNamespace(failures=profile.failures)
        setattr(timed, steps, self.timed_steps(getattr(profile, steps), point))
        made: Profile = timed
        return made

    def timed_steps(self, steps: Sequence[PointStep[T]], point: str) -> tuple[PointStep[T], ...]:
        name, time = _METHODS[point], timed_wait if point in _AWAITED else timed
        made = []
        for step in steps:
            plugin: Any = SimpleNamespace()
            setattr(plugin, name, time(self._timer, step.name, point, getattr(step.plugin, name)))
            made.append(PointStep(step.name, plugin, step.declared, step.built_in))
        return tuple(made)

    def measured(self, point: str) -> AbstractContextManager[None]:
        return _Measured(self._observer, point, self._timer)

    def post_filter(
        self, profile: Profile, state: CycleState, pod: Pod, outcome: FilterOutcome
    ) -> PostFilterResult:
        observer = self._observer
        since = observer.clock()
        result = super().post_filter(profile, state, pod, outcome)
        now = observer.clock()
        observer.observe(Point.POST_FILTER, result.status.code, now - since)
        self._timer.ran(Point.POST_FILTER, result.status.code, since, now)
        return result

    def call_post_filter(
        self, step: PointStep[PostFilterPlugin], state: CycleState, pod: Pod, outcome: FilterOutcome
    ) -> object:
        call = timed(self._timer, step.name, Point.POST_FILTER, step.plugin.post_filter)
        if not step.declared.preempts:
            return call(state, pod, outcome)
        observer, code = self._observer, _ERROR
        since = observer.clock()
        try:
            answer: object = call(state, pod, outcome)
            if isinstance(answer, PostFilterResult) and isinstance(answer.status, Status):
                code = answer.status.code
            return answer
        finally:
            observer.preemption_tried(code, observer.clock() - since)

    def unreserve(self, placed: Placement) -> None:
        with self.measured(UNRESERVE):
            super().unreserve(placed)


class ObservedPoints(RarePoints):
    """Extension points of a sampled attempt: all are measured."""

    __slots__ = ("_has_work",)

    def __init__(self, observer: PointObserver, timer: AttemptTimer) -> None:
        # Not by `super`, which takes as long as both assignments.
        self._observer = observer
        self._timer = timer
        self._has_work = False
        """Whether a PreBind plugin has work to do."""

    def _passing(
        self,
        point: str,
        steps: str,
        run: Callable[[ExtensionPoints, Placement], T],
        placed: Placement,
        code: Callable[[T], Code] = lambda _: _SUCCESS,
    ) -> T:
        """Runs a point that is measured in sampled attempts."""
        timer = self._timer
        is_idle = _all_skipped(getattr(placed.profile, steps), placed.skipped)
        timed = self.timed(placed, steps, point)
        timer.start()
        try:
            result = run(self, timed)
        except (RejectedError, calls.AttemptError) as error:
            timer.passed(error.point, error.code)
            raise
        (timer.idle if is_idle else timer.passed)(point, code(result))
        return result

    def reserve(self, placed: Placement) -> None:
        self._passing(_RESERVE, "reserves", ExtensionPoints.reserve, placed)

    def unreserve(self, placed: Placement) -> None:
        super().unreserve(self.timed(placed, "reserves", UNRESERVE))

    async def pre_bind(
        self, step: PointStep[PreBindPlugin], placed: Placement, cause: Callable[[], str]
    ) -> None:
        (timed,) = self.timed_steps((step,), Point.PRE_BIND)
        await super().pre_bind(timed, placed, cause)

    def permit(self, placed: Placement) -> dict[str, float]:
        return self._passing(
            _PERMIT,
            "permits",
            ExtensionPoints.permit,
            placed,
            lambda seconds: Code.WAIT if seconds else _SUCCESS,
        )

    def pre_flight(self, placed: Placement) -> list[PointStep[PreBindPlugin]]:
        with_work = self._passing(
            calls.PRE_FLIGHT,
            "pre_binds",
            ExtensionPoints.pre_flight,
            placed,
            lambda steps: _SUCCESS if steps else Code.SKIP,
        )
        self._has_work = bool(with_work)
        if not with_work:
            return []
        names = {step.name for step in with_work}
        return [step for step in placed.profile.pre_binds if step.name in names]

    async def bind(
        self,
        placed: Placement,
        in_task: InTask,
        unknown: tuple[type[Exception], ...],
        read_back: Callable[[calls.AttemptError], Awaitable[None]],
    ) -> None:
        timer = self._timer
        if timer.for_metrics:
            placed = self.timed(placed, "binds", Point.BIND)
            if not self._has_work:
                timer.start()
                timer.idle(Point.PRE_BIND)
        timer.start()
        try:
            await super().bind(placed, in_task, unknown, read_back)
        except (RejectedError, calls.AttemptError) as error:
            timer.passed(error.point, error.code)
            raise
        timer.passed(Point.BIND)

    def post_bind(self, placed: Placement) -> None:
        self._passing(_POST_BIND, "post_binds", ExtensionPoints.post_bind, placed)


class BusyPoints(ObservedPoints):
    """Extension points of an attempt that is sampled, but not for metrics (`AttemptTimer.for_metrics`)."""

    __slots__ = ()

    def reserve(self, placed: Placement) -> None:
        if not _all_skipped(placed.profile.reserves, placed.skipped):
            super().reserve(placed)

    def permit(self, placed: Placement) -> dict[str, float]:
        return super().permit(placed) if placed.profile.permits else {}

    def pre_flight(self, placed: Placement) -> list[PointStep[PreBindPlugin]]:
        if _all_skipped(placed.profile.pre_binds, placed.skipped):
            return []
        return super().pre_flight(placed)

    def post_bind(self, placed: Placement) -> None:
        if placed.profile.post_binds:
            super().post_bind(placed)


def _all_skipped(steps: Sequence[PointStep[Any]], skipped: Collection[str]) -> bool:
    # The generator that `all` needs takes as long as all the rest.
    for step in steps:  # noqa: SIM110
        if step.name not in skipped:
            return False
    return True


class ObservedFramework(Framework):
    """A framework whose steps are measured. It has the state of the one it is made of."""

    def __init__(self, framework: Framework, timer: AttemptTimer) -> None:
        self.__dict__ = framework.__dict__
        self.timer = timer

    def failed(self, error: calls.AttemptError) -> None:
        if error.point:
            self.timer.passed(error.point, Code.ERROR)

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

    def _pre_score(self, search: Search, nodes: Feasible | Accepted, *, varying: bool = True) -> list[Step]:
        steps = super()._pre_score(search, nodes, varying=varying)
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


def observed(framework: Framework, observer: PointObserver) -> Framework:
    """The framework for the attempt that begins: one whose steps are measured, if the attempt is sampled."""
    timer = observer.sample()
    if timer is NO_TIMER:
        framework.caller.calls = calls.PLAIN
        framework.points = observer.rare_points
        return framework
    framework.caller.calls = TimedCalls(timer)
    framework.points = (ObservedPoints if timer.for_metrics else BusyPoints)(observer, timer)
    return ObservedFramework(framework, timer)


def timed(
    timer: AttemptTimer, plugin: str, point: str, call: Callable[P, T], rows: int = 0
) -> Callable[P, T]:
    """The call, timed unless this attempt is not sampled."""
    if timer is NO_TIMER:
        return call
    clock = timer.clock

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        code, started = _ERROR, clock()
        try:
            answer = call(*args, **kwargs)
            code = _SUCCESS if answer is None else _code(answer)
            return answer
        finally:
            timer.took(plugin, point, code, clock() - started, rows)

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
            code = _SUCCESS if answer is None else _code(answer)
            return answer
        finally:
            timer.took(plugin, point, code, timer.clock() - started)

    return run


def _code(answer: object) -> Code:
    """The status code of a plugin's answer, which is not None."""
    if isinstance(answer, PostFilterResult):
        answer = answer.status
    if isinstance(answer, Status):
        return answer.code
    return Code.WAIT if isinstance(answer, Wait) else _SUCCESS
