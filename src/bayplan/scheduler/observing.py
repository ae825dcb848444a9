"""Connects queue, framework and bindings to the metrics, and logs which pod and which plugin blocks the loop.

A cycle runs to its end before anything else does, so a plugin that computes for minutes stops everything; a
PreBind that blocks instead of awaiting does, too. Timing each call of a plugin would cost more than most
calls take. Instead a thread samples what the loop is doing (`Watchdog`): a cycle, or a call of a plugin, that
is still the same after a second is logged, while it runs, with the plugin and the line. It costs the loop two
assignments per pod.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Final, Self

from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.points import Point
from bayplan.framework.status import Code
from bayplan.metrics import Metrics, Observe, ignore
from bayplan.runtime.framework import Framework
from bayplan.runtime.observed import NO_TIMER, AttemptTimer, RarePoints
from bayplan.runtime.plugin_results import EvaluationCounter
from bayplan.runtime.profile import Profile
from bayplan.runtime.search import Found, NotFound, Search
from bayplan.scheduling_queue.queued import Entity, QueuedGroup, QueueObserver


class QueueMetrics(QueueObserver):
    """Reports queue events to the metrics."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self.clock = clock
        self._pre_enqueue: dict[str, Observe] = {}
        self._before_sample = metrics.cycles_before_sample()

    def incoming(self, entity: Entity, queue: str, event: str, *, as_decided: bool) -> None:
        if isinstance(entity, QueuedGroup):
            self._metrics.queue_incoming_group(queue, event, len(entity.members), as_decided=as_decided)
        else:
            self._metrics.queue_incoming(queue, event, as_decided=as_decided)

    def unschedulable(self, plugin: str, profile: str, change: int) -> None:
        self._metrics.unschedulable_pods(plugin, profile, change)

    def hint(self, plugin: str, event: str, outcome: str, seconds: float) -> None:
        self._metrics.hint(plugin, event, outcome, seconds)

    def pre_enqueue(self, profile: str, seconds: float) -> None:
        # Always a success, as upstream has it, even if a plugin gates the pod.
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


class PointTimer(AttemptTimer):
    """Measures the extension points and plugins of one sampled attempt (`runtime.observed.AttemptTimer`)."""

    __slots__ = ("_metrics", "_since", "clock")

    def __init__(self, metrics: ExtensionPointMetrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self.clock = clock
        self._since = clock()

    def start(self) -> None:
        self._since = self.clock()

    def passed(self, point: str, code: Code = Code.SUCCESS) -> None:
        now = self.clock()
        self._metrics.observe(point, code, now - self._since)
        self._since = now

    def took(self, plugin: str, point: str, code: Code, seconds: float, rows: int = 0) -> None:
        self._metrics.observe_plugin(plugin, point, code, seconds)


class ExtensionPointMetrics:
    """Durations of the extension points of one profile, and which plugins were evaluated.

    In a sampled attempt every extension point and plugin is measured, by the attempt's `PointTimer`. In the
    others nothing is, except PostFilter, PreBind and Unreserve, which few attempts reach.
    """

    def __init__(self, metrics: Metrics, profile: Profile, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._metrics = metrics
        self._profile = profile
        self._points: dict[tuple[str, Code], Observe] = {}
        if not profile.filters:
            self._points.update(((Point.FILTER, code), ignore) for code in Code)
        self._plugins: dict[tuple[str, str, Code], Observe] = {}
        self._before_sample = metrics.cycles_before_sample()
        self.rare_points = RarePoints(self)

    def sample(self) -> AttemptTimer:
        self._before_sample -= 1
        if self._before_sample >= 0:
            return NO_TIMER
        self._before_sample = self._metrics.cycles_before_sample()
        return PointTimer(self, self.clock)

    def observe(self, point: str, code: Code, seconds: float) -> None:
        observe = self._points.get((point, code))
        if observe is None:
            observe = self._metrics.extension_point(self._profile.scheduler_name, point, code)
            self._points[point, code] = observe
        observe(seconds)

    def observe_plugin(self, plugin: str, point: str, code: Code, seconds: float) -> None:
        key = (plugin, point, code)
        observe = self._plugins.get(key)
        if observe is None:
            observe = self._plugins[key] = self._metrics.plugin_duration(*key)
        observe(seconds)

    def preemption_tried(self, code: Code, seconds: float) -> None:
        self._metrics.preemption_attempt(code.label, seconds)

    # Evaluated plugins

    def ended(self, result: Found | NotFound) -> None:
        """Increments the counter of the plugins that were evaluated."""
        search = result.search
        if isinstance(result, NotFound) and result.diagnosis.node_statuses is None:
            name = self._profile.scheduler_name
            self._metrics.evaluations(name, self._pre_filtered(search)).value += 1
        else:
            self._counter_of(search).value += 1

    def _counter_of(self, search: Search) -> EvaluationCounter:
        """The counter for this set of evaluated plugins, which identical pods usually share."""
        counters = search.results.evaluation_counters
        key = (search.skipped_filters, search.skipped_scores)
        found = counters.get(key)
        if found is None:
            found = self._metrics.evaluations(self._profile.scheduler_name, self._evaluated(search))
            counters[key] = found
        return found

    def _pre_filtered(self, search: Search) -> dict[Point, list[str]]:
        results = search.results
        return {
            Point.PRE_FILTER: [
                plugin.name
                for plugin in self._profile.pre_filters
                if plugin.name in search.pre_filtered
                and not (plugin.name in search.skipped_filters or results.skips_filter(plugin.name))
            ]
        }

    def _evaluated(self, search: Search) -> dict[Point, list[str]]:
        results = search.results
        evaluated = self._pre_filtered(search)
        evaluated[Point.FILTER] = [
            step.name
            for step in self._profile.filters
            if not (step.name in search.skipped_filters or results.skips_filter(step.name))
        ]
        if search.skipped_scores is not None:
            cached = {step.name for step in results.scorers()}
            evaluated[Point.SCORE] = scoring = [
                step.name
                for step in self._profile.scores
                if (step.name in cached if step.cached else step.name not in search.skipped_scores)
            ]
            evaluated[Point.PRE_SCORE] = [p.name for p in self._profile.pre_scores if p.name in scoring]
        return evaluated


def observe_profiles(frameworks: Iterable[Framework], metrics: Metrics) -> None:
    """Connects the extension points of all profiles to the metrics."""
    for framework in frameworks:
        profile = framework.profile
        if metrics.enabled:
            framework.observer = ExtensionPointMetrics(metrics, profile, time.perf_counter)
        metrics.declare_profile(
            profile.scheduler_name,
            {point: [plugin.name for plugin in plugins] for point, plugins in profile.plugins.items()},
        )


CYCLE_BUDGET_SECONDS: Final = 1.0
POLLS_PER_BUDGET: Final = 4

_log = logging.getLogger(__name__)


class Watchdog:
    """Watches the thread in which it is entered, unless `seconds` is 0.

    `pod` is the pod whose scheduling cycle is running,
    None between cycles and while one waits for an extender.
    """

    __slots__ = ("_seconds", "_stopped", "_thread", "_watched", "pod")

    def __init__(self, seconds: float = CYCLE_BUDGET_SECONDS) -> None:
        self.pod: Pod | None = None
        self._seconds = seconds
        self._stopped = threading.Event()
        self._watched = 0
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._watched = threading.get_ident()
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._seconds:
            self._thread.join()

    def _watch(self) -> None:
        before: Pod | FrameType | None = None
        times_seen = 0
        while not self._stopped.wait(self._seconds / POLLS_PER_BUDGET):
            pod, stack = self.pod, sys._current_frames().get(self._watched)
            # The frame itself, not its id: that of a call that has ended may be used again.
            now = pod if pod is not None else _outermost_call(stack)
            times_seen = times_seen + 1 if now is before else 0
            before = now
            if now is None or times_seen != POLLS_PER_BUDGET:
                continue
            where = _plugin_on_stack(stack)
            if pod is not None:
                _log.warning(
                    "scheduling pod %s takes longer than %g s, now in %s", pod.key, self._seconds, where
                )
            else:
                _log.warning(
                    "the scheduler has been blocked for more than %g s, now in %s", self._seconds, where
                )


def _outermost_call(frame: FrameType | None) -> FrameType | None:
    """The call of a plugin that is running, if any."""
    found = None
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), Plugin):
            found = frame
        frame = frame.f_back
    return found


def _plugin_on_stack(frame: FrameType | None) -> str:
    """The innermost method of a plugin that is running: `filter of plugin NodeName (node_name.py:12)`."""
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Plugin):
            file = os.path.basename(frame.f_code.co_filename)
            return f"{frame.f_code.co_name} of plugin {owner.name} ({file}:{frame.f_lineno})"
        frame = frame.f_back
    return "no plugin"
