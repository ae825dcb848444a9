"""The parts of the queue, and the ways from one to another.

                 ┌────────────── active ◀──────────┐
                 │                 ▲               │ its wait is over, or it is asked for by name
       popped    │                 │            backoff
       ◀─────────┘                 │               ▲
       ◀── popped, nobody active ──┼───────────────┤
                                   │               │
                       gates ──────┴───────────────┘
                         │ ▲  something happened
                  closed ▼ │
                     unschedulable

Nothing here decides *whether* a pod is to move; that is the business of `queue.py` and `hints.py`. But
everything that enters the active or the backoff part goes through the gates, and may end up behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from bayplan.api.pod import Pod
from bayplan.queue.backoff import BackoffQueue
from bayplan.queue.gates import Gates
from bayplan.queue.heap import PodHeap
from bayplan.queue.hints import Strategy
from bayplan.queue.nominations import Nominations
from bayplan.queue.object_events import (
    POP_FROM_BACKOFF,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
)
from bayplan.queue.observer import QueueObserver
from bayplan.queue.queued import NEVER, QueuedPod
from bayplan.queue.unschedulable import UnschedulablePods

NOMINATING: Final = frozenset({UNSCHEDULABLE_POD_ADD.label, UNSCHEDULABLE_POD_UPDATE.label})
"""The labels under which a pod that enters the active part is nominated to where its status says."""


@dataclass(frozen=True, slots=True)
class PendingPods:
    """How many pods wait where: the gauges of `pending_pods`."""

    active: int
    backoff: int
    unschedulable: int
    gated: int


class Parts:
    """All waiting pods by key, each in one part.

    Args:
        gates_before_backoff: whether a pod goes through the gates when it starts to back off, and not again
            when it becomes active; otherwise it is the other way round.
    """

    def __init__(
        self,
        backoff: BackoffQueue,
        gates: Gates,
        nominations: Nominations,
        sort_key: Callable[[Pod, float], Any],
        now: Callable[[], float],
        *,
        gates_before_backoff: bool = True,
        observer: QueueObserver | None = None,
    ) -> None:
        self.active = PodHeap("active")
        self.backoff = backoff
        self.unschedulable = UnschedulablePods()
        self.nominations = nominations
        self.pods: dict[str, QueuedPod] = {}
        self.pinned: dict[str, str] = {}
        """By uid, for pinned pods: the PreEnqueue plugin that keeps them out until they are unpinned."""
        self._gates = gates
        self._sort_key = sort_key
        self._now = now
        self._gates_before_backoff = gates_before_backoff
        self._observer = observer
        self._sequence = count()

    def new(self, pod: Pod) -> QueuedPod:
        """The record of a pod that was not known before. It waits nowhere yet."""
        timestamp = self._now()
        info = QueuedPod(pod, pod.key, timestamp, next(self._sequence))
        info.sort_key = self._sort_key(pod, timestamp)
        return info

    def restamp(self, info: QueuedPod) -> None:
        """The pod comes back from an attempt: its wait begins anew."""
        info.timestamp = self._now()
        info.sequence = next(self._sequence)
        info.backoff_expiration = None
        info.was_flushed = False
        info.flush_timestamp = NEVER
        info.sort_key = self._sort_key(info.pod, info.timestamp)

    def set_pod(self, info: QueuedPod, pod: Pod) -> None:
        """The object of a waiting pod has changed. It keeps its part; its place there may change."""
        info.pod = pod
        sort_key = self._sort_key(pod, info.timestamp)
        if sort_key == info.sort_key:
            return
        info.sort_key = sort_key
        if info.part is self.active:
            self.active.remove(info)
            self.active.push(info, sort_key)
        else:
            self.backoff.reorder(info)

    def take_first(self) -> QueuedPod | None:
        """Takes out the pod that is next: the first active one, else one that backs off after a rejection."""
        info = self.active.pop()
        if info is None:
            if not self._gates_before_backoff:
                return None
            info = self.backoff.rejected.pop()
            if info is None:
                return None
            if self._observer is not None:
                self._observer.incoming("active", POP_FROM_BACKOFF)
        del self.pods[info.key]
        return info

    @property
    def has_ready(self) -> bool:
        """Whether `take_first` would find a pod."""
        return bool(self.active) or (self._gates_before_backoff and bool(self.backoff.rejected))

    def take_out(self, info: QueuedPod) -> None:
        """Takes a waiting pod out of wherever it is."""
        assert info.part is not None
        info.part.remove(info)
        del self.pods[info.key]

    def stays_gated(self, info: QueuedPod, label: str) -> bool:
        """Whether a gate keeps a waiting pod where it is, though something happened that may help it.

        While pods make room for many others each deletion concerns all of those, and none of them can go yet.
        So a closed gate is asked about first, and the pod not taken out and put back. One that is held is not
        asked about again.
        """
        if not info.gating_plugin or not self._gates_before_backoff or not self._gates.keeps(info):
            return False
        if self._observer is not None:
            self._observer.incoming("unschedulable", label)
        if self.pinned and self.pinned.get(info.pod.uid) == info.gating_plugin:
            self.unschedulable.unindex(info)
        return True

    def unpin(self, pod: Pod) -> None:
        """The PreEnqueue plugin of a pinned pod is to be asked again at the next event."""
        if self.pinned.pop(pod.uid, None) is None:
            return
        info = self.pods.get(pod.key)
        if info is not None and info.part is self.unschedulable:
            self.unschedulable.put(info)

    def requeue(self, info: QueuedPod, strategy: Strategy, label: str) -> bool:
        """Puts a pod where the strategy says, unless a gate is closed. True: it can be popped."""
        if strategy is Strategy.SKIP:
            self._park(info, label)
            return False
        if strategy is Strategy.AFTER_BACKOFF and self.backoff.is_backing_off(info, self._now()):
            return self._to_backoff(info, label)
        return self.to_active(info, label)

    def to_active(self, info: QueuedPod, label: str, *, from_backoff: bool = False) -> bool:
        """Makes a pod active, unless a gate is closed."""
        passed_before = from_backoff and self._gates_before_backoff
        if not passed_before and not self._gates.admits(info):
            self._park_unless_ready(info, label)
            return False
        if info.initial_attempt_timestamp is None:
            info.initial_attempt_timestamp = self._now()
        self._settle(info)
        self.active.push(info, info.sort_key)
        if self._observer is not None:
            self._observer.incoming("active", label)
        if label in NOMINATING and (self.nominations or info.pod.status.nominated_node_name):
            self.nominations.add(info.pod, None)
        return True

    def _to_backoff(self, info: QueuedPod, label: str) -> bool:
        if self._gates_before_backoff and not self._gates.admits(info):
            self._park_unless_ready(info, label)
            return False
        self._settle(info)
        self.backoff.push(info)
        if self._observer is not None:
            self._observer.incoming("backoff", label)
        return True

    def _park_unless_ready(self, info: QueuedPod, label: str) -> None:
        """A record that a gate stopped does not take the place of one that has passed the gates."""
        known = self.pods.get(info.key)
        if known is None or known.part is self.unschedulable:
            self._park(info, label)

    def _park(self, info: QueuedPod, label: str) -> None:
        known = self.pods.get(info.key)
        was_here = known is not None and known.part is self.unschedulable
        if known is not info:
            self._settle(info)
        self.unschedulable.put(info)
        if not was_here and self._observer is not None:
            self._observer.incoming("unschedulable", label)

    def _settle(self, info: QueuedPod) -> None:
        """Makes this the record of its pod; wherever the pod waited until now, it no longer does."""
        pods, key = self.pods, info.key
        known = pods.get(key)
        if known is not None and known.part is not None:
            known.part.remove(known)
        pods[key] = info
        if self.nominations:
            self.nominations.pod_requeued(info.pod)

    def counts(self) -> PendingPods:
        gated = self.unschedulable.gated_count
        return PendingPods(len(self.active), len(self.backoff), len(self.unschedulable) - gated, gated)

    def __iter__(self) -> Iterator[QueuedPod]:
        """Every waiting pod: those that are next first."""
        yield from self.active
        yield from self.backoff
        yield from self.unschedulable
