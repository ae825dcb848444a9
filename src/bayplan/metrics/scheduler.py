"""The metrics of a running scheduler.

One object, created once and passed to all parts. Each method finds its series with one dictionary lookup and
adds to it; no observation is dropped (upstream collects plugin durations once a second and drops those that
exceed its buffer). Gauges of what can be counted on demand (pending pods, the cache) are read on scrape.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.metrics import process_families as process
from bayplan.metrics import release_families as varying
from bayplan.metrics import scheduler_families as scheduler
from bayplan.metrics.instruments import Counter, Families, Family, Gauge, LabelValue, Level, Spec
from bayplan.metrics.metrics import Metrics, Observe, PointT, ReadGauge

QUEUES: Final = ("active", "backoff", "unschedulable", "gated")
POD: Final = "pod"
"""The type of every entity in the queue: there are no pod groups."""
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
        self.families: Final = Families(specs_of(release, show_hidden=show_hidden))
        """All families, including those of the process around the scheduler."""
        self._random = (random.Random() if sampler is None else sampler).random
        self._read: dict[str, tuple[Family[Gauge], ReadGauge]] = {}
        self._pending_pods: ReadGauge = dict
        self._informers: list[tuple[Gauge, Callable[[], str]]] = []
        self._groups: dict[frozenset[tuple[str, str, str]], Counter] = {}
        self._pauses = 0

        family = self.families
        self._attempts = family[scheduler.SCHEDULE_ATTEMPTS]
        self._attempt_seconds = family[scheduler.ATTEMPT_SECONDS]
        self._algorithm_seconds = family[scheduler.ALGORITHM_SECONDS][()]
        self._sli_seconds = family[scheduler.POD_SLI_SECONDS]
        self._pod_attempts = family[scheduler.POD_ATTEMPTS][()]
        self._incoming = family[scheduler.QUEUE_INCOMING]
        self._incoming_entities = family[varying.QUEUE_INCOMING_ENTITIES]
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
        for result in _TRANSPORT_RESULTS:
            family[process.REST_TRANSPORT_CREATES][(result,)]

    # Called once, at the start

    def declare_profile(self, profile: str, plugins: Mapping[PointT, Iterable[str]]) -> None:
        for point, names in plugins.items():
            if point in EVALUATED_POINTS:
                for plugin in names:
                    self._evaluated[plugin, point, profile]
        for result in _BATCH_RESULTS:
            self.families[scheduler.BATCH_ATTEMPTS][profile, result]
        for reason in self._rules.batch_flush_reasons:
            self.families[scheduler.BATCH_FLUSHES][profile, reason]
        for hinted in ("hint", "no_hint"):
            self.families[scheduler.NODE_HINT_SECONDS][hinted, profile]
        self.families[scheduler.STORE_RESULTS_SECONDS][(profile,)]
        self.families[varying.BATCH_RESCORES][(profile,)]
        self.families[varying.BATCH_RESCORE_SECONDS][(profile,)]

    def pending_pods_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(scheduler.PENDING_PODS, read)
        self._pending_pods = read

    def inflight_events_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(scheduler.INFLIGHT_EVENTS, read)

    def cache_size_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(scheduler.CACHE_SIZE, read)

    def unreadable_objects_from(self, read: ReadGauge) -> None:
        self._read_on_scrape(scheduler.UNREADABLE_OBJECTS, read)

    def declare_informer(self, group: str, version: str, kind: str, read: Callable[[], str]) -> Observe:
        # As upstream, even if the real plural is different: storageclasss.
        labels = (_COMPONENT, group, version, f"{kind.lower()}s")
        self.families[varying.INFORMER_QUEUED][labels]
        self._informers.append((self.families[varying.INFORMER_VERSION][labels], read))
        return self.families[varying.INFORMER_SECONDS][labels].observe

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
        self._sli_seconds[_ATTEMPTS.get(attempts, _MANY_ATTEMPTS)].note(since_first)

    def scheduled_after_flush(self) -> None:
        self.families[scheduler.SCHEDULED_AFTER_FLUSH][()].inc()

    def preemption_attempt(self) -> None:
        self.families[scheduler.PREEMPTION_ATTEMPTS][()].inc()

    def preemption(self, victims: int) -> None:
        self.families[scheduler.PREEMPTION_VICTIMS][()].observe(victims)

    def preemption_task_started(self) -> None:
        if not self._rules.measures_preemption_tasks:
            self._preemption_task("success", 0.0)

    def preemption_task_ended(self, result: str, seconds: float) -> None:
        if self._rules.measures_preemption_tasks:
            self._preemption_task(result, seconds)

    def _preemption_task(self, result: str, seconds: float) -> None:
        self.families[scheduler.PREEMPTION_TASKS][(result,)].inc()
        self.families[scheduler.PREEMPTION_TASK_SECONDS][(result,)].observe(seconds)

    # Queue and events

    def queue_incoming(self, queue: str, event: str, *, as_decided: bool) -> None:
        self._incoming[queue, event].value += 1
        if not as_decided:
            self._incoming_entities[queue, event, POD].value += 1

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
        self.families[varying.CLAIM_CREATES][(status,)].inc()
        self.families[varying.CLAIM_CREATES_BY_OWNER][status, "false", "", "Pod"].inc()

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
        """Updates the gauges of queued entities. A series appears with the first pod in its queue."""
        entities = self.families[varying.QUEUED_ENTITIES]
        for queue, value in self._pending_pods().items():
            if value or (queue, POD) in entities or any(queue == known for known, _ in self._incoming.series):
                entities[queue, POD].set(value)


def specs_of(release: Release, *, show_hidden: bool = False) -> Iterator[Spec[Any]]:
    """The families of a release with their stability levels."""
    rules = release.metrics
    always = (*scheduler.SCHEDULER_SPECS, *process.PROCESS_WIDE_SPECS)
    for spec in (*always, *(spec for spec in varying.RELEASE_SPECS if spec.name in rules.families)):
        if spec.name in rules.hidden:
            if show_hidden:
                yield replace(spec, help=f"(Deprecated since {release}.0) {spec.help}")
        elif spec.name in rules.beta:
            yield replace(spec, level=Level.BETA)
        else:
            yield spec
