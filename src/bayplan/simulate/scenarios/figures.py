"""What a simulation measures: counts, waiting times, reasons for waiting, and samples of the cluster.

The scheduler and the world report events; nothing here changes what they do. Every pod's waiting time is
divided among reasons: the reason of its last failed attempt counts until the next attempt, so that the times
of all reasons add up to the time that pods waited.

Fragmentation is the share of a free resource on nodes where the pods of the workload do not fit:

    sum over shapes of (share of the shape) x (free on nodes where the shape does not fit)
    --------------------------------------------------------------------------------------
                                   free on all nodes

A *shape* is a combination of resource requests, and its share is that of the pods that have arrived so far. A
shape that does not request the resource at all does not count. Only resources decide whether a shape fits:
taints, affinity and spreading are ignored.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.requests import fit_requests
from bayplan.framework.outcome import Diagnosis
from bayplan.plugins.library.gpu_sharing.request import (
    DEVICE_MILLI,
    GPU_COUNT,
    GPU_MILLI,
    InvalidRequestError,
    gpu_request,
)
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduler.waiting import BindingProgress, BindingStep
from bayplan.simulate.scenarios.pods import Outcome, SimulatedPod
from bayplan.simulate.scenarios.queue_figures import QueueFigures

NOT_ATTEMPTED: Final = "not attempted yet: queued, or gated by PreEnqueue"
VICTIMS: Final = "preemption: the victims are terminating"
_FIRST_RESOURCES: Final = ("cpu", "memory")
PODS: Final = "pods"
_QUOTED: Final = re.compile(r'"[^"]*"')
"""Names in messages: pods that wait for the same reason differ in them."""


class Reason(NamedTuple):
    """Why a pod waits: the plugin that rejected most nodes, and its message."""

    plugin: str
    text: str


class Sample(NamedTuple):
    """The state at one time. Amounts are of ready nodes, in the scheduler's units (milli cpu, bytes)."""

    time: float
    nodes: int
    ready_nodes: int
    running: int
    waiting: int
    active: int
    backoff: int
    unschedulable: int
    gated: int
    at_permit: int
    allocatable: dict[str, int]
    requested: dict[str, float]
    fragmentation: dict[str, float]


class Figures:
    """Collects everything for the result."""

    def __init__(self) -> None:
        self.shapes = RequestMix()
        self.pods: list[SimulatedPod] = []
        """Every pod, in the order of arrival."""
        self.initial = 0
        """Pods that had a node at the start; the other pods arrived."""
        self.waiting = 0
        self.running = 0
        self.terminating_now = 0
        self.gpu_milli = 0
        """Thousandths of GPUs of running pods that request them by annotations."""
        self.outcomes: Counter[Outcome] = Counter()
        self.attempts = 0
        self.failed_attempts = 0
        self.errors = 0
        self.bindings = 0
        self.preemptions = 0
        self.victims = 0
        self.node_failures = 0
        self.down_nodes: set[str] = set()
        self.reasons: list[Reason] = [Reason("", NOT_ATTEMPTED), Reason("", VICTIMS)]
        self.reason_seconds: list[float] = [0.0, 0.0]
        self.reason_attempts: list[int] = [0, 0]
        self.samples: list[Sample] = []
        self.queues: QueueFigures | None = None
        """Those of capacity queues, if there are any."""
        self._numbers: dict[Reason, int] = {reason: i for i, reason in enumerate(self.reasons)}
        self._resources: dict[str, None] = dict.fromkeys(_FIRST_RESOURCES)
        self._digest = hashlib.sha256()

    @property
    def resources(self) -> list[str]:
        """The resources that nodes have: cpu and memory, then the others in the order of their names."""
        return [*_FIRST_RESOURCES, *sorted(set(self._resources) - set(_FIRST_RESOURCES))]

    @property
    def placements_digest(self) -> str:
        """A checksum of time, pod and node of all bindings: equal for equal runs."""
        return self._digest.hexdigest()

    # Events of pods

    def arrived(self, pod: SimulatedPod, stored: Pod) -> None:
        self.pods.append(pod)
        self.waiting += 1
        self.shapes.arrived[pod.shape] += 1
        if self.queues is not None:
            self.queues.arrived(pod, stored)

    def was_running(self, pod: SimulatedPod) -> None:
        """The pod had a node before the simulation began."""
        self.initial += 1
        self.waiting -= 1
        self.running += 1
        self.gpu_milli += self.shapes.gpu_milli[pod.shape]

    def scheduled(self, pod: SimulatedPod, node_name: str, now: float) -> None:
        self._close(pod, now)
        pod.scheduled = now
        if self.queues is not None:
            self.queues.left(pod)
        self.waiting -= 1
        self.running += 1
        self.gpu_milli += self.shapes.gpu_milli[pod.shape]
        self.bindings += 1
        self._digest.update(f"{now!r} {pod.key} {node_name}\n".encode())

    def terminating(self, pod: SimulatedPod, now: float) -> None:
        self.terminating_now += 1
        if pod.outcome is Outcome.PREEMPTED:
            self.victims += 1

    def ended(self, pod: SimulatedPod, now: float) -> None:
        pod.ended = now
        if pod.node_name:
            self.running -= 1
            self.gpu_milli -= self.shapes.gpu_milli[pod.shape]
        else:
            self._close(pod, now)
            self.waiting -= 1
            if self.queues is not None:
                self.queues.left(pod)
        if pod.is_terminating:
            self.terminating_now -= 1
        assert pod.outcome is not None, "set by the caller"
        self.outcomes[pod.outcome] += 1

    def node_added(self, node: Node) -> None:
        for name in node.status.allocatable:
            if "/" in name:
                self._resources[name] = None

    # Reasons

    def decided(self, pod: SimulatedPod | None, decision: Decision, now: float) -> None:
        """Called with every decision of the scheduler."""
        self.attempts += 1
        if pod is not None:
            pod.attempts += 1
        if decision.found is not None:
            return
        self.failed_attempts += 1
        if not decision.status.is_rejection:
            self.errors += 1
        answer = decision.post_filter
        if answer is not None and answer.eviction is not None:
            self.preemptions += 1
        if pod is not None:
            self._set_reason(pod, self._reason_of(decision), now)

    def not_bound(self, pod: SimulatedPod, progress: BindingProgress, now: float) -> None:
        """A node was found, but the pod waits at Permit or was rejected there or later."""
        names = ", ".join(progress.plugins)
        if progress.step is BindingStep.WAITING:
            reason = Reason(names, f"waiting at {progress.point or 'Permit'}")
        else:
            reason = Reason(names, f"{progress.step.value} at {progress.point}")
        self._set_reason(pod, reason, now)

    def waits_for_quota(self, pod: SimulatedPod, stored: Pod, now: float) -> None:
        """The scheduler wrote that a pod waits in its capacity queue. That is not an attempt."""
        if self.queues is not None and (limit := self.queues.limit_of(stored)):
            self._set_reason(pod, Reason("", limit), now, attempts=0)

    def _reason_of(self, decision: Decision) -> Reason:
        answer = decision.post_filter
        if answer is not None:
            # Without a new nomination the earlier one holds: its victims have not terminated yet.
            nomination = answer.nomination
            earlier = decision.pod.status.nominated_node_name
            if earlier if nomination is None else nomination.node_name:
                return self.reasons[1]
        if decision.diagnosis is None:
            return Reason(decision.status.plugin, decision.message)
        return main_reason(decision.diagnosis)

    def _set_reason(self, pod: SimulatedPod, reason: Reason, now: float, *, attempts: int = 1) -> None:
        if '"' in reason.text:
            reason = Reason(reason.plugin, _QUOTED.sub('"…"', reason.text))
        number = self._numbers.get(reason)
        if number is None:
            number = self._numbers[reason] = len(self.reasons)
            self.reasons.append(reason)
            self.reason_seconds.append(0.0)
            self.reason_attempts.append(0)
        self._close(pod, now)
        pod.reason = number
        self.reason_attempts[number] += attempts

    def _close(self, pod: SimulatedPod, now: float) -> None:
        self.reason_seconds[pod.reason] += now - pod.reason_since
        pod.reason_since = now

    def finish(self, now: float, pods: Iterable[SimulatedPod]) -> None:
        """The simulation is over: adds the time of the pods that still wait."""
        for pod in pods:
            if not pod.node_name:
                self._close(pod, now)

    # Samples

    def sample(self, scheduler: Scheduler, now: float) -> Sample:
        """Adds a sample of the cluster as the scheduler sees it."""
        cluster, context = scheduler.core.cluster, scheduler.context
        nodes = cluster.nodes
        order = cluster.order
        down = {nodes.row_of[name] for name in self.down_nodes if name in nodes.row_of}
        ready = order[~np.isin(order, list(down))] if down else order
        allocatable = {PODS: nodes.allowed_pods.read[ready]}
        requested = {PODS: nodes.pod_count.read[ready]}
        for resource in self.resources:
            columns = nodes.resource(resource)
            allocatable[resource] = columns.allocatable.read[ready]
            requested[resource] = columns.requested.read[ready]
        free = {
            resource: np.maximum(allocatable[resource] - requested[resource], 0) for resource in allocatable
        }
        free_pods = free.pop(PODS)
        # Parts of GPUs are not resource requests; `gpu_sharing` measures fragmentation by devices.
        free.pop(GPU_COUNT, None)
        counts = context.queue.counts()
        used: dict[str, float] = {resource: int(amounts.sum()) for resource, amounts in requested.items()}
        if used.get(GPU_COUNT) == 0:
            used[GPU_COUNT] = self.gpu_milli / DEVICE_MILLI
        sample = Sample(
            time=now,
            nodes=len(order),
            ready_nodes=len(ready),
            running=self.running,
            waiting=self.waiting,
            active=counts.active,
            backoff=counts.backoff,
            unschedulable=counts.unschedulable,
            gated=counts.gated,
            at_permit=len(context.waiting),
            allocatable={resource: int(amounts.sum()) for resource, amounts in allocatable.items()},
            requested=used,
            fragmentation=fragmentation(free, free_pods, self.shapes.most_frequent()),
        )
        self.samples.append(sample)
        if self.queues is not None:
            self.queues.sample()
        return sample


def main_reason(diagnosis: Diagnosis) -> Reason:
    """The reason that rejected most nodes; among equal ones the first by plugin and text."""
    if diagnosis.pre_filter_message:
        return Reason(", ".join(sorted(diagnosis.rejecting_plugins)), diagnosis.pre_filter_message)
    counts: Counter[Reason] = Counter()
    explicit = 0
    for status, times in diagnosis.counts():
        explicit += times
        counts[Reason(status.plugin, ", ".join(status.reasons))] += times
    rest = diagnosis.absent_nodes_status
    if explicit < diagnosis.node_count and rest.reasons:
        counts[Reason(rest.plugin, ", ".join(rest.reasons))] += diagnosis.node_count - explicit
    if not counts:
        return Reason(", ".join(sorted(diagnosis.rejecting_plugins)), "no node fits")
    return min(counts, key=lambda reason: (-counts[reason], reason))


MAX_SHAPES: Final = 64
"""The most frequent shapes are used; a trace can have thousands."""

Amounts = Mapping[str, NDArray[np.int64]]
"""An amount for each node, by resource."""


class RequestMix:
    """The distinct resource requests of the pods, numbered, with how many pods arrived with each."""

    def __init__(self) -> None:
        self.requests: list[dict[str, int]] = []
        self.gpu_milli: list[int] = []
        """What pods request by annotations: thousandths of GPUs."""
        self.arrived: Counter[int] = Counter()
        self._numbers: dict[tuple[tuple[str, int], ...], int] = {}
        self._of_template: dict[int, tuple[Pod, int]] = {}

    def of(self, template: Pod) -> int:
        """The number of a template's shape."""
        known = self._of_template.get(id(template))
        if known is not None:
            return known[1]
        requests = fit_requests(template)
        gpu_milli = shared_gpu_milli(template)
        key = (*sorted(requests.items()), (GPU_MILLI, gpu_milli))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.requests)
            self.requests.append(requests)
            self.gpu_milli.append(gpu_milli)
        # The template is kept with its number, so that no other object can get its id.
        self._of_template[id(template)] = template, number
        return number

    def most_frequent(self) -> list[tuple[dict[str, int], int]]:
        """Requests and number of pods of the most frequent shapes."""
        ordered = sorted(self.arrived.items(), key=lambda entry: (-entry[1], entry[0]))
        return [(self.requests[number], count) for number, count in ordered[:MAX_SHAPES]]


def shared_gpu_milli(pod: Pod) -> int:
    """Thousandths of GPUs that a pod requests by annotations; 0 if they are invalid, as for the plugins."""
    try:
        return gpu_request(pod).total_milli
    except InvalidRequestError:
        return 0


def fragmentation(
    free: Amounts, free_pods: NDArray[np.int64], shapes: Sequence[tuple[Mapping[str, int], int]]
) -> dict[str, float]:
    """The fragmentation of each resource, between 0 and 1; 0 where nothing is free or requested."""
    unusable = dict.fromkeys(free, 0.0)
    weights = dict.fromkeys(free, 0)
    totals = {resource: int(amounts.sum()) for resource, amounts in free.items()}
    for requests, count in shapes:
        fits = free_pods > 0
        for resource, amount in requests.items():
            if amount > 0:
                fits = fits & (free[resource] >= amount) if resource in free else np.zeros_like(fits)
        for resource, amounts in free.items():
            if requests.get(resource, 0) > 0:
                weights[resource] += count
                unusable[resource] += count * float(amounts[~fits].sum())
    return {
        resource: unusable[resource] / (weights[resource] * totals[resource])
        if weights[resource] and totals[resource]
        else 0.0
        for resource in free
    }
