"""Evictions of a cycle: limits, the request, what is counted and reported.

`PodEvictor.evict` is what strategies call. It checks the limits, passes the request to `send` and records
the result; `send` is the API server, a model of it, or the planner, which first checks that the replacement
gets a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from bayplan.api.pod import Pod
from bayplan.deschedule.policy import Limits
from bayplan.deschedule.table import EVICTION_IN_PROGRESS, REQUEST_EVICT_ONLY, ClusterTable

REQUESTED_BY: Final = "sigs.k8s.io/descheduler"
CONTROLLER: Final = "sigs.k8s.io.descheduler"
ACTION: Final = "Descheduled"
FAILED: Final = "EvictionFailed"
BACKGROUND_MARK: Final = "Eviction triggered evacuation"
BACKGROUND_TIMEOUT_SECONDS: Final = 600
TOO_MANY_REQUESTS: Final = 429
NOT_FOUND: Final = 404


class Result(StrEnum):
    """The result of an eviction."""

    OK = "success"
    TOTAL_LIMIT = "maximum number of evicted pods per a descheduling cycle reached"
    NODE_LIMIT = "maximum number of evicted pods per node reached"
    NAMESPACE_LIMIT = "maximum number of evicted pods per namespace reached"
    FAILED = "error"
    BACKGROUND = "background"


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server's response to an eviction; 0 is success."""

    code: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """An eviction to send."""

    slot: int
    pod: Pod
    node: str
    profile: str
    strategy: str
    grace_period_seconds: int | None

    @property
    def reason(self) -> str:
        return f"triggered by {self.profile}/{self.strategy}: "


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request and its response."""

    request: Request
    answer: Answer


@dataclass(frozen=True, slots=True)
class EvictionEvent:
    pod: Pod
    type: str
    reason: str
    note: str


UNLIMITED: Final = Limits()

Send = Callable[[Request], Answer]


@dataclass(frozen=True, slots=True)
class BackgroundRequest:
    """An eviction that another component carries out."""

    node: str
    namespace: str
    assumed_at: float | None = None
    """When our request was answered so; None: only the pod's annotation says it."""
    strategy: str = ""
    profile: str = ""


@dataclass(slots=True)
class BackgroundRequests:
    """Evictions that another component carries out later, by uid of the pod. They outlive a cycle."""

    requests: dict[str, BackgroundRequest] = field(default_factory=dict)
    in_progress: set[str] = field(default_factory=set)
    """The pods that had the annotation of a running eviction when they were last seen."""

    def sync(self, pods: Iterable[Pod], now: float) -> list[tuple[str, BackgroundRequest]]:
        """Brings it up to date with the pods of the cluster.

        Returns the requests of ours whose pods are gone: these evictions succeeded.
        """
        present = {pod.uid: pod for pod in pods}
        gone = [(uid, one) for uid, one in self.requests.items() if uid not in present]
        for uid, _ in gone:
            del self.requests[uid]
        marked = set()
        for uid, pod in present.items():
            if REQUEST_EVICT_ONLY not in pod.annotations or pod.is_finished:
                self.requests.pop(uid, None)
            elif EVICTION_IN_PROGRESS in pod.annotations:
                marked.add(uid)
                self.requests.setdefault(uid, BackgroundRequest(pod.spec.node_name, pod.namespace))
            elif uid in self.in_progress:
                self.requests.pop(uid, None)
        self.in_progress = marked
        self.expire(now)
        return [(uid, one) for uid, one in gone if one.assumed_at is not None]

    def assume(self, uid: str, request: BackgroundRequest) -> None:
        """Our request was accepted; the first one counts."""
        known = self.requests.get(uid)
        if known is None or known.assumed_at is None:
            self.requests[uid] = request

    def expire(self, now: float) -> None:
        """Forgets requests that were never carried out."""
        for uid, one in list(self.requests.items()):
            if one.assumed_at is not None and int(now - one.assumed_at) > BACKGROUND_TIMEOUT_SECONDS:
                del self.requests[uid]

    def counts(self, node: str, namespace: str) -> tuple[int, int, int]:
        places = self.requests.values()
        on_node = sum(one.node == node for one in places)
        return len(places), on_node, sum(one.namespace == namespace for one in places)


@dataclass(slots=True)
class PodEvictor:
    """Evicts pods within the limits of a cycle."""

    table: ClusterTable
    send: Send
    limits: Limits = UNLIMITED
    grace_period_seconds: int | None = None
    reports_failures: bool = False
    dry_run: bool = False
    background: BackgroundRequests | None = None
    now: float = 0.0
    on_result: Callable[[Result, str, str, str, str], None] | None = None
    """Counts: result, strategy, profile, namespace, node."""
    attempts: list[Attempt] = field(default_factory=list)
    events: list[EvictionEvent] = field(default_factory=list)
    total: int = 0
    by_node: Counter[str] = field(default_factory=Counter)
    by_namespace: Counter[str] = field(default_factory=Counter)

    def evict(self, slot: int, profile: str, strategy: str) -> Result:
        """Evicts a pod, unless a limit is reached."""
        pod = self.table.pods[slot]
        if not pod.uid:
            return Result.FAILED
        node = pod.spec.node_name
        if self._in_background(pod):
            assert self.background is not None
            if pod.uid in self.background.requests:
                return Result.OK
        if (reached := self.limit_reached(pod)) is not None:
            result, text = reached
            self._count(result, strategy, profile, pod)
            self._report_failure(pod, text)
            return result
        request = Request(slot, pod, node, profile, strategy, self.grace_period_seconds)
        answer = self.send(request)
        self.attempts.append(Attempt(request, answer))
        if not answer.code:
            self.add(pod)
            self._count(Result.OK, strategy, profile, pod)
            if not self.dry_run:
                note = f"pod eviction from {node} node by {REQUESTED_BY}"
                self.events.append(EvictionEvent(pod, "Normal", strategy or "NotSet", note))
            return Result.OK
        if (
            self._in_background(pod)
            and answer.code == TOO_MANY_REQUESTS
            and BACKGROUND_MARK in answer.message
        ):
            assert self.background is not None
            if not pod.is_finished:
                made = BackgroundRequest(node, pod.namespace, self.now, strategy, profile)
                self.background.assume(pod.uid, made)
                self._count(Result.BACKGROUND, strategy, profile, pod)
            return Result.OK
        self._count(Result.FAILED, strategy, profile, pod)
        self._report_failure(pod, _error_text(pod, answer))
        return Result.FAILED

    def _in_background(self, pod: Pod) -> bool:
        return self.background is not None and REQUEST_EVICT_ONLY in pod.annotations

    def add(self, pod: Pod, count: int = 1) -> None:
        """Counts an eviction for the limits; -1 takes one back that was not made after all."""
        self.total += count
        if pod.spec.node_name:
            self.by_node[pod.spec.node_name] += count
        self.by_namespace[pod.namespace] += count

    def limit_reached(self, pod: Pod) -> tuple[Result, str] | None:
        """The limit that forbids an eviction, with a text; None: it is allowed."""
        node, namespace = pod.spec.node_name, pod.namespace
        total = on_node = in_namespace = 0
        if self.background is not None:
            total, on_node, in_namespace = self.background.counts(node, namespace)
        limits = self.limits
        if limits.total is not None and self.total + total + 1 > limits.total:
            return Result.TOTAL_LIMIT, f"total eviction limit exceeded ({limits.total})"
        if node and limits.node is not None and self.by_node[node] + on_node + 1 > limits.node:
            return Result.NODE_LIMIT, f"node eviction limit exceeded ({limits.node})"
        count = self.by_namespace[namespace] + in_namespace
        if limits.namespace is not None and count + 1 > limits.namespace:
            return Result.NAMESPACE_LIMIT, f"namespace eviction limit exceeded ({limits.namespace})"
        return None

    def _count(self, result: Result, strategy: str, profile: str, pod: Pod) -> None:
        if self.on_result is not None:
            self.on_result(result, strategy, profile, pod.namespace, pod.spec.node_name)

    def _report_failure(self, pod: Pod, text: str) -> None:
        if self.reports_failures:
            note = f"pod eviction from {pod.spec.node_name} node by {REQUESTED_BY} failed: {text}"
            self.events.append(EvictionEvent(pod, "Warning", FAILED, note))


def _error_text(pod: Pod, answer: Answer) -> str:
    if answer.code == TOO_MANY_REQUESTS:
        return f'error when evicting pod (ignoring) "{pod.name}": {answer.message}'
    if answer.code == NOT_FOUND:
        return f'pod not found when evicting "{pod.name}": {answer.message}'
    return answer.message
