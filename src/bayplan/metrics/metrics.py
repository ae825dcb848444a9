"""What a scheduler tells about its work, and the listener that does not listen.

`Metrics` is the interface that queue, cache, framework and loop call; every method of it does nothing, so
that a core that only decides (`bayplan decide`, a simulation) pays nothing for being measurable.
`scheduler.py` has the one that counts. Who would have to read a clock first asks `enabled`.

All durations are in seconds and come from the caller: nothing here knows the time. Status codes may be given
as `Code` or as its text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final, TypeVar

from bayplan.metrics.instruments import Counter, LabelValue, Readings

PointT = TypeVar("PointT", bound=str)
"""An extension point by its name: `Point`, or a text such as `PreBindPreFlight`."""

Observe = Callable[[float], None]
"""Told how long something took."""

Note = Callable[[Readings], None]
"""Told the readings of a clock."""

ReadGauge = Callable[[], Mapping[str, float]]
"""Called on scrape: the gauge's values by label."""


def ignore(seconds: float) -> None:
    """Nobody wants to know."""


def ignore_row(readings: Readings) -> None:
    """Nobody wants to know."""


class Metrics:
    """Told what happens in a scheduler, and forgets it."""

    enabled: ClassVar[bool] = False
    """Whether anybody listens."""

    # The parts say once what they are

    def declare_profile(self, profile: str, plugins: Mapping[PointT, Iterable[str]]) -> None:
        """There is such a profile, with these plugins by extension point: their series are there from now."""

    def pending_pods_from(self, read: ReadGauge) -> None:
        """How many pods wait, by queue: `active`, `backoff`, `unschedulable`, `gated`."""

    def inflight_events_from(self, read: ReadGauge) -> None:
        """How many events are kept for pods being scheduled, by label; the pods themselves: `PodPopped`."""

    def cache_size_from(self, read: ReadGauge) -> None:
        """How many `nodes` (placeholders too), `pods` (assumed ones too) and `assumed_pods` are known."""

    def running_from(self, read: ReadGauge) -> None:
        """How many tasks are under way, by what they do: `binding`, `PreBind`, ..."""

    def settle(self) -> None:
        """To be called every few dozen pods: what was noted down about them is counted."""

    # Attempts

    def attempt(self, result: str, profile: str, seconds: float) -> None:
        """An attempt has ended, and not well: `unschedulable` or `error`."""

    def algorithm(self, seconds: float) -> None:
        """A node was chosen."""

    def pod_scheduled(self, profile: str, seconds: float, attempts: int, since_first: float) -> None:
        """An attempt has ended with a binding: the nth of this pod, so long after its first one began."""

    def preemption_attempt(self) -> None:
        """Preemption was tried: the PostFilter of a plugin that evicts pods was called."""

    def preemption(self, victims: int) -> None:
        """So many pods are being evicted to make room for one."""

    def preemption_task(self) -> None:
        """The background task that evicts victims has started.

        Upstream looks at its duration and result at this moment, so they are 0 and `success`.
        """

    # Queue and events

    def queue_incoming(self, queue: str, event: str) -> None:
        """A pod came to `active`, `backoff` or `unschedulable`, because of this event."""

    def unschedulable_pods(self, plugin: str, profile: str, delta: int) -> None:
        """So many more (or fewer) waiting pods were rejected by this plugin."""

    def event_handled(self, label: str, seconds: float) -> None:
        """A change of the cluster was taken in, within so much time."""

    def hint(self, plugin: str, event: str, result: str, seconds: float) -> None:
        """A plugin judged an event: `Queue`, `QueueSkip` or `Error`."""

    # Framework

    def extension_point(self, profile: str, point: str, code: LabelValue) -> Observe:
        """To be held, and called with the time that it took to run all plugins of a point.

        `code` is what came of it.
        """
        return ignore

    def laps(self, profile: str, laps: Sequence[tuple[str, LabelValue] | None]) -> Note:
        """To be held, and called with rows of clock readings of attempts.

        Between two readings lies a point with what came of it, or nothing that counts (None). A reading that
        is not a number was not taken.
        """
        return ignore_row

    def untimed(self, profile: str, laps: Sequence[tuple[str, LabelValue]]) -> Counter:
        """A counter to be held: each `inc()` of it counts every one of these points once.

        Their durations are not known, and taken to be like those that are.
        """
        return Counter()

    def cycles_before_sample(self) -> int:
        """In how many cycles nothing is timed before the next in which everything is (one of ten)."""
        return sys.maxsize

    def plugin_duration(self, plugin: str, point: str, code: LabelValue) -> Observe:
        """To be held, and called with the time that one plugin took at a point, in a sampled cycle."""
        return ignore

    def evaluations(self, profile: str, plugins: Mapping[PointT, Iterable[str]]) -> Counter:
        """A counter to be held: each `inc()` of it counts every one of these plugins once, by point.

        The same few plugins have a say for all pods alike, some twenty-five of them; this makes one addition
        of twenty-five.
        """
        return Counter()

    def permit_wait(self, code: LabelValue, seconds: float) -> None:
        """A pod was held at Permit."""

    # Devices and volumes

    def claim_created(self, status: str) -> None:
        """A ResourceClaim was to be created for extended resources: `success` or `failure`."""

    def binding_conditions(self, profile: str, driver: str, status: str, seconds: float) -> None:
        """Devices had to meet conditions: `success`, `failure`, `timeout` or `error` after so long."""

    def volume_error(self, operation: str) -> None:
        """Volume scheduling broke at stage `predicate`, `assume` or `bind`."""


NULL_METRICS: Final = Metrics()
