"""The interface between a scheduler and its metrics, and an implementation that records nothing.

Queue, cache, framework and loop call `Metrics`. Its methods do nothing, so that measuring costs nothing if it
is not needed (`bayplan decide`, a simulation); `scheduler.py` has the implementation that records. Callers
that would have to read a clock check `enabled` first.

All durations are in seconds and come from the caller: nothing here reads a clock. Status codes may be given
as `Code` or as its label.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final, TypeVar

from bayplan.metrics.instruments import Counter, LabelValue

PointT = TypeVar("PointT", bound=str)
"""An extension point by its name: `Point`, or a text such as `PreBindPreFlight`."""

Observe = Callable[[float], None]
"""Records a duration."""

ReadGauge = Callable[[], Mapping[str, float]]
"""Called on scrape: the values of a gauge by label."""


def ignore(seconds: float) -> None:
    """Records nothing."""


class Metrics:
    """Records nothing; the base class of the implementation that does."""

    enabled: ClassVar[bool] = False
    """Whether anything is recorded."""

    # Called once, at the start

    def declare_profile(self, profile: str, plugins: Mapping[PointT, Iterable[str]]) -> None:
        """Creates the series of a profile with these plugins by extension point."""

    def pending_pods_from(self, read: ReadGauge) -> None:
        """The number of pending pods by queue: `active`, `backoff`, `unschedulable`, `gated`."""

    def inflight_events_from(self, read: ReadGauge) -> None:
        """The number of in-flight events by label; pods being scheduled: `PodPopped`."""

    def cache_size_from(self, read: ReadGauge) -> None:
        """The number of `nodes` (with placeholders), `pods` (with assumed ones) and `assumed_pods`."""

    def unreadable_objects_from(self, read: ReadGauge) -> None:
        """How many objects of the cluster cannot be read, by kind."""

    def declare_informer(self, group: str, version: str, kind: str, read: Callable[[], str]) -> Observe:
        """Creates the series of an informer, whose resourceVersion `read` returns.

        Returns what records the time to handle changes.
        """
        return ignore

    def running_from(self, read: ReadGauge) -> None:
        """The number of running tasks by type: `binding`, `PreBind`, ..."""

    def flush(self) -> None:
        """Sorts pending observations into buckets from time to time. Call it every few dozen pods."""

    # Attempts

    def attempt(self, result: str, profile: str, seconds: float) -> None:
        """An attempt has failed: `unschedulable` or `error`."""

    def algorithm(self, seconds: float) -> None:
        """A scheduling cycle has chosen a node, or found none."""

    def pod_scheduled(self, profile: str, seconds: float, attempts: int, since_first: float) -> None:
        """A pod is bound at its nth attempt, `since_first` after its first attempt began."""

    def scheduled_after_flush(self) -> None:
        """A pod is bound that was requeued because it had waited long, and not by an event."""

    def preemption_attempt(self) -> None:
        """The PostFilter of a plugin that preempts was called."""

    def preemption(self, victims: int) -> None:
        """This many pods are preempted for one pod."""

    def preemption_task_started(self) -> None:
        """The background task that evicts victims has started."""

    def preemption_task_ended(self, result: str, seconds: float) -> None:
        """It has ended: `success` or `error`."""

    # Queue and events

    def queue_incoming(self, queue: str, event: str, *, as_decided: bool) -> None:
        """A pod was added to `active`, `backoff` or `unschedulable` because of this event.

        With `as_decided`, an event or a failed attempt had decided on this queue.
        """

    def unschedulable_pods(self, plugin: str, profile: str, delta: int) -> None:
        """The number of pending pods that this plugin rejected has changed by `delta`."""

    def event_handled(self, label: str, seconds: float) -> None:
        """A cluster event was handled."""

    def hint(self, plugin: str, event: str, result: str, seconds: float) -> None:
        """A queueing hint has returned `Queue`, `QueueSkip` or `Error`."""

    # Framework

    def extension_point(self, profile: str, point: str, code: LabelValue) -> Observe:
        """Records how long all plugins of a point took, if they ended with this code."""
        return ignore

    def cycles_before_sample(self) -> int:
        """The number of cycles before the next one that is sampled (1 in 10)."""
        return sys.maxsize

    def plugin_duration(self, plugin: str, point: str, code: LabelValue) -> Observe:
        """Records how long one plugin took at a point, in a sampled cycle."""
        return ignore

    def evaluations(self, profile: str, plugins: Mapping[PointT, Iterable[str]]) -> Counter:
        """A counter whose every increment counts one evaluation of each of these plugins, by point.

        Identical pods are evaluated by the same plugins, about twenty-five; this makes it one addition.
        """
        return Counter()

    def permit_wait(self, code: LabelValue, seconds: float) -> None:
        """A pod has waited at Permit."""

    # Devices and volumes

    def claim_created(self, status: str) -> None:
        """Creating a ResourceClaim for extended resources ended with `success` or `failure`."""

    def binding_conditions(
        self, profile: str, driver: str, status: str, seconds: float, *, has_conditions: bool = True
    ) -> None:
        """Waiting for the binding conditions of devices ended: `success`, `failure`, `timeout`, `error`.

        Called once for each device of the pod's claims, those without binding conditions included.
        """

    def volume_error(self, operation: str) -> None:
        """Volume scheduling failed at stage `predicate`, `assume` or `bind`."""


NULL_METRICS: Final = Metrics()
