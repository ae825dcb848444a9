"""Who wants to know what the queue does: metrics, mostly.

A queue without an observer spends nothing on it. Gauges of what the queue holds are not told but asked for
(`SchedulingQueue.counts`, `.in_flight_counts`).
"""

from __future__ import annotations

from collections.abc import Callable


class QueueObserver:
    """Is told what happens and does nothing about it; override what you want to know."""

    clock: Callable[[], float] = staticmethod(float)
    """Seconds, for durations only: the queue's own time may stand still while plugins run."""

    def incoming(self, queue: str, event: str) -> None:
        """A pod entered a part of the queue (active, backoff, unschedulable) because of an event."""

    def unschedulable(self, plugin: str, profile: str, change: int) -> None:
        """One pod more or less counts as rejected by a plugin.

        As upstream, a pod that is deleted while it is active or backs off is never counted off again.
        """

    def hint(self, plugin: str, event: str, outcome: str, seconds: float) -> None:
        """A plugin's hint was asked about an event and said Queue, QueueSkip or Error."""

    def pre_enqueue(self, profile: str, seconds: float) -> None:
        """The PreEnqueue plugins of a profile were asked about a pod."""

    def samples_plugins(self) -> bool:
        """Whether the PreEnqueue plugins are to be timed one by one, this time."""
        return False

    def pre_enqueue_plugin(self, plugin: str, status: str, seconds: float) -> None:
        """One of them answered with this code. Told only where `samples_plugins` said so."""


class QueueCounts(QueueObserver):
    """Counts what has to be counted as it happens, for whoever comes to read it."""

    def __init__(self) -> None:
        self.incoming_pods: dict[tuple[str, str], int] = {}
        """queue_incoming_pods_total by queue and event."""
        self.unschedulable_pods: dict[tuple[str, str], int] = {}
        """unschedulable_pods by plugin and profile."""

    def incoming(self, queue: str, event: str) -> None:
        key = queue, event
        self.incoming_pods[key] = self.incoming_pods.get(key, 0) + 1

    def unschedulable(self, plugin: str, profile: str, change: int) -> None:
        key = plugin, profile
        self.unschedulable_pods[key] = self.unschedulable_pods.get(key, 0) + change
