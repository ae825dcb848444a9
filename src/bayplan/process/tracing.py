"""Traces: one OpenTelemetry trace for each sampled scheduling attempt, sent by OTLP.

    Schedule pod                       from the moment when the pod was queued to its binding or failure
      Queue                            waiting for the attempt
      Scheduling cycle                 the decision
        PreFilter, Filter, …           each extension point; extenders between them
          NodeAffinity, …              plugins that took longer than `PLUGIN_THRESHOLD_SECONDS`
      Binding cycle                    Permit, PreBind, Bind with its request to the API server

Nothing here is imported without `--tracing-config-file`. Attempts that are not sampled cost a few calls. A
sampled one is measured as it is for metrics (`runtime/observed.py`): times are noted while it runs. What was
noted goes to the batch processor of the official SDK, in whose thread `otlp.py` makes and sends the spans; if
the receiver is slow or gone, attempts are dropped, and scheduling goes on.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import yaml

from bayplan.api.pod import Pod
from bayplan.errors import ConfigError
from bayplan.framework.points import Point
from bayplan.framework.status import Code
from bayplan.metrics import NULL_METRICS
from bayplan.runtime.observed import AttemptTimer, PointObserver, RarePoints
from bayplan.runtime.search import Found, NotFound
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.group_cycle import GroupDecision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observing import ExtensionPointMetrics
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.scheduling_queue.queued import QueuedGroup, QueuedPod

if TYPE_CHECKING:
    from bayplan.process.otlp import FinishedAttempt, Note

API_VERSIONS: Final = (
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
)
DEFAULT_ENDPOINT: Final = "localhost:4317"
MAX_RATE: Final = 1_000_000
TRACEPARENT: Final = "tracing.k8s.io/traceparent"
"""The annotation of KEP-5915 with the trace in which the pod was created. Traces link to it; whether an
attempt is sampled does not depend on it, because everybody who creates pods can write it."""
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
PLUGIN_THRESHOLD_SECONDS: Final = 0.001
MAX_NOTES: Final = 64
"""Plugins and extension points noted for one attempt; more are counted only."""
MAX_MEMBERS: Final = 200
"""Members of a group that have spans."""
MAX_BINDING: Final = 4096
"""Sampled attempts whose binding is in progress; of more, only the decision is exported."""


@dataclass(frozen=True, slots=True)
class TracingConfiguration:
    """Kubernetes' own TracingConfiguration: where spans go, and how many attempts are sampled."""

    endpoint: str = DEFAULT_ENDPOINT
    """host:port for gRPC without TLS, as in Kubernetes; an http(s) URL for OTLP over HTTP."""
    rate_per_million: int = 0


def load_tracing(path: str) -> TracingConfiguration:
    """Reads `--tracing-config-file`.

    Raises:
        ConfigError: it is not a valid TracingConfiguration.
    """
    try:
        content = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read tracing configuration {path}: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is not a TracingConfiguration")
    kind, version = content.pop("kind", None), content.pop("apiVersion", None)
    if kind != "TracingConfiguration" or version not in API_VERSIONS:
        raise ConfigError(
            f'{path}: got kind "{kind}" of "{version}", expected TracingConfiguration of {API_VERSIONS[0]}'
        )
    endpoint = content.pop("endpoint", None) or DEFAULT_ENDPOINT
    rate = content.pop("samplingRatePerMillion", 0) or 0
    if content:
        raise ConfigError(f'{path}: unknown field "{next(iter(content))}"')
    if not isinstance(rate, int) or isinstance(rate, bool) or rate < 0:
        raise ConfigError(
            f"{path}: samplingRatePerMillion: Invalid value: {rate}: sampling rate must be positive"
        )
    if rate > MAX_RATE:
        raise ConfigError(
            f"{path}: samplingRatePerMillion: Invalid value: {rate}: "
            "sampling rate per million must be less than or equal to one million"
        )
    if not isinstance(endpoint, str) or (
        "://" in endpoint and not endpoint.startswith(("http://", "https://"))
    ):
        raise ConfigError(
            f"{path}: endpoint: Invalid value: {endpoint!r}: expected host:port or an http(s) URL"
        )
    return TracingConfiguration(endpoint, rate)


@dataclass(slots=True)
class AttemptTrace:
    """What is noted of one attempt; times are those of `time.perf_counter`."""

    pod: Pod
    attempt: int
    queued: float
    started: float
    notes: list[Note] = field(default_factory=list)
    omitted: int = 0
    decided: float = 0.0
    decision: Decision | None = None
    waited_for: tuple[str, ...] = ()
    group: tuple[int, int] | None = None
    """Trace and span of the group of which the pod is a member."""

    def note(self, plugin: str, point: str, code: Code, begin: float, end: float) -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append((plugin, point, code, begin, end))
        else:
            self.omitted += 1


class TraceTimer(AttemptTimer):
    """Notes the extension points and plugins of an attempt, beside the timer of the metrics."""

    __slots__ = ("_metrics", "_since", "_trace")

    def __init__(self, trace: AttemptTrace, metrics: AttemptTimer) -> None:
        self._trace = trace
        self._metrics = metrics
        self._since = time.perf_counter()

    clock = staticmethod(time.perf_counter)

    def start(self) -> None:
        self._since = time.perf_counter()
        self._metrics.start()

    def passed(self, point: str, code: Code = Code.SUCCESS) -> None:
        now = time.perf_counter()
        self._trace.note("", point, code, self._since, now)
        self._since = now
        self._metrics.passed(point, code)

    def took(self, plugin: str, point: str, code: Code, seconds: float, rows: int = 0) -> None:
        if seconds >= PLUGIN_THRESHOLD_SECONDS:
            now = time.perf_counter()
            self._trace.note(plugin, point, code, now - seconds, now)
        self._metrics.took(plugin, point, code, seconds, rows)


class TracedPoints:
    """The observer of a profile: that of the metrics, and for sampled attempts a `TraceTimer`."""

    def __init__(self, tracing: Tracing, metrics: PointObserver) -> None:
        self._tracing = tracing
        self._metrics = metrics
        self.rare_points: RarePoints = metrics.rare_points
        self.clock = metrics.clock

    def sample(self) -> AttemptTimer:
        timer, trace = self._metrics.sample(), self._tracing.current
        return timer if trace is None else TraceTimer(trace, timer)

    def observe(self, point: str, code: Code, seconds: float) -> None:
        trace = self._tracing.current
        # PreBind and Unreserve are observed here, too, while another pod is scheduled.
        if trace is not None and point == Point.POST_FILTER:
            now = time.perf_counter()
            trace.note("", point, code, now - seconds, now)
        self._metrics.observe(point, code, seconds)

    def ended(self, result: Found | NotFound) -> None:
        self._metrics.ended(result)

    def preemption_tried(self, code: Code, seconds: float) -> None:
        self._metrics.preemption_tried(code, seconds)


class AttemptProcessor(Protocol):
    """The batch processor of the SDK: takes finished attempts, and sends them later."""

    def on_end(self, span: Any, /) -> None: ...

    def shutdown(self) -> None: ...


class Tracing:
    """Decides which attempts are sampled, follows them, and gives them to a processor of the SDK.

    Its methods are callbacks of the scheduler: `popped`, `decided`, `progressed`.
    """

    def __init__(
        self,
        config: TracingConfiguration,
        processor: AttemptProcessor,
        rng: random.Random,
    ) -> None:
        self._share = config.rate_per_million / MAX_RATE
        self._processor = processor
        self._rng = rng
        self._now: Callable[[], float] = time.time
        """The clock of the queue."""
        self.current: AttemptTrace | None = None
        """The attempt whose scheduling cycle runs; None if it is not sampled."""
        self._binding: dict[str, AttemptTrace] = {}
        self._members: dict[str, AttemptTrace] = {}
        """The members of that group that have not been reported yet, by uid."""
        from bayplan.process.otlp import FinishedAttempt

        self._finished = FinishedAttempt

    def observe(self, scheduler: Scheduler) -> None:
        """Measures the extension points of sampled attempts, beside the metrics."""
        self._now = scheduler.context.now
        scheduler.context.observers.popped = self.popped
        scheduler.context.observers.group = self.group_attempt
        for framework in scheduler.core.frameworks.values():
            metrics = framework.observer
            if metrics is None:
                metrics = ExtensionPointMetrics(NULL_METRICS, framework.profile, time.perf_counter)
            framework.observer = TracedPoints(self, metrics)

    def popped(self, info: QueuedPod) -> None:
        """An attempt begins."""
        self.current = None
        if self._rng.random() >= self._share:
            return
        begin = time.perf_counter()
        waited = max(self._now() - info.timestamp, 0.0)
        self.current = AttemptTrace(info.pod, info.attempts, begin - waited, begin)

    def group_attempt(self, entity: QueuedGroup, decision: GroupDecision | None) -> None:
        """The cycle of a group begins (no decision), or has ended."""
        if decision is None:
            self._members.clear()
            infos = entity.members
            self.popped(infos[0])
            if self.current is not None:
                begin = self.current.started
                for info in infos[:MAX_MEMBERS]:
                    queued = begin - max(self._now() - info.timestamp, 0.0)
                    self._members[info.pod.uid] = AttemptTrace(info.pod, info.attempts, queued, begin)
            return
        trace, self.current = self.current, None
        if trace is None:
            return
        trace.decided = time.perf_counter()
        group = self._finished_group(trace, entity, decision)
        for one in self._members.values():
            one.group = group.trace_id, group.span_id
        self._processor.on_end(group)

    def decided(self, decision: Decision) -> None:
        """Its scheduling cycle has ended."""
        member = self._members.pop(decision.pod.uid, None)
        trace, self.current = self.current if member is None else member, None
        if trace is None:
            return
        trace.decided = time.perf_counter()
        trace.decision = decision
        if decision.found is not None and len(self._binding) < MAX_BINDING:
            self._binding[decision.pod.uid] = trace
        else:
            self._export(trace, "")

    def progressed(self, progress: BindingProgress) -> None:
        """A pod waits at Permit, is bound, or is rejected after its decision."""
        if not self._binding:
            return
        if progress.step is BindingStep.WAITING:
            waiting = self._binding.get(progress.pod.uid)
            if waiting is not None:
                waiting.waited_for = progress.plugins
            return
        trace = self._binding.pop(progress.pod.uid, None)
        if trace is not None:
            self._export(
                trace, "" if progress.step is BindingStep.BOUND else progress.reason or progress.step.value
            )

    def _export(self, trace: AttemptTrace, failure: str) -> None:
        decision, pod, rng = trace.decision, trace.pod, self._rng
        assert decision is not None, "exported after the decision"
        failure = failure or ("" if decision.found is not None else decision.message)
        attributes: dict[str, str | int] = {
            "k8s.namespace.name": pod.namespace,
            "k8s.pod.name": pod.name,
            "k8s.pod.uid": pod.uid,
            "scheduler.attempt": trace.attempt,
            "scheduler.profile": pod.spec.scheduler_name,
            "scheduler.result": _result(decision, failure),
        }
        if decision.node_name:
            attributes["k8s.node.name"] = decision.node_name
        if trace.omitted:
            attributes["scheduler.omitted_spans"] = trace.omitted
        trace_id, parent_id = trace.group or (rng.getrandbits(128) or 1, 0)
        self._processor.on_end(
            self._finished(
                "Schedule pod",
                # The cycle of a member is that of its group.
                "Scheduling cycle" if trace.group is None else "",
                attributes,
                failure,
                trace_id,
                rng.getrandbits(64) or 1,
                trace.queued,
                trace.started,
                trace.decided,
                time.perf_counter(),
                tuple(trace.notes),
                parent_id,
                binds=decision.found is not None,
                waited_for=trace.waited_for,
                link=traceparent(pod),
            )
        )

    def _finished_group(
        self, trace: AttemptTrace, entity: QueuedGroup, decision: GroupDecision
    ) -> FinishedAttempt:
        """The cycle of a group, to which its members belong."""
        key, members, rng = entity.group.key, decision.decisions, self._rng
        attributes: dict[str, str | int] = {
            "k8s.namespace.name": key.namespace,
            "scheduler.group": key.name,
            "scheduler.group.members": len(members),
            "scheduler.group.feasible": sum(one is not None and one.found is not None for one in members),
            "scheduler.result": "scheduled" if decision.final.is_success else "unschedulable",
        }
        return self._finished(
            "Schedule group",
            "Group cycle",
            attributes,
            "" if decision.final.is_success else decision.message,
            rng.getrandbits(128) or 1,
            rng.getrandbits(64) or 1,
            trace.queued,
            trace.started,
            trace.decided,
            trace.decided,
            tuple(trace.notes),
            waits=False,
        )

    def close(self) -> None:
        """Sends what is left. Waits for the receiver, at most for the time-out of the exporter."""
        self._processor.shutdown()


def traceparent(pod: Pod) -> tuple[int, int, int] | None:
    """Trace, span and flags of a pod's annotation; None without a valid one."""
    text = pod.metadata.annotations.get(TRACEPARENT)
    found = None if text is None else _TRACEPARENT.fullmatch(text)
    if found is None:
        return None
    trace, span, flags = (int(part, 16) for part in found.groups())
    return (trace, span, flags) if trace and span else None


def _result(decision: Decision, failure: str) -> str:
    """As `scheduler_schedule_attempts_total` counts it."""
    if decision.found is not None:
        return "error" if failure else "scheduled"
    return "unschedulable" if decision.status.is_rejection else "error"


def make_tracing(path: str) -> Tracing | None:
    """Tracing as a file configures it; None if it samples nothing.

    Raises:
        ConfigError: the file is invalid, or the packages are missing.
    """
    config = load_tracing(path)
    if not config.rate_per_million:
        return None
    return Tracing(config, make_processor(config), random.Random())


def make_processor(config: TracingConfiguration) -> AttemptProcessor:
    """Exports in batches, by gRPC or, to an http(s) URL, by HTTP.

    Raises:
        ConfigError: the packages of the extra `tracing` are not installed.
    """
    try:
        from bayplan.process import otlp
    except ImportError as error:
        raise ConfigError(
            f"--tracing-config-file needs the packages of the extra tracing ({error}): "
            "pip install 'PATH-OF-THE-CLONE[tracing]'"
        ) from error
    return otlp.make_processor(config.endpoint, random.Random())
