"""What queue, framework and bindings report, passed on to the metrics."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from typing import Final

from bayplan.framework.points import Point
from bayplan.framework.status import Code
from bayplan.metrics import Metrics, Observe
from bayplan.metrics.instruments import Counter
from bayplan.queue.observer import QueueObserver
from bayplan.runtime.profile import Profile
from bayplan.runtime.search import Found, NotFound, Search
from bayplan.runtime.timing import BEGUN, Caller, Readings, last_reading

PRE_FLIGHT: Final = "PreBindPreFlight"
UNRESERVE: Final = "Unreserve"


LAPS: Final[tuple[tuple[str, Code] | None, ...]] = (
    (Point.PRE_FILTER, Code.SUCCESS),
    (Point.FILTER, Code.SUCCESS),
    (Point.PRE_SCORE, Code.SUCCESS),
    (Point.SCORE, Code.SUCCESS),
    None,
    (Point.RESERVE, Code.SUCCESS),
    (Point.PERMIT, Code.SUCCESS),
    None,
    (PRE_FLIGHT, Code.SKIP),
    (Point.PRE_BIND, Code.SUCCESS),
    (Point.BIND, Code.SUCCESS),
    (Point.POST_BIND, Code.SUCCESS),
)
"""What lies between two readings of an attempt that goes the usual way: no PreBind plugin has work to do."""

_NOT_READ: Final = array("d", [math.nan] * (len(LAPS) + 1))


class MeasuredQueue(QueueObserver):
    """Passes on what happens in the queue."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self.clock = clock
        self._pre_enqueue: dict[str, Observe] = {}
        self._before_sample = metrics.cycles_before_sample()

    def incoming(self, queue: str, event: str) -> None:
        self._metrics.queue_incoming(queue, event)

    def unschedulable(self, plugin: str, profile: str, change: int) -> None:
        self._metrics.unschedulable_pods(plugin, profile, change)

    def hint(self, plugin: str, event: str, outcome: str, seconds: float) -> None:
        self._metrics.hint(plugin, event, outcome, seconds)

    def pre_enqueue(self, profile: str, seconds: float) -> None:
        # Always a success, as upstream has it, even where a plugin keeps the pod out.
        observe = self._pre_enqueue.get(profile)
        if observe is None:
            observe = self._metrics.extension_point(profile, Point.PRE_ENQUEUE, Code.SUCCESS)
            self._pre_enqueue[profile] = observe
        observe(seconds)

    def samples_plugins(self) -> bool:
        self._before_sample -= 1
        if self._before_sample >= 0:
            return False
        self._before_sample = self._metrics.cycles_before_sample()
        return True

    def pre_enqueue_plugin(self, plugin: str, status: str, seconds: float) -> None:
        self._metrics.plugin_duration(plugin, Point.PRE_ENQUEUE, status)(seconds)


class MeasuredPoints:
    """How long the extension points of one profile take, and who has a say there."""

    def __init__(self, metrics: Metrics, profile: Profile, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._metrics = metrics
        self._profile = profile
        name = profile.scheduler_name
        filters = profile.filters
        self.note: Final = metrics.laps(
            name, [lap if filters or lap != (Point.FILTER, Code.SUCCESS) else None for lap in LAPS]
        )
        """To be called once an attempt has ended, with its readings."""
        self._current: Readings | None = None
        self._untimed: dict[object, Counter] = {}
        self._plugins: dict[tuple[str, str, Code], Observe] = {}
        self._before_sample = metrics.cycles_before_sample()

    def begin(self, caller: Caller) -> Readings | None:
        self._before_sample -= 1
        if self._before_sample >= 0:
            if caller.timer is not None:
                caller.use(None)
                self._current = None
            return None
        self._before_sample = self._metrics.cycles_before_sample()
        caller.use(self)
        readings = self._current = _NOT_READ[:]
        readings[BEGUN] = self.clock()
        return readings

    def go_on(self, readings: Readings, place: int) -> None:
        self.note(readings[:])
        readings[:] = _NOT_READ
        readings[place] = self.clock()

    def observe(self, point: str, code: Code, seconds: float | None) -> None:
        if point == Point.FILTER and not self._profile.filters:
            return
        if seconds is not None:
            self._metrics.extension_point(self._profile.scheduler_name, point, code)(seconds)
            return
        key = (point, code)
        tally = self._untimed.get(key)
        if tally is None:
            tally = self._untimed[key] = self._metrics.untimed(self._profile.scheduler_name, [key])
        tally.value += 1

    def passed_until(self, point: str, scored: bool, but: tuple[str, ...]) -> None:
        """An attempt that was not timed has passed all points before this one, `but` some, as usual."""
        key = (point, scored, but)
        tally = self._untimed.get(key)
        if tally is None:
            laps = self._usual(point, scored, but)
            tally = self._untimed[key] = self._metrics.untimed(self._profile.scheduler_name, laps)
        tally.value += 1

    def _usual(self, end: str, scored: bool, but: tuple[str, ...]) -> list[tuple[str, Code]]:
        usual = [lap for lap in LAPS if lap is not None]
        before = [point for point, _ in usual]
        reached = usual[: before.index(end)] if end in before else usual
        left_out = {
            *but,
            *(() if scored else (Point.PRE_SCORE, Point.SCORE)),
            *(() if self._profile.filters else (Point.FILTER,)),
        }
        return [lap for lap in reached if lap[0] not in left_out]

    def took(self, plugin: str, point: str, code: Code, seconds: float) -> None:
        key = (plugin, point, code)
        observe = self._plugins.get(key)
        if observe is None:
            observe = self._plugins[key] = self._metrics.plugin_duration(*key)
        observe(seconds)

    def preemption_tried(self) -> None:
        self._metrics.preemption_attempt()

    def broke(self, point: str) -> None:
        readings = self._current
        if readings is None:
            self.passed_until(point, True, ())
            self.observe(point, Code.ERROR, None)
        else:
            self.observe(point, Code.ERROR, self.clock() - last_reading(readings))
            self.note(readings)

    # Who had a say

    def ended(self, result: Found | NotFound) -> None:
        """Counts once for each plugin that had a say."""
        search = result.search
        if isinstance(result, Found):
            self._tally(search).value += 1
            return
        stopped = result.diagnosis.verdicts is None
        if search.readings is not None:
            self.note(search.readings)
        elif not stopped:
            self.passed_until(Point.PRE_SCORE, False, ())
        if stopped:
            name = self._profile.scheduler_name
            self._metrics.evaluations(name, self._pre_filtered(search)).value += 1
        else:
            self._tally(search).value += 1

    def _tally(self, search: Search) -> Counter:
        """A counter for all plugins that had a say. For pods that are alike it is mostly the same ones."""
        tallies = search.standing.tallies
        last = tallies.get("last")
        if last is not None and last[0] == search.skipped and last[1] == search.silent:
            tally: Counter = last[2]
            return tally
        key = (frozenset(search.skipped), None if search.silent is None else frozenset(search.silent))
        found: Counter | None = tallies.get(key)
        if found is None:
            found = self._metrics.evaluations(self._profile.scheduler_name, self._asked(search))
            tallies[key] = found
        tallies["last"] = (search.skipped, search.silent, found)
        return found

    def _pre_filtered(self, search: Search) -> dict[Point, list[str]]:
        standing = search.standing
        return {
            Point.PRE_FILTER: [
                plugin.name
                for plugin in self._profile.pre_filters
                if plugin.name in search.pre_filtered
                and not (plugin.name in search.skipped or standing.skips(plugin.name))
            ]
        }

    def _asked(self, search: Search) -> dict[Point, list[str]]:
        standing = search.standing
        asked = self._pre_filtered(search)
        asked[Point.FILTER] = [
            step.name
            for step in self._profile.filters
            if not (step.name in search.skipped or standing.skips(step.name))
        ]
        if search.silent is not None:
            kept = {step.name for step in standing.scorers()}
            asked[Point.SCORE] = scoring = [
                step.name
                for step in self._profile.scores
                if (step.name in kept if step.kept else step.name not in search.silent)
            ]
            asked[Point.PRE_SCORE] = [p.name for p in self._profile.pre_scores if p.name in scoring]
        return asked
