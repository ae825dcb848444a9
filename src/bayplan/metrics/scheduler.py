"""The metrics of a running scheduler.

One object, created once and passed to all parts. Each method finds its series with one dictionary lookup and
adds to it; no observation is dropped (upstream collects plugin durations once a second and drops those that
exceed its buffer). Gauges of what can be counted on demand (pending pods, the cache) are read on scrape.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from bayplan.metrics import process_families as process
from bayplan.metrics import scheduler_families as scheduler
from bayplan.metrics.instruments import Counter, Families, Family, Gauge, LabelValue, Spec
from bayplan.metrics.metrics import Metrics, Observe, PointT, ReadGauge

QUEUES: Final = ("active", "backoff", "unschedulable", "gated")
EVALUATED_POINTS: Final = ("PreFilter", "Filter", "PreScore", "Score")
"""The extension points at which evaluations are counted."""
SAMPLE_RATE: Final = 0.1
PAUSES_BETWEEN_FLUSHES: Final = 64
"""With 64 pods between two pauses a list of observations grows to about 4,000."""
_ATTEMPTS: Final = (*map(str, range(1, 15)), "15+")
_BATCH_RESULTS: Final = ("no_hint", "hint_used", "hint_not_used")
_BATCH_FLUSHES: Final = (
    *("pod_skipped", "pod_failed", "pod_incompatible", "expired", "node_missing", "node_not_full"),
    *("pod_not_batchable", "empty_list"),
)


class SchedulerMetrics(Metrics):
    """Records everything; `exposition()` is the answer to a scrape.

    Args:
        sampler: decides which cycles are sampled. It is a generator of its own, so that decisions are the
            same with and without metrics.
    """

    enabled: ClassVar[bool] = True

    def __init__(self, sampler: random.Random | None = None) -> None:
        self.families: Final = Families((*scheduler.SCHEDULER_SPECS, *process.PROCESS_WIDE_SPECS))
        """All families, including those of the process around the scheduler."""
        self._random = (random.Random() if sampler is None else sampler).random
        self._read: dict[str, tuple[Family[Gauge], ReadGauge]] = {}
        self._groups: dict[frozenset[tuple[str, str, str]], Counter] = {}
        self._pauses = 0

        family = self.families
        self._attempts = family[scheduler.SCHEDULE_ATTEMPTS]
        self._attempt_seconds = family[scheduler.ATTEMPT_SECONDS]
        self._algorithm_seconds = family[scheduler.ALGORITHM_SECONDS][()]
        self._sli_seconds = family[scheduler.POD_SLI_SECONDS]
        self._pod_attempts = family[scheduler.POD_ATTEMPTS][()]
        self._incoming = family[scheduler.QUEUE_INCOMING]
        self._unschedulable = family[scheduler.UNSCHEDULABLE_PODS]
        self._event_seconds = family[scheduler.EVENT_SECONDS]
        self._hint_seconds = family[scheduler.HINT_SECONDS]
        self._point_seconds = family[scheduler.EXTENSION_POINT_SECONDS]
        self._plugin_seconds = family[scheduler.PLUGIN_SECONDS]
        self._evaluated = family[scheduler.PLUGIN_EVALUATIONS]
        self._permit_seconds = family[scheduler.PERMIT_WAIT_SECONDS]

        for queue in QUEUES:
            family[scheduler.PENDING_PODS][(queue,)]
        family[process.REST_CERTIFICATE_TTL][()].set(math.inf)

    # Called once, at the start

    def declare_profile(self, profile: str, plugins: Mapping[PointT, Iterable[str]]) -> None:
        for point, names in plugins.items():
            if point in EVALUATED_POINTS:
                for plugin in names:
                    self._evaluated[plugin, point, profile]
        for result in _BATCH_RESULTS:
            self.families[scheduler.BATCH_ATTEMPTS][profile, result]
        for reason in _BATCH_FLUSHES:
            self.families[scheduler.BATCH_FLUSHES][profile, reason]
        for hinted in ("hint", "no_hint"):
            self.families[scheduler.NODE_HINT_SECONDS][hinted, profile]
        self.families[scheduler.STORE_RESULTS_SECONDS][(profile,)]

    def pending_pods_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(scheduler.PENDING_PODS, read)

    def inflight_events_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(scheduler.INFLIGHT_EVENTS, read)

    def cache_size_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(scheduler.CACHE_SIZE, read)

    def unreadable_objects_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(scheduler.UNREADABLE_OBJECTS, read)

    def running_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(scheduler.RUNNING, read)

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
        self._sli_seconds[(_ATTEMPTS[min(attempts, 15) - 1],)].note(since_first)

    def scheduled_after_flush(self) -> None:
        self.families[scheduler.SCHEDULED_AFTER_FLUSH][()].inc()

    def preemption_attempt(self) -> None:
        self.families[scheduler.PREEMPTION_ATTEMPTS][()].inc()

    def preemption(self, victims: int) -> None:
        self.families[scheduler.PREEMPTION_VICTIMS][()].observe(victims)

    def preemption_task(self) -> None:
        self.families[scheduler.PREEMPTION_TASKS][("success",)].inc()
        self.families[scheduler.PREEMPTION_TASK_SECONDS][("success",)].observe(0.0)

    # Queue and events

    def queue_incoming(self, queue: str, event: str) -> None:
        self._incoming[queue, event].value += 1

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

    def claim_created(self, status: str, *, by_owner: bool) -> None:
        if by_owner:
            self.families[scheduler.CLAIM_CREATES_BY_OWNER][status, "false", "", "Pod"].inc()
        else:
            self.families[scheduler.CLAIM_CREATES][(status,)].inc()

    def binding_conditions(
        self, profile: str, driver: str, status: str, seconds: float, *, has_conditions: bool = True
    ) -> None:
        if has_conditions:
            self.families[scheduler.BINDING_CONDITIONS][profile, driver, status].inc()
        self.families[scheduler.BINDING_CONDITIONS_SECONDS][profile, driver, status].observe(seconds)

    def volume_error(self, operation: str) -> None:
        self.families[scheduler.VOLUME_STAGE_ERRORS][(operation,)].inc()

    # Scrapes

    def exposition(self) -> bytes:
        """All metrics as text, in the format of Prometheus: the answer to GET /metrics."""
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
        for series, group in self._groups.items():
            for key in series:
                self._evaluated[key].value += group.value
            group.value = 0
        self._pauses = 0
        self.families.flush()
