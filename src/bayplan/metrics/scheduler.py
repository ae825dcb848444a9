"""The metrics of a scheduler: what it reports, and the implementation that counts.

Queue, cache, framework and loop call `Metrics`. Its methods do nothing, so that measuring costs nothing where
it is not needed (`bayplan decide`, a simulation); `SchedulerMetrics` records. Callers that would have to read
a clock check `enabled` first: all durations are in seconds and come from the caller. Status codes may be
given as `Code` or as its label.

Each method of `SchedulerMetrics` finds its series with one dictionary lookup and adds to it; no observation
is dropped (upstream collects plugin durations once a second and drops those that exceed its buffer). Gauges
of what can be counted on demand (pending pods, the cache) are read on scrape. The families are in
`families.py`.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final, TypeVar

from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.metrics import families as named
from bayplan.metrics import process_families
from bayplan.metrics.instruments import Counter, Families, Family, Gauge, LabelValue, Spec

PointT = TypeVar("PointT", bound=str)
"""An extension point by its name: `Point`, or a text such as `PreBindPreFlight`."""

Observe = Callable[[float], None]
"""Records a duration."""

ReadGauge = Callable[[], Mapping[str, float]]
"""Called on scrape: the values of a gauge by label."""
ReadQueues = Callable[[], Mapping[Spec[Gauge], Mapping[tuple[str, ...], float]]]
"""Called on scrape: the values of several gauges, each by its labels."""


def ignore(seconds: float) -> None:
    """Records nothing."""


class Metrics:
    """Records nothing; the base class of the implementation that does."""

    enabled: ClassVar[bool] = False
    """Whether anything is recorded."""

    # Called once, at the start

    def declare_profile(self, profile: str, plugins: Mapping[PointT, Iterable[str]]) -> None:
        """Creates the series of a profile with these plugins by extension point."""

    def queued_entities_from(self, read: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        """The number of queued entities by queue and type: `pod` or `podgroup`."""

    def pending_pods_from(self, read: ReadGauge) -> None:
        """The number of pending pods by queue: `active`, `backoff`, `unschedulable`, `gated`."""

    def inflight_events_from(self, read: ReadGauge) -> None:
        """The number of in-flight events by label; pods being scheduled: `PodPopped`."""

    def cache_size_from(self, read: ReadGauge) -> None:
        """The number of `nodes` (with placeholders), `pods` (with assumed ones) and `assumed_pods`."""

    def unreadable_objects_from(self, read: ReadGauge) -> None:
        """How many objects of the cluster cannot be read, by kind."""

    def capacity_queues_from(self, read: ReadQueues) -> None:
        """The gauges of capacity queues, under the names of their dialect."""

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

    def preemption_attempt(self, result: str, seconds: float) -> None:
        """The PostFilter of a plugin that preempts took this long and returned this status."""

    def preemption(self, victims: int) -> None:
        """This many pods are preempted for one pod."""

    def group_algorithm(self, seconds: float) -> None:
        """The nodes of a group's members were chosen, or it was found that there are none."""

    def group_attempt(self, result: str, profile: str, seconds: float) -> None:
        """An attempt for a group ended: scheduled, unschedulable, waiting_on_preemption or error."""

    def group_preemption(self, result: str, seconds: float) -> None:
        """The victims for a group were determined, with this status."""

    def group_victims(self, victims: int) -> None:
        """This many pods are preempted for one group."""

    def disruptions(self, preemptor: str, units: int, violations: int) -> None:
        """A preemption for a `pod` or a `podgroup` evicts so many groups, or members of groups, and violates
        so many budgets."""

    def placements(self, profile: str, generated: int, evaluated: Iterable[tuple[bool, float]]) -> None:
        """So many placements were generated for a group; of those evaluated: whether it is feasible, and how
        long that took."""

    def preemption_task_started(self) -> None:
        """The background task that evicts victims has started."""

    def preemption_task_ended(self, preemptor: str, result: str, seconds: float) -> None:
        """It has ended for a `pod` or a `podgroup`: `success` or `error`."""

    # Queue and events

    def queue_incoming(self, queue: str, event: str, *, as_decided: bool) -> None:
        """A pod was added to `active`, `backoff` or `unschedulable` because of this event.

        With `as_decided`, an event or a failed attempt had decided on this queue.
        """

    def queue_incoming_group(self, queue: str, event: str, size: int, *, as_decided: bool) -> None:
        """A group of this size entered a queue."""

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


QUEUES: Final = ("active", "backoff", "unschedulable", "gated")
POD: Final = "pod"
POD_GROUP: Final = "podgroup"
"""The types of entities in the queue."""
EVALUATED_POINTS: Final = ("PreFilter", "Filter", "PreScore", "Score")
"""The extension points at which evaluations are counted."""
SAMPLE_RATE: Final = 0.1
PAUSES_BETWEEN_FLUSHES: Final = 64
"""With 64 pods between two pauses a list of observations grows to about 4,000."""
_ATTEMPTS: Final = {attempts: (str(attempts),) for attempts in range(1, 15)}
_MANY_ATTEMPTS: Final = ("15+",)
_BATCH_RESULTS: Final = ("no_hint", "hint_used", "hint_not_used")
_TRANSPORT_RESULTS: Final = ("hit", "miss")
_COMPONENT: Final = "kube-scheduler"
_VERSION_DIGITS: Final = 15


class SchedulerMetrics(Metrics):
    """Records everything; `exposition()` is the response to a scrape.

    Args:
        sampler: decides which cycles are sampled. It is a generator of its own, so that decisions are the
            same with and without metrics.
        release: the release of Kubernetes whose metrics these are.
        show_hidden: whether deprecated families are shown.
    """

    enabled: ClassVar[bool] = True

    def __init__(
        self,
        sampler: random.Random | None = None,
        *,
        release: Release = DEFAULT_RELEASE,
        show_hidden: bool = False,
    ) -> None:
        self._rules = release.metrics
        self.families: Final = Families(named.specs_of(release, show_hidden=show_hidden))
        """All families, including those of the process around the scheduler."""
        self._random = (random.Random() if sampler is None else sampler).random
        self._read_queues: ReadQueues | None = None
        self._read: dict[str, tuple[Family[Gauge], ReadGauge]] = {}
        self._queued_entities: Callable[[], Mapping[tuple[str, str], int]] = dict
        self._informers: list[tuple[Gauge, Callable[[], str]]] = []
        self._groups: dict[frozenset[tuple[str, str, str]], Counter] = {}
        self._pauses = 0

        family = self.families
        self._attempts = family[named.SCHEDULE_ATTEMPTS]
        self._attempt_seconds = family[named.ATTEMPT_SECONDS]
        self._algorithm_seconds = family[named.ALGORITHM_SECONDS][()]
        self._sli_seconds = family[named.POD_SLI_SECONDS]
        self._pod_attempts = family[named.POD_ATTEMPTS][()]
        self._incoming = family[named.QUEUE_INCOMING]
        self._incoming_entities = family[named.QUEUE_INCOMING_ENTITIES]
        self._unschedulable = family[named.UNSCHEDULABLE_PODS]
        self._event_seconds = family[named.EVENT_SECONDS]
        self._hint_seconds = family[named.HINT_SECONDS]
        self._point_seconds = family[named.EXTENSION_POINT_SECONDS]
        self._plugin_seconds = family[named.PLUGIN_SECONDS]
        self._evaluated = family[named.PLUGIN_EVALUATIONS]
        self._permit_seconds = family[named.PERMIT_WAIT_SECONDS]
        self._preemption_attempts = family[named.PREEMPTION_ATTEMPTS][()]
        self._preemption_victims = family[named.PREEMPTION_VICTIMS][()]
        self._preemption_evaluation_seconds = family[named.PREEMPTION_EVALUATION_SECONDS]
        self._preemption_execution_seconds = family[named.PREEMPTION_EXECUTION_SECONDS]
        self._preemption_tasks = family[named.PREEMPTION_TASKS]
        self._preemption_task_seconds = family[named.PREEMPTION_TASK_SECONDS]

        for queue in QUEUES:
            family[named.PENDING_PODS][(queue,)]
        family[process_families.REST_CERTIFICATE_TTL][()].set(math.inf)
        for result in _TRANSPORT_RESULTS:
            family[process_families.REST_TRANSPORT_CREATES][(result,)]

    # Called once, at the start

    def declare_profile(self, profile: str, plugins: Mapping[PointT, Iterable[str]]) -> None:
        for point, names in plugins.items():
            if point in EVALUATED_POINTS:
                for plugin in names:
                    self._evaluated[plugin, point, profile]
        for result in _BATCH_RESULTS:
            self.families[named.BATCH_ATTEMPTS][profile, result]
        for reason in self._rules.batch_flush_reasons:
            self.families[named.BATCH_FLUSHES][profile, reason]
        for hinted in ("hint", "no_hint"):
            self.families[named.NODE_HINT_SECONDS][hinted, profile]
        self.families[named.STORE_RESULTS_SECONDS][(profile,)]
        self.families[named.BATCH_RESCORES][(profile,)]
        self.families[named.BATCH_RESCORE_SECONDS][(profile,)]

    def pending_pods_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(named.PENDING_PODS, read)

    def queued_entities_from(self, read: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        self._queued_entities = read

    def inflight_events_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(named.INFLIGHT_EVENTS, read)

    def cache_size_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(named.CACHE_SIZE, read)

    def unreadable_objects_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(named.UNREADABLE_OBJECTS, read)

    def capacity_queues_from(self, read: ReadQueues) -> None:
        self._read_queues = read

    def declare_informer(self, group: str, version: str, kind: str, read: Callable[[], str]) -> Observe:
        # As upstream, even if the real plural is different: storageclasss.
        labels = (_COMPONENT, group, version, f"{kind.lower()}s")
        self.families[named.INFORMER_QUEUED][labels]
        self._informers.append((self.families[named.INFORMER_VERSION][labels], read))
        return self.families[named.INFORMER_SECONDS][labels].observe

    def running_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(named.RUNNING, read)

    def flush(self) -> None:
        self._pauses += 1
        if self._pauses >= PAUSES_BETWEEN_FLUSHES:
            self._pauses = 0
            self.families.flush()

    # Attempts

    def attempt(self, result: str, profile: str, seconds: float) -> None:
        key = (result, profile)
        self._attempts[key].value += 1
        self._attempt_seconds[key].note(seconds)

    def algorithm(self, seconds: float) -> None:
        self._algorithm_seconds.note(seconds)

    def pod_scheduled(self, profile: str, seconds: float, attempts: int, since_first: float) -> None:
        self.attempt("scheduled", profile, seconds)
        self._pod_attempts.note(attempts)
        self._sli_seconds[_ATTEMPTS.get(attempts, _MANY_ATTEMPTS)].note(since_first)

    def scheduled_after_flush(self) -> None:
        self.families[named.SCHEDULED_AFTER_FLUSH][()].inc()

    def preemption_attempt(self, result: str, seconds: float) -> None:
        self._preemption_attempts.inc()
        self._preemption_evaluation_seconds[POD, result].observe(seconds)

    def preemption(self, victims: int) -> None:
        self._preemption_victims.observe(victims)

    def group_algorithm(self, seconds: float) -> None:
        self.families[named.GROUP_ALGORITHM_SECONDS][()].observe(seconds)

    def group_attempt(self, result: str, profile: str, seconds: float) -> None:
        self.families[named.GROUP_ATTEMPTS][result, profile].inc()
        self.families[named.GROUP_ATTEMPT_SECONDS][result, profile].observe(seconds)

    def group_preemption(self, result: str, seconds: float) -> None:
        self.families[named.GROUP_PREEMPTIONS][(result,)].inc()
        self._preemption_evaluation_seconds[POD_GROUP, result].observe(seconds)

    def group_victims(self, victims: int) -> None:
        self.families[named.GROUP_PREEMPTION_VICTIMS][()].observe(victims)

    def disruptions(self, preemptor: str, units: int, violations: int) -> None:
        if units:
            self.families[named.GROUP_DISRUPTIONS][(preemptor,)].observe(units)
        if violations:
            self.families[named.BUDGET_VIOLATIONS][(preemptor,)].inc(violations)

    def placements(self, profile: str, generated: int, evaluated: Iterable[tuple[bool, float]]) -> None:
        self.families[named.PLACEMENTS][(profile,)].inc(generated)
        for is_feasible, seconds in evaluated:
            result = "feasible" if is_feasible else "infeasible"
            self.families[named.PLACEMENT_EVALUATIONS][result, profile].inc()
            self.families[named.PLACEMENT_EVALUATION_SECONDS][result, profile].observe(seconds)

    def preemption_task_started(self) -> None:
        if not self._rules.measures_preemption_tasks:
            self._preemption_task("success", 0.0)

    def preemption_task_ended(self, preemptor: str, result: str, seconds: float) -> None:
        self._preemption_execution_seconds[preemptor, result].observe(seconds)
        if self._rules.measures_preemption_tasks:
            self._preemption_task(result, seconds)

    def _preemption_task(self, result: str, seconds: float) -> None:
        self._preemption_tasks[(result,)].inc()
        self._preemption_task_seconds[(result,)].observe(seconds)

    # Queue and events

    def queue_incoming(self, queue: str, event: str, *, as_decided: bool) -> None:
        self._incoming[queue, event].value += 1
        if not as_decided:
            self._incoming_entities[queue, event, POD].value += 1

    def queue_incoming_group(self, queue: str, event: str, size: int, *, as_decided: bool) -> None:
        self._incoming[queue, event].value += size
        if not as_decided:
            self._incoming_entities[queue, event, POD_GROUP].value += 1

    def unschedulable_pods(self, plugin: str, profile: str, delta: int) -> None:
        self._unschedulable[plugin, profile].value += delta

    def event_handled(self, label: str, seconds: float) -> None:
        self._event_seconds[(label,)].observe(seconds)

    def hint(self, plugin: str, event: str, result: str, seconds: float) -> None:
        self._hint_seconds[plugin, event, result].observe(seconds)

    # Framework

    def extension_point(self, profile: str, point: str, code: LabelValue) -> Observe:
        return self._point_seconds[point, code, profile].note

    def cycles_before_sample(self) -> int:
        # The geometric distribution: as if each cycle was sampled with this probability.
        return int(math.log(1.0 - self._random()) / math.log(1.0 - SAMPLE_RATE))

    def plugin_duration(self, plugin: str, point: str, code: LabelValue) -> Observe:
        return self._plugin_seconds[plugin, point, code].note

    def evaluations(self, profile: str, plugins: Mapping[PointT, Iterable[str]]) -> Counter:
        series = frozenset((plugin, point, profile) for point, names in plugins.items() for plugin in names)
        return self._groups.setdefault(series, Counter())

    def permit_wait(self, code: LabelValue, seconds: float) -> None:
        self._permit_seconds[(code,)].observe(seconds)

    # Devices and volumes

    def claim_created(self, status: str) -> None:
        self.families[named.CLAIM_CREATES][(status,)].inc()
        self.families[named.CLAIM_CREATES_BY_OWNER][status, "false", "", "Pod"].inc()

    def binding_conditions(
        self, profile: str, driver: str, status: str, seconds: float, *, has_conditions: bool = True
    ) -> None:
        if has_conditions:
            self.families[named.BINDING_CONDITIONS][profile, driver, status].inc()
        self.families[named.BINDING_CONDITIONS_SECONDS][profile, driver, status].observe(seconds)

    def volume_error(self, operation: str) -> None:
        self.families[named.VOLUME_STAGE_ERRORS][(operation,)].inc()

    # Scrapes

    def exposition(self) -> bytes:
        """All metrics as text, in the format of Prometheus: the response to GET /metrics."""
        # Imported here because only a scrape needs prometheus-client, which takes a while to load.
        from bayplan.metrics.exposition import exposition

        self._update()
        return exposition(self.families)

    def reset(self) -> None:
        """Sets counters and histograms to 0: DELETE /metrics.

        Gauges keep their values. Upstream resets gauges too, after which those that it increments and
        decrements are wrong.
        """
        self._update()
        self.families.reset()

    def _read_on_scrape(self, spec: Spec[Gauge], read: ReadGauge) -> None:
        self._read[spec.name] = (self.families[spec], read)

    def _update(self) -> None:
        for family, read in self._read.values():
            for gauge in family.series.values():
                gauge.set(0)
            for label, value in read().items():
                family[(label,)].set(value)
        if self._read_queues is not None:
            for spec, values in self._read_queues().items():
                family = self.families[spec]
                for gauge in family.series.values():
                    gauge.set(0)
                for labels, value in values.items():
                    family[labels].set(value)
        self._update_entities()
        for gauge, version in self._informers:
            gauge.set(float(digits) if (digits := version()[-_VERSION_DIGITS:]).isdecimal() else 0.0)
        for series, group in self._groups.items():
            for key in series:
                self._evaluated[key].value += group.value
            group.value = 0
        self._pauses = 0
        self.families.flush()

    def _update_entities(self) -> None:
        """Updates the gauges of queued entities. A series appears with the first entity in its queue."""
        entities = self.families[named.QUEUED_ENTITIES]
        for key, value in self._queued_entities().items():
            is_known = key in entities or (
                key[1] == POD and any(key[0] == known for known, _ in self._incoming.series)
            )
            if value or is_known:
                entities[key].set(value)
