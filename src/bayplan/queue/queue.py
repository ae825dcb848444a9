"""The scheduling queue: events in, the next pod out.

A pod waits in one of three parts (`parts.py`) or is *in flight*: popped and being tried. Nothing runs here by
itself. Time comes from a function that is handed in, timers are asked for (`next_timer`) and answered
(`flush`) by the caller, and what an event changes has happened when the call returns.

    add, update, delete              a pod of ours without a node came, changed, went
    pop                              who is next?
    done                             the attempt is over and the pod does not come back
    add_unschedulable_if_not_present the attempt failed and the pod comes back
    move_all                         something happened that may help pods which wait
    activate                         these pods are to be tried, whatever they wait for
    pin, unpin                       a PreEnqueue plugin keeps a pod out, and is not asked meanwhile

Where a pod comes from and what is tried with it is the scheduler's business; what may help is the plugins'
(`hints.py`, `gates.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from math import floor
from typing import Any, Final

from bayplan.api.pod import Pod
from bayplan.framework.events import ClusterEvent
from bayplan.framework.points import Point
from bayplan.queue.backoff import BackoffQueue
from bayplan.queue.gates import Gates
from bayplan.queue.hints import QueueingHints, Strategy
from bayplan.queue.in_flight import InFlight
from bayplan.queue.nominations import NominatedPods, Nominations
from bayplan.queue.object_events import (
    BACKOFF_COMPLETE,
    FORCE_ACTIVATE,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    pod_update_events,
)
from bayplan.queue.observer import QueueObserver
from bayplan.queue.parts import Parts, PendingPods
from bayplan.queue.queued import QueuedPod
from bayplan.queue.timing import LEFTOVER_PERIOD, WINDOW, QueueSettings, Ticker
from bayplan.runtime.profile import Profile

_log = logging.getLogger(__name__)

_ADDED: Final = UNSCHEDULABLE_POD_ADD.label
_UPDATED: Final = UNSCHEDULABLE_POD_UPDATE.label
_ACTIVATED: Final = FORCE_ACTIVATE.label

_IN_FLIGHT_ALREADY: Final = "the same pod is tracked in multiple places in the scheduler: %s"
_PRESENT_ALREADY: Final = "Pod %s is already present in %s"


class SchedulingQueue:
    """Waiting pods of all profiles.

    Args:
        profiles: their plugins say what keeps a pod out, what helps it and in which order pods are tried.
        now: seconds since the epoch.
        columns: told where pods are nominated.
        latest: the pod of this namespace and name as it was last seen, None where it is gone.
        extenders: whether there are any, so that pods can be rejected by them.
    """

    def __init__(
        self,
        profiles: Iterable[Profile],
        *,
        now: Callable[[], float],
        columns: NominatedPods,
        latest: Callable[[Pod], Pod | None],
        extenders: bool = False,
        settings: QueueSettings | None = None,
        observer: QueueObserver | None = None,
    ) -> None:
        settings = QueueSettings() if settings is None else settings
        profiles = tuple(profiles)
        early = settings.pop_from_backoff
        self.nominations = Nominations(columns, latest, self)
        self.hints = QueueingHints(profiles, extenders=extenders, observer=observer)
        self.scheduling_cycle = 0
        """How many pods have been popped."""
        self._parts = Parts(
            BackoffQueue(settings.initial_backoff, settings.max_backoff, windows=early),
            Gates(profiles, observer),
            self.nominations,
            profiles[0].plugins[Point.QUEUE_SORT][0].sort_key,
            now,
            gates_before_backoff=early,
            observer=observer,
        )
        self._in_flight = InFlight()
        self._now = now
        self._longest_stay = settings.max_in_unschedulable
        self._observer = observer
        start = now()
        self._backoff_ticks = Ticker((floor(start) if early else start) + WINDOW, WINDOW)
        self._leftover_ticks = Ticker(start + LEFTOVER_PERIOD, LEFTOVER_PERIOD)

    # Pods come, change and go

    def add(self, pod: Pod) -> None:
        """A new pod."""
        parts = self._parts
        parts.to_active(parts.new(pod), _ADDED)

    def update(self, old: Pod, new: Pod) -> None:
        """A pod has changed, wherever it is."""
        if new.uid in self._in_flight:
            # It is judged by this when it comes back. What it comes back with is its latest version.
            for event in pod_update_events(old, new):
                self._in_flight.record(event, old, new)
            return
        parts = self._parts
        info = parts.pods.get(new.key)
        if info is None:
            parts.to_active(parts.new(new), _UPDATED)
            return
        parts.set_pod(info, new)
        self.nominations.pod_updated(info, old, new)
        if info.part is not parts.unschedulable:
            return
        for event in pod_update_events(old, new):
            strategy = self.hints.worth_requeuing(info, event, old, new)
            if strategy is not Strategy.SKIP and parts.requeue(info, strategy, event.label):
                return

    def delete(self, pod: Pod) -> None:
        """The pod is gone, or has a node now. An attempt under way is not ended by this."""
        self.nominations.remove(pod.metadata.uid)
        info = self._parts.pods.get(pod.key)
        if info is None:
            return
        if info.part is self._parts.unschedulable:
            self._count_rejections(info, -1)
        self._parts.take_out(info)

    # Attempts

    @property
    def has_ready(self) -> bool:
        """Whether `pop` would find a pod."""
        return self._parts.has_ready

    @property
    def is_anybody_waiting(self) -> bool:
        """Whether there is a pod that an event may help. Most clusters have none, most of the time."""
        return bool(self._parts.unschedulable) or bool(self._in_flight)

    def pop(self) -> QueuedPod | None:
        """The pod that is to be tried next; it is in flight from now on. None: nobody is ready."""
        while (info := self._parts.take_first()) is not None:
            info.attempts += 1
            if not self._in_flight.begin(info.pod.metadata.uid):
                _log.error(_IN_FLIGHT_ALREADY, info.key)
                continue
            self.scheduling_cycle += 1
            if info.unschedulable_plugins or info.pending_plugins:
                self._count_rejections(info, -1)
            if self.nominations:
                self.nominations.pod_popped(info.pod)
            return info
        return None

    def done(self, uid: str) -> None:
        """The attempt is over, and what happened meanwhile no longer matters to the pod."""
        self._in_flight.end(uid)

    def is_in_flight(self, uid: str) -> bool:
        return uid in self._in_flight

    def add_unschedulable_if_not_present(
        self,
        info: QueuedPod,
        pod: Pod,
        unschedulable_plugins: Iterable[str] = (),
        pending_plugins: Iterable[str] = (),
    ) -> bool:
        """A popped pod comes back from an attempt that failed. Its attempt is over in any case.

        Args:
            pod: its latest version.
            unschedulable_plugins: who rejected it. Nobody: the attempt broke, and it backs off.
            pending_plugins: those among them whose events bring it back at once.

        Returns False where the pod is in the queue already: then this record of it is dropped.
        """
        info.pod = pod
        info.unschedulable_plugins = frozenset(unschedulable_plugins)
        info.pending_plugins = frozenset(pending_plugins)
        known = self._parts.pods.get(info.key)
        if known is None:
            self._put_back(info)
        else:
            assert known.part is not None
            article = "" if known.part is self._parts.unschedulable else "the "
            _log.error(_PRESENT_ALREADY, info.key, f"{article}{known.part.label} queue")
        self.done(pod.uid)
        return known is None

    def _put_back(self, info: QueuedPod) -> None:
        if info.rejectors:
            info.unschedulable_count += 1
            info.consecutive_errors_count = 0
        else:
            info.consecutive_errors_count += 1
        self._parts.restamp(info)
        self._count_rejections(info, 1)
        missed = self._in_flight.since(info.pod.uid)
        if missed is None or not info.rejectors:
            strategy = Strategy.AFTER_BACKOFF
        else:
            strategy = self.hints.strategy_after(info, missed)
        self._parts.requeue(info, strategy, SCHEDULE_ATTEMPT_FAILURE)

    # Something happened

    def move_all(
        self,
        event: ClusterEvent,
        old: Any = None,
        new: Any = None,
        precheck: Callable[[Pod], bool] | None = None,
    ) -> None:
        """Wakes the pods that an event may help. `precheck` leaves waiting pods out beforehand."""
        if not self.is_anybody_waiting:
            return
        listeners = self.hints.listeners(event)
        if listeners is None:
            return
        waiting = self._parts.unschedulable
        if waiting:
            for info in list(waiting) if listeners.is_wildcard else waiting.rejected_by(listeners.rejectors):
                if precheck is not None and not precheck(info.pod):
                    continue
                gate = info.gating_plugin
                if gate and not listeners.is_wildcard and gate not in listeners.plugins:
                    continue
                self._move(info, event, old, new)
        self._in_flight.record(event, old, new)

    def _move(self, info: QueuedPod, event: ClusterEvent, old: Any, new: Any) -> None:
        parts = self._parts
        # A plugin that was asked about another pod may have had this one activated meanwhile.
        if info.part is not parts.unschedulable:
            return
        strategy = self.hints.worth_requeuing(info, event, old, new)
        if strategy is not Strategy.SKIP and not parts.stays_gated(info, event.label):
            parts.take_out(info)
            parts.requeue(info, strategy, event.label)

    def activate(self, pods: Iterable[Pod]) -> None:
        """Has these pods tried without backing off. One in flight comes back as if an event had helped it."""
        parts = self._parts
        for pod in pods:
            info = parts.pods.get(pod.key)
            if info is not None and info.part is parts.unschedulable:
                parts.to_active(info, _ACTIVATED)
            elif info is not None and info.part is not parts.active:
                parts.take_out(info)
                parts.to_active(info, _ACTIVATED, from_backoff=True)
            elif pod.uid in self._in_flight:
                self._in_flight.record(FORCE_ACTIVATE, None, pod)

    def pin(self, pod: Pod, gate: str) -> None:
        """Until `unpin`, this PreEnqueue plugin keeps the pod out and is not asked at every event.

        A preemptor waits for its victims while the victims of many others are deleted. Without pins each of
        those deletions would ask the plugin about every preemptor.
        """
        self._parts.pinned[pod.uid] = gate

    def unpin(self, pod: Pod) -> None:
        """To be called before that plugin may answer otherwise."""
        self._parts.unpin(pod)

    # Time passes

    def next_timer(self) -> float | None:
        """When `flush` will next have something to do; None: not unless something else happens first."""
        timer, parts = None, self._parts
        if len(parts.pods) == len(parts.active):
            return None
        expiration = parts.backoff.earliest_expiration()
        if expiration is not None:
            timer = self._backoff_ticks.first_after(expiration)
        overdue = parts.unschedulable.earliest_overdue(self._longest_stay)
        if overdue is not None:
            look = self._leftover_ticks.first_after(overdue)
            timer = look if timer is None else min(timer, look)
        return timer

    def flush(self) -> None:
        """Moves pods that have waited long enough. To be called each second, or when `next_timer` says."""
        now = self._now()
        tick = self._backoff_ticks.latest(now)
        if tick is not None:
            self._flush_backoff(tick)
        tick = self._leftover_ticks.latest(now)
        if tick is not None:
            self._flush_leftovers(tick, now)

    def _flush_backoff(self, tick: float) -> None:
        parts = self._parts
        for info in parts.backoff.pop_completed(tick):
            del parts.pods[info.key]
            parts.to_active(info, BACKOFF_COMPLETE, from_backoff=True)

    def _flush_leftovers(self, tick: float, now: float) -> None:
        overdue = self._parts.unschedulable.overdue(tick, self._longest_stay)
        for info in overdue:
            info.was_flushed = True
            info.flush_timestamp = now
            self._move(info, UNSCHEDULABLE_TIMEOUT, None, None)
        if overdue:
            self._in_flight.record(UNSCHEDULABLE_TIMEOUT, None, None)

    def close(self) -> None:
        """No attempt will report back. Pods that wait can still be popped."""
        self._in_flight.clear()

    # What can be seen from outside

    def find(self, key: str) -> QueuedPod | None:
        """The record of a waiting pod, by namespace/name."""
        return self._parts.pods.get(key)

    def counts(self) -> PendingPods:
        return self._parts.counts()

    def in_flight_counts(self) -> dict[str, int]:
        """Entries of the list of pods in flight and events since, by the labels of `inflight_events`."""
        return self._in_flight.counts()

    def pending_pods(self) -> list[Pod]:
        return [info.pod for info in self._parts]

    def dump(self) -> str:
        """How many pods wait where, in one line for a log."""
        counts = self.counts()
        unschedulable = counts.unschedulable + counts.gated
        return f"activeQ:{counts.active}; backoffQ:{counts.backoff}; unschedulablePods:{unschedulable}"

    def _count_rejections(self, info: QueuedPod, change: int) -> None:
        if self._observer is not None:
            for plugin in info.rejectors:
                self._observer.unschedulable(plugin, info.profile, change)
