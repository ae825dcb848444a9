"""The sub-queues (active, backoff, unschedulable), and the moves between them.

                 ┌────────────── active ◀──────────┐
                 │                 ▲               │ backoff completed, or activated
       popped    │                 │            backoff
       ◀─────────┘                 │               ▲
       ◀── popped, none active   ──┼───────────────┤
                                   │               │
                  PreEnqueue ──────┴───────────────┘
                         │ ▲  cluster event
                rejected ▼ │
                     unschedulable

`queue.py` and `hints.py` decide *whether* a pod moves. Every pod that enters the active or the backoff queue
passes the PreEnqueue plugins here; a rejected pod is gated and becomes unschedulable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import PreEnqueuePlugin, SortKey
from bayplan.framework.status import Code
from bayplan.runtime.extension_points import POINTS, ExtensionPoints, Gated
from bayplan.runtime.profile import PointStep, Profile
from bayplan.scheduling_queue.hints import Strategy
from bayplan.scheduling_queue.nominations import Nominations
from bayplan.scheduling_queue.object_events import POP_FROM_BACKOFF, SCHEDULE_ATTEMPT_FAILURE
from bayplan.scheduling_queue.queued import (
    NEVER,
    Entity,
    QueuedGroup,
    QueuedPod,
    QueueObserver,
    entity_key,
    members_of,
)
from bayplan.state.groups import Group

if TYPE_CHECKING:
    from bayplan.scheduling_queue.waiting import BackoffQueue, UnschedulablePods

_Entry = tuple[SortKey, int, int, Entity]
"""Rank, the entity's sequence, ticket, entity."""

_MAX_OUTDATED: Final = 64


class PodHeap:
    """Pods by rank, the lowest first; among equals the one that has waited longest."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._run: deque[_Entry] = deque()
        self._heap: list[_Entry] = []
        self.count = 0
        """The number of pods."""
        self._last_ticket = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Entity]:
        """The pods in the order in which they would be popped."""
        entries = sorted((*self._run, *self._heap))
        return (entry[3] for entry in entries if self._is_current(entry))

    def push(self, info: Entity, rank: SortKey) -> None:
        ticket = self._last_ticket = self._last_ticket + 1
        info.sub_queue = self
        info.ticket = ticket
        self.count += 1
        entry = (rank, info.sequence, ticket, info)
        run = self._run
        if not run or run[-1] < entry:
            run.append(entry)
        else:
            heappush(self._heap, entry)

    def pod_ended(self, uid: str) -> None:
        """A pending pod was deleted. An order that depends on other pods of its application may change."""

    def pop(self) -> Entity | None:
        """Removes and returns the first pod."""
        run, heap = self._run, self._heap
        while run or heap:
            in_run = run and (not heap or run[0] < heap[0])
            _, _, ticket, info = run.popleft() if in_run else heappop(heap)
            if info.ticket == ticket and info.sub_queue is self:
                info.sub_queue = None
                self.count -= 1
                return info
        return None

    def first(self) -> Entity | None:
        """The pod that `pop` would remove."""
        if not self.count:
            return None
        run, heap = self._run, self._heap
        while run or heap:
            in_run = run and (not heap or run[0] < heap[0])
            entry = run[0] if in_run else heap[0]
            if self._is_current(entry):
                return entry[3]
            if in_run:
                run.popleft()
            else:
                heappop(heap)
        return None

    def remove(self, info: Entity) -> None:
        info.sub_queue = None
        self.count -= 1
        if len(self._run) + len(self._heap) > 2 * self.count + _MAX_OUTDATED:
            self._run = deque(filter(self._is_current, self._run))
            self._heap = list(filter(self._is_current, self._heap))
            heapify(self._heap)

    def changed(self, info: Entity) -> None:
        """The members of a group in this heap have changed. Its rank has not."""

    def _is_current(self, entry: _Entry) -> bool:
        info = entry[3]
        return info.ticket == entry[2] and info.sub_queue is self


class PreEnqueue:
    """The PreEnqueue plugins of all profiles."""

    def __init__(self, profiles: Iterable[Profile], observer: QueueObserver | None = None) -> None:
        self._observer = observer
        self._profiles = {profile.scheduler_name: profile for profile in profiles}
        self._with_first = {
            (name, first.name): tuple(sorted(profile.pre_enqueues, key=lambda step: step is not first))
            for name, profile in self._profiles.items()
            for first in profile.pre_enqueues
        }
        """The plugins of each profile, once with each of them first."""

    def run(self, info: Entity) -> bool:
        """Runs the plugins, first the one that gated the pod before. True if none rejects the pod.

        The plugin that does is stored in the record. A group is gated if any of its members is.
        """
        if isinstance(info, QueuedGroup):
            return self.run_members(info, info.members)
        pod, observer = info.pod, self._observer
        name = pod.spec.scheduler_name
        profile = self._profiles.get(name)
        if profile is None:
            return True
        steps = profile.pre_enqueues
        if info.gating_plugin:
            steps = self._with_first.get((name, info.gating_plugin), steps)
        if observer is None:
            gated = POINTS.pre_enqueue(profile, steps, pod)
        else:
            started = observer.clock()
            points = _TimedGates(observer) if observer.samples_plugins() else POINTS
            gated = points.pre_enqueue(profile, steps, pod)
            observer.pre_enqueue(name, observer.clock() - started)
        if gated is None:
            # The plugin stays among those that rejected the pod until its next attempt fails: if another
            # plugin gates the pod meanwhile, events of this one still requeue it.
            info.gating_plugin = ""
            return True
        self._gate(info, gated.plugin)
        return False

    def run_members(self, entity: QueuedGroup, members: Sequence[QueuedPod]) -> bool:
        """Runs the plugins for these members, the others having passed. True if none is rejected.

        All of them are called, so that each member knows what it waits for; the last one decides whose events
        free the group.
        """
        gated = [member for member in members if not self.run(member)]
        entity.gating_plugin = gated[-1].gating_plugin if gated else ""
        if gated:
            entity.was_flushed = False
        return not gated

    def still_rejects(self, info: Entity) -> bool:
        """Whether the plugin that gates the entity still rejects it. If not, all plugins have to be run.

        Of a group only the last member is tried: if it is gated, it decides.
        """
        plugin = info.gating_plugin
        tried = info.members[-1] if isinstance(info, QueuedGroup) else info
        steps = self._with_first.get((tried.profile, plugin))
        if not steps:
            return False
        observer = self._observer
        started = 0.0 if observer is None else observer.clock()
        if POINTS.pre_enqueue(self._profiles[tried.profile], steps[:1], tried.pod) is None:
            return False
        if tried is not info:
            self._gate(tried, plugin)
        info.was_flushed = False
        if observer is not None:
            observer.pre_enqueue(tried.profile, observer.clock() - started)
        return True

    def _gate(self, info: QueuedPod, plugin: str) -> None:
        info.gating_plugin = plugin
        info.was_flushed = False
        if plugin not in info.unschedulable_plugins:
            info.unschedulable_plugins |= {plugin}
            if self._observer is not None:
                self._observer.unschedulable(plugin, info.profile, 1)


class _TimedGates(ExtensionPoints):
    """PreEnqueue with timers."""

    def __init__(self, observer: QueueObserver) -> None:
        self._observer = observer

    def pre_enqueue(
        self, profile: Profile, steps: Sequence[PointStep[PreEnqueuePlugin]], pod: Pod
    ) -> Gated | None:
        for step in steps:
            started = self._observer.clock()
            gated = super().pre_enqueue(profile, (step,), pod)
            code = Code.SUCCESS if gated is None else gated.status.code
            self._observer.pre_enqueue_plugin(step.name, code.label, self._observer.clock() - started)
            if gated is not None:
                return gated
        return None


@dataclass(frozen=True, slots=True)
class PendingPods:
    """The number of pods by sub-queue: the gauges of `pending_pods`."""

    active: int
    backoff: int
    unschedulable: int
    gated: int
    incomplete: int = 0
    """Members of groups whose PodGroup object does not exist."""
    pending: int = 0
    """Members of the group that is being scheduled, which are tried after that attempt."""


class SubQueues:
    """All pending pods by key, each in one sub-queue.

    Args:
        pops_from_backoff: whether pods that back off may be popped. PreEnqueue then runs when a pod enters
            the backoff queue, and not again when it becomes active from there; otherwise only when it becomes
            active.
        nominating: labels of events at which a pod that becomes active is nominated to the node in its
            status.
        active: orders active pods; None: a heap by their sort keys.
    """

    def __init__(
        self,
        backoff: BackoffQueue,
        unschedulable: UnschedulablePods,
        pre_enqueue: PreEnqueue,
        nominations: Nominations,
        sort_key: Callable[[Pod, float], SortKey],
        now: Callable[[], float],
        *,
        pops_from_backoff: bool = True,
        observer: QueueObserver | None = None,
        nominating: frozenset[str] = frozenset(),
        active: PodHeap | None = None,
    ) -> None:
        self._nominating = nominating
        self.active = PodHeap("active") if active is None else active
        self._is_ordered_outside = active is not None
        """Others would take the place of a preemptor that backs off."""
        self.backoff = backoff
        self.unschedulable = unschedulable
        self.nominations = nominations
        self.pods: dict[str, Entity] = {}
        self.pinned: dict[str, str] = {}
        """By uid, for pinned pods and groups: the PreEnqueue plugin that keeps them out until they are
        unpinned."""
        self.pre_enqueue = pre_enqueue
        self._sort_key = sort_key
        self._now = now
        self.pops_from_backoff = pops_from_backoff
        self._observer = observer
        self._sequence = count()

    def new(self, pod: Pod) -> QueuedPod:
        """The record of a new pod, which is in no sub-queue yet."""
        timestamp = self._now()
        meta = pod.metadata
        info = QueuedPod(pod, f"{meta.namespace}/{meta.name}", timestamp, next(self._sequence))
        info.sort_key = self._sort_key(pod, timestamp)
        return info

    def new_group(self, group: Group, members: list[QueuedPod], timestamp: float) -> QueuedGroup:
        """The entity of a group, which is in no sub-queue yet."""
        entity = QueuedGroup(group, entity_key(group), timestamp, next(self._sequence), members)
        entity.sort_key = self._group_sort_key(entity)
        return entity

    def _group_sort_key(self, entity: QueuedGroup) -> SortKey:
        """The sort key of a group is that of a member with the priority of the group."""
        pod, priority = entity.members[0].pod, entity.group.priority
        if pod.priority != priority:
            pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))
        return self._sort_key(pod, entity.timestamp)

    def restamp(self, info: Entity) -> None:
        """The entity comes back from an attempt: its timestamp and backoff start again."""
        info.timestamp = self._now()
        info.sequence = next(self._sequence)
        info.backoff_expiration = None
        info.was_flushed = False
        info.flush_timestamp = NEVER
        if isinstance(info, QueuedGroup):
            info.sort_key = self._group_sort_key(info)
        else:
            info.sort_key = self._sort_key(info.pod, info.timestamp)

    def set_pod(self, info: QueuedPod, pod: Pod) -> None:
        """The object of a pending pod has changed. It stays in its sub-queue; its position may change."""
        info.pod = pod
        if info.sub_queue is self.unschedulable and info.index_keys:
            self.unschedulable.put(info)
        sort_key = self._sort_key(pod, info.timestamp)
        if sort_key == info.sort_key:
            return
        info.sort_key = sort_key
        if info.sub_queue is self.active:
            self.active.remove(info)
            self.active.push(info, sort_key)
        else:
            self.backoff.reorder(info)

    def pop_first(self) -> Entity | None:
        """Removes the next pod: the first active one, else one that backs off after a rejection."""
        info = self.active.pop()
        if info is None:
            if not self.pops_from_backoff:
                return None
            info = self.backoff.rejected.pop()
            if info is None:
                return None
            if self._observer is not None:
                self._observer.incoming(info, "active", POP_FROM_BACKOFF, as_decided=False)
        del self.pods[info.key]
        return info

    def remove(self, info: Entity) -> None:
        """Removes a pending pod from its sub-queue."""
        assert info.sub_queue is not None
        info.sub_queue.remove(info)
        del self.pods[info.key]

    def stays_gated(self, info: Entity, label: str) -> bool:
        """Whether a gated pod stays gated at an event that may make it schedulable.

        While the victims of many preemptors are deleted, each deletion is such an event for all of them, and
        none can be scheduled yet. So its PreEnqueue plugin is called first, before the pod is moved, and that
        of a pinned pod is not called again.
        """
        if not info.gating_plugin or not self.pops_from_backoff or not self.pre_enqueue.still_rejects(info):
            return False
        if self._observer is not None:
            self._observer.incoming(info, "unschedulable", label, as_decided=False)
        if self.pinned and self.pinned.get(info.uid) == info.gating_plugin:
            self.unschedulable.unindex(info)
        return True

    def unpin(self, preemptor: Pod | Group) -> None:
        """The PreEnqueue plugin of a pinned pod or group is called again at the next event."""
        if self.pinned.pop(preemptor.uid, None) is None:
            return
        info = self.pods.get(entity_key(preemptor))
        if info is not None and info.sub_queue is self.unschedulable:
            self.unschedulable.put(info)

    def requeue(self, info: Entity, strategy: Strategy, label: str) -> bool:
        """Moves a pod as the strategy says, unless PreEnqueue rejects it. True: it can be popped."""
        if strategy is Strategy.SKIP:
            self._to_unschedulable(info, label, as_decided=True)
            return False
        backs_off = strategy is Strategy.AFTER_BACKOFF and self.backoff.is_backing_off(info, self._now())
        if backs_off and not self._skips_backoff(info, label):
            return self._to_backoff(info, label)
        return self.to_active(info, label, as_decided=strategy is not Strategy.AFTER_BACKOFF)

    def _skips_backoff(self, info: Entity, label: str) -> bool:
        """Whether an event may make room that was freed for this pod, in the order of capacity queues.

        Not after a failed attempt, which would be repeated at once, again and again. A group backs off in any
        case: no event requeues it.
        """
        return (
            self._is_ordered_outside
            and label != SCHEDULE_ATTEMPT_FAILURE
            and isinstance(info, QueuedPod)
            and info.pod.uid in self.nominations.nodes
        )

    def to_active(
        self, info: Entity, label: str, *, from_backoff: bool = False, as_decided: bool = False
    ) -> bool:
        """Makes a pod active, unless PreEnqueue rejects it.

        Args:
            as_decided: whether an event or a failed attempt decided on the active queue.
        """
        passed_before = from_backoff and self.pops_from_backoff
        if not passed_before and not self.pre_enqueue.run(info):
            self._to_unschedulable_unless_ready(info, label)
            return False
        if info.initial_attempt_timestamp is None:
            info.initial_attempt_timestamp = self._now()
        self._set_record(info)
        self.active.push(info, info.sort_key)
        if self._observer is not None:
            self._observer.incoming(info, "active", label, as_decided=as_decided)
        if label in self._nominating:
            for member in members_of(info):
                if self.nominations.nodes or member.pod.status.nominated_node_name:
                    self.nominations.add(member.pod, None)
        return True

    def _to_backoff(self, info: Entity, label: str) -> bool:
        if self.pops_from_backoff and not self.pre_enqueue.run(info):
            self._to_unschedulable_unless_ready(info, label)
            return False
        self._set_record(info)
        self.backoff.push(info)
        if self._observer is not None:
            self._observer.incoming(info, "backoff", label, as_decided=True)
        return True

    def is_backing_off(self, info: Entity) -> bool:
        return self.backoff.is_backing_off(info, self._now())

    def gate(self, info: Entity, label: str) -> None:
        """PreEnqueue has rejected an entity that is in no sub-queue."""
        self._to_unschedulable(info, label)

    def _to_unschedulable_unless_ready(self, info: Entity, label: str) -> None:
        """A record that PreEnqueue rejected does not replace one that has passed it."""
        known = self.pods.get(info.key)
        if known is None or known.sub_queue is self.unschedulable:
            self._to_unschedulable(info, label)

    def _to_unschedulable(self, info: Entity, label: str, *, as_decided: bool = False) -> None:
        known = self.pods.get(info.key)
        was_unschedulable = known is not None and known.sub_queue is self.unschedulable
        if known is not info:
            self._set_record(info)
        self.unschedulable.put(info)
        if not was_unschedulable and self._observer is not None:
            self._observer.incoming(info, "unschedulable", label, as_decided=as_decided)

    def _set_record(self, info: Entity) -> None:
        """Makes this the record of its pod, and removes the pod from the sub-queue it was in."""
        pods, key = self.pods, info.key
        known = pods.get(key)
        if known is not None and known.sub_queue is not None:
            known.sub_queue.remove(known)
        pods[key] = info
        if self.nominations.nodes:
            for member in members_of(info):
                self.nominations.pod_requeued(member.pod)

    def counts(self) -> PendingPods:
        """The number of pods in each sub-queue."""
        gated = self.unschedulable.gated_count
        active, backoff, unschedulable = len(self.active), len(self.backoff), len(self.unschedulable) - gated
        return PendingPods(active, backoff, unschedulable, gated)

    def __iter__(self) -> Iterator[Entity]:
        """Every pending pod, in the order of the sub-queues."""
        yield from self.active
        yield from self.backoff
        yield from self.unschedulable
