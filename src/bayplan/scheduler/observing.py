"""What queue and framework report, passed on to the metrics."""

from __future__ import annotations

from collections.abc import Callable

from bayplan.framework.points import Point
from bayplan.framework.status import Code
from bayplan.metrics import Metrics
from bayplan.queue.observer import QueueObserver


class MeasuredQueue(QueueObserver):
    """Passes on what happens in the queue."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock

    def clock(self) -> float:
        return self._clock()

    def incoming(self, queue: str, event: str) -> None:
        self._metrics.queue_incoming(queue, event)

    def unschedulable(self, plugin: str, profile: str, change: int) -> None:
        self._metrics.unschedulable_pods(plugin, profile, change)

    def hint(self, plugin: str, event: str, outcome: str, seconds: float) -> None:
        self._metrics.hint(plugin, event, outcome, seconds)

    def pre_enqueue(self, profile: str, seconds: float) -> None:
        self._metrics.extension_point(profile, Point.PRE_ENQUEUE, Code.SUCCESS, seconds)


class MeasuredPoints:
    """How long the extension points of one profile take."""

    def __init__(self, metrics: Metrics, profile: str, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._profile = profile
        self._clock = clock
        self._since = 0.0

    def begin(self) -> None:
        self._since = self._clock()

    def passed(self, point: Point, code: Code) -> None:
        now = self._clock()
        self._metrics.extension_point(self._profile, point, code, now - self._since)
        self._since = now
