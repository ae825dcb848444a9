"""Observers of the queue, used for metrics.

A queue without an observer spends no time on it. Gauges of the queue's contents are read instead
(`SchedulingQueue.counts`, `.in_flight_counts`).
"""

from __future__ import annotations

from collections.abc import Callable


class QueueObserver:
    """Called on the queue's events. The methods do nothing by default; override those you need."""

    clock: Callable[[], float] = staticmethod(float)
    """Seconds, for durations only: the queue's own clock may stand still while plugins run."""

    def incoming(self, queue: str, event: str, *, as_decided: bool) -> None:
        """A pod entered a sub-queue (active, backoff, unschedulable) because of an event.

        With `as_decided`, its last attempt or a cluster event had decided on this sub-queue.
        """

    def unschedulable(self, plugin: str, profile: str, change: int) -> None:
        """The number of pods that count as rejected by a plugin changed by one.

        As upstream, a pod that is deleted while it is active or backs off is never subtracted.
        """

    def hint(self, plugin: str, event: str, outcome: str, seconds: float) -> None:
        """A plugin's hint was called for an event and returned Queue, QueueSkip or Error."""

    def pre_enqueue(self, profile: str, seconds: float) -> None:
        """The PreEnqueue plugins of a profile were called for a pod."""

    def samples_plugins(self) -> bool:
        """Whether to time each PreEnqueue plugin this time."""
        return False

    def pre_enqueue_plugin(self, plugin: str, status: str, seconds: float) -> None:
        """One of them returned this code. Called only if `samples_plugins` returned True."""


class QueueCounts(QueueObserver):
    """Counts what has to be counted as it happens."""

    def __init__(self) -> None:
        self.incoming_pods: dict[tuple[str, str], int] = {}
        """queue_incoming_pods_total by queue and event."""
        self.unschedulable_pods: dict[tuple[str, str], int] = {}
        """unschedulable_pods by plugin and profile."""

    def incoming(self, queue: str, event: str, *, as_decided: bool) -> None:
        key = queue, event
        self.incoming_pods[key] = self.incoming_pods.get(key, 0) + 1

    def unschedulable(self, plugin: str, profile: str, change: int) -> None:
        key = plugin, profile
        self.unschedulable_pods[key] = self.unschedulable_pods.get(key, 0) + change
