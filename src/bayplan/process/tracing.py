"""Traces: one OpenTelemetry trace for each sampled scheduling attempt, sent by OTLP.

    Schedule pod                       from the moment when the pod was queued to its binding or failure
      Queue                            waiting for the attempt
      Scheduling cycle                 the decision
        PreFilter, Filter, …           each extension point; extenders between them
          NodeAffinity, …              plugins that took longer than `PLUGIN_THRESHOLD_SECONDS`
      Binding cycle                    Reserve, Permit, PreBind, Bind with its request to the API server

Nothing here is imported without `--tracing-config-file`. Attempts that are not sampled cost a few calls. A
sampled one is measured as it is for metrics (`runtime/observed.py`): times are noted while it runs. What was
noted goes to the batch processor of the official SDK, in whose thread `spans.py` encodes and `otlp.py` sends
it; if the receiver is slow or gone, attempts are dropped, and scheduling goes on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from bayplan.errors import ConfigError
from bayplan.framework.status import Code
from bayplan.metrics import NULL_METRICS
from bayplan.process.spans import AttemptTrace, GroupIds, GroupTrace
from bayplan.runtime.observed import NO_TIMER, AttemptTimer, PointObserver, RarePoints
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.group_cycle import GroupDecision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.observing import ExtensionPointMetrics
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.scheduling_queue.queued import QueuedGroup, QueuedPod

API_VERSIONS: Final = (
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
)
DEFAULT_ENDPOINT: Final = "localhost:4317"
MAX_RATE: Final = 1_000_000
MAX_MEMBERS: Final = 200
"""Members of a group that have spans."""
MAX_BINDING: Final = 4096
"""Sampled attempts whose binding is in progress; of more, only the decision is exported."""

# In Python 3.11 looking up a member of an enum takes longer than calling a function.
_BOUND: Final = BindingStep.BOUND
_WAITING: Final = BindingStep.WAITING


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


class MeasuredTrace(AttemptTimer):
    """The timer of an attempt that is sampled for traces and for metrics."""

    __slots__ = ("_metrics", "_trace")

    def __init__(self, trace: AttemptTrace, metrics: AttemptTimer) -> None:
        self._trace = trace
        self._metrics = metrics

    clock = staticmethod(time.perf_counter)

    def start(self) -> None:
        self._trace.start()
        self._metrics.start()

    def passed(self, point: str, code: Code = Code.SUCCESS) -> None:
        self._trace.passed(point, code)
        self._metrics.passed(point, code)

    def idle(self, point: str, code: Code = Code.SUCCESS) -> None:
        self._metrics.idle(point, code)

    def ran(self, point: str, code: Code, begin: float, end: float) -> None:
        self._trace.ran(point, code, begin, end)

    def took(self, plugin: str, point: str, code: Code, seconds: float, rows: int = 0) -> None:
        self._trace.took(plugin, point, code, seconds, rows)
        self._metrics.took(plugin, point, code, seconds, rows)


class TracedPoints:
    """The observer of a profile: that of the metrics, except for the timers of sampled attempts."""

    def __init__(self, tracing: Tracing, metrics: PointObserver) -> None:
        self._tracing = tracing
        self._sample = metrics.sample
        self.rare_points: RarePoints = metrics.rare_points
        self.clock = metrics.clock
        self.observe = metrics.observe
        self.ended = metrics.ended
        self.preemption_tried = metrics.preemption_tried

    def sample(self) -> AttemptTimer:
        timer, trace = self._sample(), self._tracing.current
        if trace is None:
            return timer
        return trace if timer is NO_TIMER else MeasuredTrace(trace, timer)


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
        if self._rng.random() < self._share:
            self.current = AttemptTrace(info, time.perf_counter(), self._now() - info.timestamp)
        else:
            self.current = None

    def group_attempt(self, entity: QueuedGroup, decision: GroupDecision | None) -> None:
        """The cycle of a group begins (no decision), or has ended."""
        if decision is None:
            self._members.clear()
            self.current = None
            if self._rng.random() < self._share:
                infos, begin, now = entity.members, time.perf_counter(), self._now()
                self.current = GroupTrace(infos[0], begin, now - infos[0].timestamp)
                for info in infos[:MAX_MEMBERS]:
                    self._members[info.pod.uid] = AttemptTrace(info, begin, now - info.timestamp)
            return
        trace, self.current = self.current, None
        if not isinstance(trace, GroupTrace):
            return
        result = "scheduled" if decision.final.is_success else "unschedulable"
        trace.decided(result)
        key, members, rng = entity.group.key, decision.decisions, self._rng
        trace.attributes = (
            ("k8s.namespace.name", key.namespace),
            ("scheduler.group", key.name),
            ("scheduler.group.members", len(members)),
            ("scheduler.group.feasible", sum(one is not None and one.found is not None for one in members)),
            ("scheduler.result", result),
        )
        trace.group = GroupIds(rng.getrandbits(64), rng.getrandbits(64) or 1, rng.getrandbits(64) or 1)
        for one in self._members.values():
            one.group = trace.group
        trace.ended("" if decision.final.is_success else decision.message)
        self._processor.on_end(trace)

    def decided(self, decision: Decision) -> None:
        """Its scheduling cycle has ended."""
        trace, self.current = self.current, None
        if self._members:
            trace = self._members.pop(decision.pod.metadata.uid, trace)
        if trace is None:
            return
        if decision.found is None:
            trace.decided("unschedulable" if decision.status.is_rejection else "error")
            trace.ended(decision.message)
            self._processor.on_end(trace)
            return
        trace.decided("scheduled", decision.node_name)
        if len(self._binding) < MAX_BINDING:
            self._binding[decision.pod.metadata.uid] = trace
        else:
            trace.ended("")
            self._processor.on_end(trace)

    def progressed(self, progress: BindingProgress) -> None:
        """A pod waits at Permit, is bound, or is rejected after its decision."""
        uid, step = progress.pod.metadata.uid, progress.step
        if step is _WAITING:
            waiting = self._binding.get(uid)
            if waiting is not None:
                waiting.waited_for = progress.plugins
            return
        trace = self._binding.pop(uid, None)
        if trace is None:
            return
        if step is _BOUND:
            trace.ended("")
        else:
            trace.result = "error"
            trace.ended(progress.reason or step.value)
        self._processor.on_end(trace)

    def close(self) -> None:
        """Sends what is left. Waits for the receiver, at most for the time-out of the exporter."""
        self._processor.shutdown()


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
