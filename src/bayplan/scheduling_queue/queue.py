"""The scheduling queue: events in, the next pod out.

A pending pod is in one of three sub-queues (`sub_queues.py`) or *in flight*: popped and being scheduled.
It has no tasks and no timers. Time comes from a function that is passed in, the caller reads the next timer
(`next_timer`) and calls `flush` when it expires, and each event is fully handled when the call returns.

    add, update, delete               a pod of our profiles without a node was added, changed, deleted
    pop                               the next pod
    done                              the attempt has ended and the pod does not come back
    add_unschedulable_if_not_present  the attempt failed and the pod comes back
    move_to_active_or_backoff         a cluster event that may make pods schedulable
    activate                          schedule these pods, whatever they wait for
    pin, unpin                        a PreEnqueue plugin keeps a pod out, and is not called meanwhile

Which events may make a pod schedulable is decided by the plugins (`hints.py`, `PreEnqueue`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from math import floor
from typing import Any, Final

from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.framework.events import ClusterEvent
from bayplan.runtime.extension_points import sort_key_of
from bayplan.runtime.profile import Profile
from bayplan.scheduling_queue import waiting
from bayplan.scheduling_queue.groups import QueuedGroups
from bayplan.scheduling_queue.hints import QueueingHints, Strategy
from bayplan.scheduling_queue.nominations import NominatedPods, Nominations
from bayplan.scheduling_queue.object_events import (
    BACKOFF_COMPLETE,
    FORCE_ACTIVATE,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_TIMEOUT,
    PodEvents,
)
from bayplan.scheduling_queue.queued import (
    Entity,
    QueuedGroup,
    QueuedPod,
    QueueObserver,
    Recorded,
    members_of,
)
from bayplan.scheduling_queue.sub_queues import PendingPods, PodHeap, PreEnqueue, SubQueues
from bayplan.scheduling_queue.waiting import BackoffQueue, QueueSettings, Ticker, UnschedulablePods
from bayplan.state.groups import Group, GroupStates, group_key

POD_POPPED: Final = "PodPopped"
"""The label of a pod's entry in metrics."""


class InFlight:
    """Pods in flight by uid, and the events since the first of them was popped."""

    def __init__(self) -> None:
        self.starts: dict[str, int] = {}
        """By uid: the number of the next event when the pod was popped. In this order, so ascending."""
        self._events: list[Recorded] = []
        self._dropped = 0
        """The number of the first recorded event."""

    def __len__(self) -> int:
        return len(self.starts)

    def __contains__(self, uid: str) -> bool:
        return uid in self.starts

    def begin(self, uid: str) -> bool:
        """The pod is in flight from now on. False: it already was, and nothing changes."""
        if uid in self.starts:
            return False
        self.starts[uid] = self._dropped + len(self._events)
        return True

    def record(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Records an event if any pod is in flight."""
        if self.starts:
            self._events.append(Recorded(event, old, new))

    def since(self, uid: str) -> list[Recorded] | None:
        """The events since the pod was popped; None if it is not in flight."""
        start = self.starts.get(uid)
        return None if start is None else self._events[start - self._dropped :]

    def end(self, uid: str) -> None:
        """The pod is no longer in flight. Events that no pod needs any more are dropped."""
        start = self.starts.pop(uid, None)
        if start is None or not self._events or start != self._dropped:
            return
        oldest = next(iter(self.starts.values()), None)
        self._drop(len(self._events) if oldest is None else oldest - self._dropped)

    def _drop(self, count: int) -> None:
        del self._events[:count]
        self._dropped += count

    def clear(self) -> None:
        """No pod is in flight any more."""
        self.starts.clear()
        self._drop(len(self._events))

    def counts(self) -> dict[str, int]:
        """The number of entries by the labels of `inflight_events`."""
        counts = {POD_POPPED: len(self.starts)} if self.starts else {}
        for recorded in self._events:
            label = recorded.event.label
            counts[label] = counts.get(label, 0) + 1
        return counts


_log = logging.getLogger(__name__)

_ACTIVATED: Final = FORCE_ACTIVATE.label

_IN_FLIGHT_ALREADY: Final = "the same pod is tracked in multiple places in the scheduler: %s"
_PRESENT_ALREADY: Final = "Pod %s is already present in %s"


class SchedulingQueue:
    """The pending pods of all profiles.

    Args:
        profiles: their PreEnqueue plugins, queueing hints and QueueSort plugin.
        now: seconds since the epoch.
        columns: the columns that nominations are applied to.
        pod_lister: returns the latest known version of the pod with this namespace and name, or None.
        extenders: whether there are any, so that they can reject pods.
        release: the release of Kubernetes whose rules apply.
        active: decides which active pod is next; None: the one with the lowest sort key. Pods that back off
            are then not popped early, because they would pass it by.
        groups: the groups of pods; None if every pod is scheduled by itself.
    """

    def __init__(
        self,
        profiles: Iterable[Profile],
        *,
        now: Callable[[], float],
        columns: NominatedPods,
        pod_lister: Callable[[Pod], Pod | None],
        extenders: bool = False,
        settings: QueueSettings | None = None,
        observer: QueueObserver | None = None,
        release: Release = DEFAULT_RELEASE,
        active: PodHeap | None = None,
        groups: GroupStates | None = None,
    ) -> None:
        self.events = PodEvents(release)
        """The events of pods."""
        self._rules = rules = release.queue
        settings = QueueSettings() if settings is None else settings
        profiles = tuple(profiles)
        early = settings.pop_from_backoff and active is None
        self.nominations = Nominations(columns, pod_lister, self)
        self.hints = QueueingHints(profiles, extenders=extenders, observer=observer, rules=rules)
        self.scheduling_cycle = 0
        """How many pods have been popped."""
        self._sub_queues = SubQueues(
            BackoffQueue(settings.initial_backoff, settings.max_backoff, windows=early),
            UnschedulablePods(self.hints.keys_of),
            PreEnqueue(profiles, observer),
            self.nominations,
            sort_key_of(profiles[0]),
            now,
            pops_from_backoff=early,
            observer=observer,
            nominating=frozenset()
            if rules.nominates_gated_pods
            else frozenset({self.events.add.label, self.events.update.label}),
            active=active,
        )
        parts = (self._sub_queues, self.hints, self.events)
        self.groups = None if groups is None else QueuedGroups(groups, *parts)
        self._in_flight = InFlight()
        self._now = now
        self._max_stay = settings.max_in_unschedulable
        self._observer = observer
        start = now()
        self._backoff_ticks = Ticker((floor(start) if early else start) + waiting.WINDOW, waiting.WINDOW)
        self._leftover_ticks = Ticker(start + waiting.LEFTOVER_PERIOD, waiting.LEFTOVER_PERIOD)

    # Events of pending pods

    def add(self, pod: Pod) -> None:
        """A new pod."""
        queues = self._sub_queues
        if self._rules.nominates_gated_pods and (self.nominations.nodes or pod.status.nominated_node_name):
            self.nominations.add(pod, None)
        if self.groups is not None and pod.spec.scheduling_group is not None:
            self.groups.add(queues.new(pod), self.events.add.label)
        else:
            queues.to_active(queues.new(pod), self.events.add.label)

    def update(self, old: Pod, new: Pod) -> None:
        """A pod has changed, whichever sub-queue it is in."""
        if new.uid in self._in_flight:
            # Evaluated when it comes back, with its then latest version.
            for event in self.events.updates(old, new):
                self._in_flight.record(event, old, new)
            return
        queues = self._sub_queues
        if self.groups is not None and new.spec.scheduling_group is not None:
            member = self.groups.find(new.key, new.uid)
            if member is None:
                self.add(new)
            else:
                self.nominations.pod_updated(member, old, new)
                self.groups.update(member, old, new)
            return
        info = self._single(new.key)
        if self._rules.unknown_update_adds and (info is None or info.pod.uid != new.uid):
            self.add(new)
            return
        if info is None:
            queues.to_active(queues.new(new), self.events.update.label)
            return
        queues.set_pod(info, new)
        self.nominations.pod_updated(info, old, new)
        if info.sub_queue is not queues.unschedulable:
            return
        for event in self.events.updates(old, new):
            strategy = self.hints.worth_requeuing(info, event, old, new)
            if strategy is not Strategy.SKIP and queues.requeue(info, strategy, event.label):
                return

    def _single(self, key: str) -> QueuedPod | None:
        """The record of a pending pod that is no member of a group."""
        info = self._sub_queues.pods.get(key)
        return info if isinstance(info, QueuedPod) else None

    def delete(self, pod: Pod) -> None:
        """The pod is deleted, or has a node now. This does not end an attempt in progress."""
        if self.nominations.nodes:
            self.nominations.remove(pod.metadata.uid)
        meta = pod.metadata
        if self.groups is not None and pod.spec.scheduling_group is not None:
            member = self.groups.delete(pod)
            if member is not None:
                self._count_rejections(member, -1)
            return
        info = self._single(f"{meta.namespace}/{meta.name}")
        if info is None:
            return
        if info.sub_queue is self._sub_queues.unschedulable or self._rules.counts_every_deletion:
            self._count_rejections(info, -1)
        self._sub_queues.remove(info)

    def pod_ended(self, pod: Pod) -> None:
        """A pending pod was deleted, whichever sub-queue it was in."""
        self._sub_queues.active.pod_ended(pod.metadata.uid)

    # Attempts

    @property
    def has_ready(self) -> bool:
        """Whether `pop` would find a pod."""
        queues = self._sub_queues
        return bool(queues.active.count or (queues.pops_from_backoff and queues.backoff.rejected.count))

    @property
    def has_waiting_pods(self) -> bool:
        """Whether there is a pod that an event may make schedulable. Usually there is none."""
        return bool(self._sub_queues.unschedulable.pods or self._in_flight.starts)

    def pop(self) -> Entity | None:
        """The next pod or group, which is in flight from now on; None if none is ready."""
        if not self.has_ready:
            return None
        while (info := self._sub_queues.pop_first()) is not None:
            if isinstance(info, QueuedGroup):
                assert self.groups is not None
                info.attempts += 1
                info.members = [member for member in info.members if self._begin(member)]
                self.groups.popped(info)
            elif not self._begin(info):
                continue
            self.scheduling_cycle += 1
            return info
        return None

    def _begin(self, info: QueuedPod) -> bool:
        """The pod is in flight from now on. False: it already was, and this record is dropped."""
        info.attempts += 1
        if not self._in_flight.begin(info.pod.metadata.uid):
            _log.error(_IN_FLIGHT_ALREADY, info.key)
            return False
        if info.unschedulable_plugins or info.pending_plugins:
            self._count_rejections(info, -1)
        if self.nominations.nodes:
            self.nominations.pod_popped(info.pod)
        return True

    def done(self, uid: str) -> None:
        """The attempt has ended; events that were recorded for the pod are dropped."""
        self._in_flight.end(uid)
        if self.nominations.popped:
            self.nominations.attempt_ended(uid)

    def is_in_flight(self, uid: str) -> bool:
        return uid in self._in_flight

    def add_unschedulable_if_not_present(
        self,
        info: QueuedPod,
        pod: Pod,
        unschedulable_plugins: Iterable[str] = (),
        pending_plugins: Iterable[str] = (),
        *,
        is_cut_off: bool = False,
    ) -> bool:
        """A popped pod comes back from a failed attempt, which ends here.

        Args:
            pod: its latest version.
            unschedulable_plugins: the plugins that rejected it. None: the attempt ended with an error.
            pending_plugins: those among them whose events requeue it without backoff.

            is_cut_off: a plugin used up its time, so the backoff is longer.

        Returns False if the pod is in the queue already; this record is then dropped.
        """
        info.pod = pod
        info.unschedulable_plugins = frozenset(unschedulable_plugins)
        info.pending_plugins = frozenset(pending_plugins)
        info.is_cut_off = is_cut_off
        known = self.find(info.key)
        if known is None:
            self._requeue_failed(info)
        else:
            assert known.sub_queue is not None
            article = "" if known.sub_queue is self._sub_queues.unschedulable else "the "
            _log.error(_PRESENT_ALREADY, info.key, f"{article}{known.sub_queue.label} queue")
        self.done(pod.uid)
        return known is None

    def _requeue_failed(self, info: QueuedPod) -> None:
        if info.rejectors:
            info.unschedulable_count += 1
            info.consecutive_errors_count = 0
        else:
            info.consecutive_errors_count += 1
        self._sub_queues.restamp(info)
        self._count_rejections(info, 1)
        if self.groups is not None and info.pod.spec.scheduling_group is not None:
            self.groups.returned(info)
            return
        missed = self._in_flight.since(info.pod.uid)
        if missed is None or not info.rejectors:
            strategy = Strategy.AFTER_BACKOFF
        else:
            strategy = self.hints.strategy_after(info, missed)
        self._sub_queues.requeue(info, strategy, SCHEDULE_ATTEMPT_FAILURE)

    # Cluster events

    def move_to_active_or_backoff(
        self,
        event: ClusterEvent,
        old: Any = None,
        new: Any = None,
        precheck: Callable[[Pod], bool] | None = None,
    ) -> None:
        """Requeues the unschedulable pods that an event may make schedulable, if they pass `precheck`."""
        if not self.has_waiting_pods:
            return
        listeners = self.hints.listeners(event)
        if listeners is None:
            return
        waiting = self._sub_queues.unschedulable
        if waiting:
            wildcard = listeners.is_wildcard
            for info in list(waiting) if wildcard else waiting.rejected_by(listeners.index_keys(old, new)):
                if precheck is not None and not any(precheck(each.pod) for each in members_of(info)):
                    continue
                gate = info.gating_plugin
                if gate and not listeners.is_wildcard and gate not in listeners.plugins:
                    continue
                self._move(info, event, old, new)
                # What the members of a group wait for does not change with its objects.
                if listeners.keys and info.sub_queue is waiting and isinstance(info, QueuedPod):
                    waiting.reindex(info)
        self._in_flight.record(event, old, new)

    def _move(self, info: Entity, event: ClusterEvent, old: Any, new: Any) -> None:
        queues = self._sub_queues
        # The hint of another pod may have activated this one meanwhile.
        if info.sub_queue is not queues.unschedulable:
            return
        strategy = self.hints.worth_requeuing(info, event, old, new)
        if strategy is not Strategy.SKIP and not queues.stays_gated(info, event.label):
            queues.remove(info)
            queues.requeue(info, strategy, event.label)

    def activate(self, pods: Iterable[Pod]) -> None:
        """Makes these pods active without backoff. One in flight is requeued as if by an event."""
        queues = self._sub_queues
        for pod in pods:
            if self.groups is not None and pod.spec.scheduling_group is not None:
                self.groups.activate(pod, _ACTIVATED)
                continue
            info = queues.pods.get(pod.key)
            if info is not None and info.sub_queue is queues.unschedulable:
                queues.to_active(info, _ACTIVATED)
            elif info is not None and info.sub_queue is not queues.active:
                queues.remove(info)
                queues.to_active(info, _ACTIVATED, from_backoff=True)
            elif pod.uid in self._in_flight:
                self._in_flight.record(FORCE_ACTIVATE, None, pod)

    def pin(self, preemptor: Pod | Group, gate: str) -> None:
        """Until `unpin`, this PreEnqueue plugin keeps a pod or group out without being called at every event.

        A preemptor waits for its victims while they and the victims of many others are deleted. Without pins
        each of those deletions would call the plugin for every preemptor, and the hints of all its members.
        """
        self._sub_queues.pinned[preemptor.uid] = gate

    def unpin(self, preemptor: Pod | Group) -> None:
        """Call this before the plugin may answer differently."""
        self._sub_queues.unpin(preemptor)

    # Timers

    def next_timer(self) -> float | None:
        """When `flush` next has something to do; None: not before another event."""
        timer, queues = None, self._sub_queues
        if len(queues.pods) == queues.active.count:
            return None
        expiration = queues.backoff.earliest_expiration()
        if expiration is not None:
            timer = self._backoff_ticks.first_after(expiration)
        overdue = queues.unschedulable.earliest_overdue(self._max_stay)
        if overdue is not None:
            leftover_flush = self._leftover_ticks.first_after(overdue)
            timer = leftover_flush if timer is None else min(timer, leftover_flush)
        return timer

    def flush(self) -> None:
        """Moves the pods whose timers have expired. Call it every second, or at `next_timer`."""
        now = self._now()
        tick = self._backoff_ticks.latest(now)
        if tick is not None:
            self._flush_backoff(tick)
        tick = self._leftover_ticks.latest(now)
        if tick is not None:
            self._flush_leftovers(tick, now)

    def _flush_backoff(self, tick: float) -> None:
        queues = self._sub_queues
        for info in queues.backoff.pop_completed(tick):
            del queues.pods[info.key]
            queues.to_active(info, BACKOFF_COMPLETE, from_backoff=True)

    def _flush_leftovers(self, tick: float, now: float) -> None:
        overdue = self._sub_queues.unschedulable.overdue(tick, self._max_stay)
        for info in overdue:
            info.was_flushed = True
            info.flush_timestamp = now
            self._move(info, UNSCHEDULABLE_TIMEOUT, None, None)
        if overdue:
            self._in_flight.record(UNSCHEDULABLE_TIMEOUT, None, None)

    def close(self) -> None:
        """Attempts in flight will not report back. Pending pods can still be popped."""
        self._in_flight.clear()

    # Inspection

    def find(self, key: str) -> QueuedPod | None:
        """The record of a pending pod, by namespace/name."""
        info = self._single(key)
        return self.groups.members.get(key) if info is None and self.groups is not None else info

    def entity(self, info: QueuedPod) -> Entity | None:
        """What waits in a sub-queue for this pod: itself or its group; None if its group waits nowhere."""
        is_single = self.groups is None or group_key(info.pod) is None
        return info if is_single or self.groups is None else self.groups.entity(info.pod)

    def is_incomplete(self, info: QueuedPod) -> bool:
        """Whether it is a member of a group without a PodGroup object."""
        return self.groups is not None and self.groups.is_incomplete(info)

    def active_position(self, info: Entity) -> tuple[int, int] | None:
        """The place of an active pod or group, counted from 1, and how many are active; None for others."""
        active = self._sub_queues.active
        if info.sub_queue is not active:
            return None
        return next((place, len(active)) for place, other in enumerate(active, 1) if other is info)

    def entity_counts(self) -> dict[tuple[str, str], int]:
        """The number of entities by sub-queue and type: `pod` or `podgroup`."""
        all_, groups = self._sub_queues.counts(), {} if self.groups is None else self.groups.entity_counts()
        found = {(name, "podgroup"): count for name, count in groups.items()}
        for name in ("active", "backoff", "unschedulable", "gated"):
            found[name, "pod"] = getattr(all_, name) - groups.get(name, 0)
        return found

    def counts(self) -> PendingPods:
        counts = self._sub_queues.counts()
        return counts if self.groups is None else self.groups.counts(counts)

    def in_flight_counts(self) -> dict[str, int]:
        """The number of pods in flight and of recorded events, by the labels of `inflight_events`."""
        return self._in_flight.counts()

    def pending(self) -> list[tuple[Entity, QueuedPod]]:
        """The records of all pods in the sub-queues, in their order, each with its entity."""
        return [(entity, member) for entity in self._sub_queues for member in members_of(entity)]

    def pending_pods(self) -> list[Pod]:
        found = [member.pod for info in self._sub_queues for member in members_of(info)]
        return found if self.groups is None else found + self.groups.outside_entities()

    def backoff_expiration(self, info: Entity) -> float:
        """When the backoff of a pod or group ends, in seconds since the epoch."""
        return self._sub_queues.backoff.expiration(info)

    def dump(self) -> str:
        """The number of pods in each sub-queue, in one line for a log."""
        counts = self.counts()
        unschedulable = counts.unschedulable + counts.gated
        dump = f"activeQ:{counts.active}; backoffQ:{counts.backoff}; {self._rules.dump_label}:{unschedulable}"
        if self.groups is not None:
            dump += (
                f"; pendingPodGroupMemberPods:{counts.pending}; incompletePodGroupPods:{counts.incomplete}"
            )
        return dump

    def _count_rejections(self, info: QueuedPod, change: int) -> None:
        if self._observer is not None:
            for plugin in info.rejectors:
                self._observer.unschedulable(plugin, info.profile, change)
