"""The result of a simulation as one typed value: what `-o json` prints and what tables and report show.

Times are seconds, amounts are whole units (cores, bytes). `apiVersion` changes when a field is removed or its
meaning changes; new fields can appear at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from bayplan import __version__
from bayplan.api.meta import OWN_API_VERSION
from bayplan.simulate.scenarios.figures import PODS, Figures, Sample
from bayplan.simulate.scenarios.pods import SimulatedPod
from bayplan.simulate.scenarios.queue_figures import NO_QUEUE, QueueFigures, jain_index
from bayplan.simulate.scenarios.run import Finished

KIND: Final = "SimulationResult"
MAX_REASONS: Final = 50
"""Reasons with the longest waiting times are listed; the rest is one entry."""
OTHER: Final = "other reasons"
_PERCENTILES: Final = (50, 90, 95, 99)


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class Waiting(_Part, frozen=True, kw_only=True):
    """Waiting times from arrival to binding, of pods that were scheduled."""

    pods: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Pods(_Part, frozen=True, kw_only=True):
    """Where all pods are at the end: initial + arrived = waiting + running + finished."""

    initial: int
    arrived: int
    waiting: int
    running: int
    terminating: int
    """Some of those that run."""
    finished: int
    outcomes: dict[str, int]


class WorkloadResult(_Part, frozen=True, kw_only=True):
    name: str
    arrived: int
    scheduled: int
    waiting: int
    running: int
    finished: int
    waiting_time: Waiting


class QueueResult(_Part, frozen=True, kw_only=True):
    """One capacity queue that had pods."""

    queue: str
    arrived: int
    scheduled: int
    waiting: int
    running: int
    finished: int
    waiting_time: Waiting
    share: Summary
    share_while_competing: float | None
    """The mean share over the samples in which its pods waited although they had room; None: in none."""


class Fairness(_Part, frozen=True, kw_only=True):
    """Jain's index of the shares of the queues that compete, over the samples with at least two of them."""

    mean: float
    min: float
    samples: int


class Summary(_Part, frozen=True, kw_only=True):
    """Over all samples. The mean weights samples by the time until the next one."""

    mean: float
    max: float


class ReasonResult(_Part, frozen=True, kw_only=True):
    plugin: str
    reason: str
    pod_seconds: float
    attempts: int


class Scheduling(_Part, frozen=True, kw_only=True):
    attempts: int
    failed_attempts: int
    errors: int
    bindings: int
    preemptions: int
    victims: int


class Nodes(_Part, frozen=True, kw_only=True):
    start: int
    end: int
    failures: int


class Series(_Part, frozen=True, kw_only=True):
    """One value for each time in `times`."""

    times: list[float]
    nodes: list[int]
    ready_nodes: list[int]
    running: list[int]
    waiting: list[int]
    active: list[int]
    backoff: list[int]
    unschedulable: list[int]
    gated: list[int]
    at_permit: list[int]
    utilisation: dict[str, list[float]]
    fragmentation: dict[str, list[float]]
    shares: dict[str, list[float]] = {}
    """By capacity queue."""


class Descheduling(_Part, frozen=True, kw_only=True):
    """The same scenario with or without descheduling. Measured at every interval, before evictions."""

    decision: str
    """Who decided about evictions: `none`, `upstream` or `scheduler`."""
    evictions: int
    other_node: int
    """Evicted pods whose replacements got another node."""
    same_node: int
    """Evicted pods whose replacements came right back."""
    no_node: int
    """Evicted pods whose replacements never got a node."""
    lost_seconds: float
    """How long evicted pods had run."""
    candidates: Summary
    """Pods that the policy would evict, by upstream's rules."""
    candidates_at_end: int
    fullest_node: Summary
    """The largest share of a node's CPU that is requested."""
    empty_nodes: Summary
    """Nodes without pods, but for those of DaemonSets."""
    waiting_time: Waiting
    waiting_at_end: int
    placements_digest: str
    times: list[float]
    candidates_series: list[int]
    fullest_node_series: list[float]


class Result(_Part, frozen=True, kw_only=True):
    api_version: str = OWN_API_VERSION
    kind: str = KIND
    scenario: str
    source: str
    version: str = __version__
    emulated_version: str
    """The Kubernetes version whose scheduler was simulated."""
    seed: int
    duration: float
    notes: list[str]
    """What the simulation does not know or leaves out."""
    pods: Pods
    scheduling: Scheduling
    nodes: Nodes
    waiting_time: Waiting
    utilisation: dict[str, Summary]
    fragmentation: dict[str, Summary]
    queue: dict[str, Summary]
    workloads: list[WorkloadResult]
    capacity_queues: list[QueueResult] = []
    """Empty without capacity queues."""
    fairness: Fairness | None = None
    """None: at no time did two queues compete."""
    reasons: list[ReasonResult]
    placements_digest: str
    series: Series
    descheduling: list[Descheduling] = []
    """With a policy: this scenario without descheduling, and with both ways to decide."""


QUEUES: Final = ("waiting", "active", "backoff", "unschedulable", "gated", "at_permit")


def make_result(finished: Finished) -> Result:
    """The result of a simulation that is over."""
    figures, samples = finished.figures, finished.figures.samples
    resources = [*figures.resources, PODS]
    utilisation = {
        resource: [_share(sample.requested[resource], sample.allocatable[resource]) for sample in samples]
        for resource in resources
        if any(sample.allocatable[resource] for sample in samples)
    }
    fragmentation = {
        resource: [rounded(sample.fragmentation[resource]) for sample in samples]
        for resource in figures.resources
        if resource in utilisation and resource in samples[0].fragmentation
    }
    times = [sample.time for sample in samples]
    shares = _queue_shares(figures.queues)
    return Result(
        scenario=finished.loaded.name,
        source=finished.loaded.source,
        emulated_version=finished.release,
        seed=finished.seed,
        duration=finished.until,
        notes=list(finished.notes),
        pods=_pods(figures),
        scheduling=Scheduling(
            attempts=figures.attempts,
            failed_attempts=figures.failed_attempts,
            errors=figures.errors,
            bindings=figures.bindings,
            preemptions=figures.preemptions,
            victims=figures.victims,
        ),
        nodes=Nodes(start=samples[0].nodes, end=samples[-1].nodes, failures=figures.node_failures),
        waiting_time=waiting_times(figures.pods),
        utilisation={name: summarized(times, values) for name, values in utilisation.items()},
        fragmentation={name: summarized(times, values) for name, values in fragmentation.items()},
        queue={
            name: summarized(times, [float(getattr(sample, name)) for sample in samples]) for name in QUEUES
        },
        workloads=_workloads(figures),
        capacity_queues=_capacity_queues(figures.queues, times, shares),
        fairness=_fairness(figures.queues),
        reasons=_reasons(figures),
        placements_digest=figures.placements_digest,
        series=_series(samples, utilisation, fragmentation, shares),
    )


def _pods(figures: Figures) -> Pods:
    return Pods(
        initial=figures.initial,
        arrived=len(figures.pods) - figures.initial,
        waiting=figures.waiting,
        running=figures.running,
        terminating=figures.terminating_now,
        finished=figures.outcomes.total(),
        outcomes={outcome.value: count for outcome, count in sorted(figures.outcomes.items())},
    )


def waiting_times(pods: Sequence[SimulatedPod]) -> Waiting:
    waits = sorted(pod.scheduled - pod.arrived for pod in pods if pod.scheduled is not None)
    if not waits:
        return Waiting(pods=0, mean=0.0, p50=0.0, p90=0.0, p95=0.0, p99=0.0, max=0.0)
    p50, p90, p95, p99 = (rounded(nearest_rank(waits, percent)) for percent in _PERCENTILES)
    return Waiting(
        pods=len(waits),
        mean=rounded(sum(waits) / len(waits)),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=rounded(waits[-1]),
    )


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that at least this percentage of the values do not exceed."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]


def _workloads(figures: Figures) -> list[WorkloadResult]:
    by_name: dict[str, list[SimulatedPod]] = {}
    for pod in figures.pods:
        by_name.setdefault(pod.workload, []).append(pod)
    return [
        WorkloadResult(name=name, **_counts(pods), waiting_time=waiting_times(pods))
        for name, pods in by_name.items()
    ]


def _counts(pods: Sequence[SimulatedPod]) -> dict[str, int]:
    return {
        "arrived": len(pods),
        "scheduled": sum(pod.scheduled is not None for pod in pods),
        "waiting": sum(pod.ended is None and not pod.node_name for pod in pods),
        "running": sum(pod.ended is None and bool(pod.node_name) for pod in pods),
        "finished": sum(pod.ended is not None for pod in pods),
    }


def _queue_shares(queues: QueueFigures | None) -> dict[str, list[float]]:
    """The share of each queue that had pods, by sample; 0 while the queue does not exist."""
    if queues is None:
        return {}
    return {
        path: [rounded(sample.shares.get(path, 0.0)) for sample in queues.samples]
        for path in sorted(queues.pods)
        if path != NO_QUEUE
    }


def _capacity_queues(
    queues: QueueFigures | None, times: Sequence[float], shares: dict[str, list[float]]
) -> list[QueueResult]:
    if queues is None:
        return []
    found = []
    for path, pods in sorted(queues.pods.items()):
        values = shares.get(path, [0.0] * len(times))
        pairs = zip(values, queues.samples, strict=True)
        competing = [value for value, sample in pairs if path in sample.competing]
        found.append(
            QueueResult(
                queue=path,
                **_counts(pods),
                waiting_time=waiting_times(pods),
                share=summarized(times, values),
                share_while_competing=rounded(sum(competing) / len(competing)) if competing else None,
            )
        )
    return found


def _fairness(queues: QueueFigures | None) -> Fairness | None:
    indices = [
        jain_index([sample.shares.get(path, 0.0) for path in sample.competing])
        for sample in ([] if queues is None else queues.samples)
        if len(sample.competing) > 1
    ]
    if not indices:
        return None
    mean = rounded(sum(indices) / len(indices))
    return Fairness(mean=mean, min=rounded(min(indices)), samples=len(indices))


def _reasons(figures: Figures) -> list[ReasonResult]:
    found = [
        ReasonResult(
            plugin=reason.plugin, reason=reason.text, pod_seconds=rounded(seconds), attempts=attempts
        )
        for reason, seconds, attempts in zip(
            figures.reasons, figures.reason_seconds, figures.reason_attempts, strict=True
        )
        if seconds > 0 or attempts
    ]
    found.sort(key=lambda reason: (-reason.pod_seconds, -reason.attempts, reason.plugin, reason.reason))
    rest = found[MAX_REASONS:]
    if rest:
        found[MAX_REASONS:] = [
            ReasonResult(
                plugin="",
                reason=OTHER,
                pod_seconds=rounded(sum(reason.pod_seconds for reason in rest)),
                attempts=sum(reason.attempts for reason in rest),
            )
        ]
    return found


def _series(
    samples: Sequence[Sample],
    utilisation: dict[str, list[float]],
    fragmentation: dict[str, list[float]],
    shares: dict[str, list[float]],
) -> Series:
    return Series(
        times=[rounded(sample.time) for sample in samples],
        nodes=[sample.nodes for sample in samples],
        ready_nodes=[sample.ready_nodes for sample in samples],
        running=[sample.running for sample in samples],
        waiting=[sample.waiting for sample in samples],
        active=[sample.active for sample in samples],
        backoff=[sample.backoff for sample in samples],
        unschedulable=[sample.unschedulable for sample in samples],
        gated=[sample.gated for sample in samples],
        at_permit=[sample.at_permit for sample in samples],
        utilisation=utilisation,
        fragmentation=fragmentation,
        shares=shares,
    )


def summarized(times: Sequence[float], values: Sequence[float]) -> Summary:
    span = times[-1] - times[0]
    if span <= 0:
        return Summary(mean=rounded(values[0]), max=rounded(max(values)))
    area = sum(
        value * (after - before)
        for value, before, after in zip(values[:-1], times[:-1], times[1:], strict=True)
    )
    return Summary(mean=rounded(area / span), max=rounded(max(values)))


def _share(part: float, whole: int) -> float:
    return rounded(part / whole) if whole else 0.0


def rounded(number: float) -> float:
    """Six digits after the point: sums of floats differ only after that."""
    return round(number, 6)
