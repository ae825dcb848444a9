"""The members of groups in the queue: where each of them waits, and when their group is tried.

A group is one entity of the queue, so either all its waiting members are in the active queue or none is; with
CompositePodGroups the root is the entity, with the members of all groups below it. A member that is not in
flight is in one of three places:

    incomplete   its PodGroup object does not exist, or one above it
    entity       in the record of its group, in whichever sub-queue that is
    pending      its group is being scheduled: it is tried after that attempt

                       PodGroup added                    popped
         incomplete ──────────────────► entity ─────────────────────► in flight
             ▲                            ▲                               │ failed
             └── PodGroup deleted ────────┤                               ▼
                                          └─────────── pending ◄──────────┘
                                             attempt_ended

A group that failed waits for the end of its backoff; no event shortens that. Only gated groups are among the
unschedulable entities: there an event of the plugin that gates one of their members may free them.

scheduling_queue.go: AddAttemptedPodGroupIfNeeded
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bayplan.api.pod import Pod
from bayplan.framework.status import Code
from bayplan.scheduling_queue.hints import QueueingHints, Strategy
from bayplan.scheduling_queue.object_events import SCHEDULE_ATTEMPT_FAILURE, PodEvents
from bayplan.scheduling_queue.queued import QueuedGroup, QueuedPod, member_order
from bayplan.scheduling_queue.sub_queues import PendingPods, SubQueues
from bayplan.state.groups import Group, GroupKey, GroupStates, group_key


@dataclass(slots=True)
class _LastPopped:
    """The group whose attempt has not ended, and the uids of the members that were popped with it."""

    entity: QueuedGroup
    tried: frozenset[str]


class QueuedGroups:
    """The waiting members of all groups."""

    def __init__(
        self, states: GroupStates, sub_queues: SubQueues, hints: QueueingHints, events: PodEvents
    ) -> None:
        self._states = states
        self._queues = sub_queues
        self._hints = hints
        self._events = events
        self.members: dict[str, QueuedPod] = {}
        """Every waiting member, by namespace/name of the pod."""
        self.entities: dict[GroupKey, QueuedGroup] = {}
        """By the key of the root."""
        self._incomplete: dict[GroupKey, dict[str, QueuedPod]] = {}
        """By the key of the PodGroup, and the namespace/name of the pod."""
        self._pending: dict[str, QueuedPod] = {}
        self._last_popped: _LastPopped | None = None

    # Members

    def add(self, info: QueuedPod, label: str) -> None:
        """A member that waits nowhere yet."""
        key = group_key(info.pod)
        assert key is not None
        self.members[info.key] = info
        root = self._states.root(key)
        if root is None:
            self._incomplete.setdefault(key, {})[info.key] = info
        else:
            self._enter(root, [info], label)

    def _enter(self, root: Group, infos: list[QueuedPod], label: str) -> None:
        """Members of this tree that wait nowhere else."""
        entity = self.entities.get(root.key)
        if entity is not None:
            for info in infos:
                insort(entity.members, info, key=member_order)
            self._put_back(entity, label, infos)
        elif self._is_last_popped(root.key):
            self._pending.update((info.key, info) for info in infos)
        else:
            self._make_entity(root, infos, label)

    def _is_last_popped(self, root: GroupKey) -> bool:
        return self._last_popped is not None and self._last_popped.entity.group.key == root

    def _make_entity(self, group: Group, members: list[QueuedPod], label: str) -> None:
        members.sort(key=member_order)
        entity = self._queues.new_group(group, members, min(member.timestamp for member in members))
        self.entities[group.key] = entity
        self._queues.to_active(entity, label)

    def _put_back(self, entity: QueuedGroup, label: str, changed: list[QueuedPod]) -> None:
        """The members of a group have changed. These have to pass PreEnqueue, the others have passed it."""
        queues = self._queues
        if entity.sub_queue is queues.unschedulable:
            return
        if queues.pre_enqueue.run_members(entity, changed):
            is_active = entity.sub_queue is queues.active
            if is_active:
                queues.active.changed(entity)
            elif not queues.is_backing_off(entity):
                queues.remove(entity)
                queues.to_active(entity, label, from_backoff=True)
            return
        queues.remove(entity)
        queues.gate(entity, label)

    def find(self, key: str, uid: str) -> QueuedPod | None:
        """The waiting member with this namespace/name, if it is this pod."""
        info = self.members.get(key)
        return info if info is not None and info.pod.uid == uid else None

    def update(self, info: QueuedPod, old: Pod, new: Pod) -> None:
        """The object of a waiting member has changed."""
        info.pod = new
        entity, queues = self.entity(new), self._queues
        if entity is None or info.key in self._pending or entity.sub_queue is not queues.unschedulable:
            return
        queues.unschedulable.member_changed(entity, info)
        # A pod's own update concerns what rejected that pod. Members that nothing rejected are requeued by
        # any event, and with them the group.
        concerned = info if all(member.rejectors for member in entity.members) else entity
        for event in self._events.updates(old, new):
            strategy = self._hints.worth_requeuing(concerned, event, old, new)
            if strategy is not Strategy.SKIP and queues.requeue(entity, strategy, event.label):
                return

    def delete(self, pod: Pod) -> QueuedPod | None:
        """A member is deleted, or has a node now. Returns its record if it waits."""
        info, key = self.find(pod.key, pod.uid), group_key(pod)
        if info is None or key is None:
            return None
        del self.members[info.key]
        incomplete = self._incomplete.get(key)
        if incomplete is not None and incomplete.pop(info.key, None) is not None:
            if not incomplete:
                del self._incomplete[key]
        elif self._pending.pop(info.key, None) is None:
            self._delete_from_entity(info)
        return info

    def entity(self, pod: Pod) -> QueuedGroup | None:
        """The entity that a waiting member is in, unless it is incomplete or pending."""
        root = self._states.root_of(pod)
        return None if root is None else self.entities.get(root.key)

    def _delete_from_entity(self, info: QueuedPod) -> None:
        entity = self.entity(info.pod)
        assert entity is not None
        entity.members.remove(info)
        if not entity.members:
            del self.entities[entity.group.key]
            self._queues.remove(entity)
            return
        if entity.sub_queue is self._queues.unschedulable:
            self._queues.unschedulable.put(entity)
        else:
            self._put_back(entity, self._events.delete.label, entity.members)

    # Attempts

    def popped(self, entity: QueuedGroup) -> None:
        """The group is in flight from now on, with the members that are left in its record."""
        del self.entities[entity.group.key]
        for member in entity.members:
            self.members.pop(member.key, None)
            if member.initial_attempt_timestamp is None:
                member.initial_attempt_timestamp = entity.initial_attempt_timestamp
        self._pending.update((member.key, member) for member in entity.left_out)
        self._last_popped = _LastPopped(entity, frozenset(member.pod.uid for member in entity.members))

    def returned(self, info: QueuedPod) -> None:
        """A member comes back from a failed attempt; its counters are up to date.

        Its group is usually still being scheduled. If it is not, binding the member failed: the group is then
        tried again after the member's backoff. kube-scheduler has no backoff in this case, and repeats a
        binding that always fails a hundred times a second.
        """
        group = self._states.root_of(info.pod)
        if group is None or group.key in self.entities:
            self.add(info, SCHEDULE_ATTEMPT_FAILURE)
            return
        self.members[info.key] = info
        if self._is_last_popped(group.key):
            self._pending[info.key] = info
            return
        entity = self.entities[group.key] = self._queues.new_group(group, [info], info.timestamp)
        entity.attempts = info.attempts
        entity.unschedulable_count = info.unschedulable_count
        entity.consecutive_errors_count = info.consecutive_errors_count
        self._queues.requeue(entity, Strategy.AFTER_BACKOFF, SCHEDULE_ATTEMPT_FAILURE)

    def attempt_ended(self, code: Code) -> None:
        """The attempt of the group popped last has ended with this code. Members that wait are tried again:
        at once if others were scheduled, after a backoff if none was."""
        last, self._last_popped = self._last_popped, None
        waiting, self._pending = list(self._pending.values()), {}
        if last is None or not waiting:
            return
        before = last.entity
        group = self._states.group(before.group.key)
        if group is None:  # deleted meanwhile: its members have become incomplete
            return
        waiting.sort(key=member_order)
        entity = self._queues.new_group(group, waiting, before.timestamp)
        self.entities[group.key] = entity
        entity.attempts = before.attempts
        entity.initial_attempt_timestamp = before.initial_attempt_timestamp
        if code is Code.SUCCESS:
            if not any(member.pod.uid in last.tried for member in waiting):
                self._queues.restamp(entity)
            else:
                entity.sequence = before.sequence
            self._queues.to_active(entity, SCHEDULE_ATTEMPT_FAILURE)
            return
        if code in (Code.UNSCHEDULABLE, Code.UNRESOLVABLE):
            entity.unschedulable_count = before.unschedulable_count + 1
        else:
            entity.unschedulable_count = before.unschedulable_count
            entity.consecutive_errors_count = before.consecutive_errors_count + 1
        self._queues.restamp(entity)
        self._queues.requeue(entity, Strategy.AFTER_BACKOFF, SCHEDULE_ATTEMPT_FAILURE)

    def activate(self, pod: Pod, label: str) -> None:
        """Makes the group of a waiting member active without backoff."""
        entity = None if self.find(pod.key, pod.uid) is None else self.entity(pod)
        queues = self._queues
        if entity is None or entity.sub_queue is queues.active:
            return
        if entity.sub_queue is queues.unschedulable:
            queues.to_active(entity, label)
        else:
            queues.remove(entity)
            queues.to_active(entity, label, from_backoff=True)

    # PodGroup objects

    def group_added(self, key: GroupKey) -> None:
        """An object of a group appeared: the members that it completes enter the queue together.

        kube-scheduler adds them one by one, and may begin to schedule the group when the first is there.
        """
        root = self._states.root(key)
        if root is None:
            return
        waiting: list[QueuedPod] = []
        for state in self._states.states_below(root):
            waiting += self._incomplete.pop(state.key, {}).values()
        if waiting:
            self._enter(root, waiting, self._events.add.label)

    def group_updated(self, key: GroupKey) -> None:
        """The object of a group changed. Its place in the queue does not, unless an event moves it."""
        entity, group = self.entities.get(key), self._states.group(key)
        if entity is not None and group is not None:
            entity.group = group

    def group_deleted(self, root: GroupKey) -> None:
        """An object of this tree was deleted: the waiting members that need it become incomplete."""
        entity = self.entities.get(root)
        if entity is not None:
            left = self._set_incomplete(entity.members)
            if not left:
                del self.entities[root]
                self._queues.remove(entity)
            elif len(left) < len(entity.members):
                entity.members = left
                self._put_back(entity, self._events.update.label, left)
        if self._is_last_popped(root):
            self._pending = {info.key: info for info in self._set_incomplete(self._pending.values())}

    def _set_incomplete(self, infos: Iterable[QueuedPod]) -> list[QueuedPod]:
        """Makes those incomplete that have no root; returns the others."""
        left = []
        for info in infos:
            key = group_key(info.pod)
            assert key is not None
            if self._states.root(key) is None:
                self._incomplete.setdefault(key, {})[info.key] = info
            else:
                left.append(info)
        return left

    # Inspection

    def entity_counts(self) -> Counter[str]:
        """The number of groups in each sub-queue."""
        return Counter(self._queue_name(entity) for entity in self.entities.values())

    def counts(self, entities: PendingPods) -> PendingPods:
        """The number of pods in each sub-queue, in which each group counts as one entity."""
        more = Counter[str]()
        for entity in self.entities.values():
            more[self._queue_name(entity)] += len(entity.members) - 1
        return replace(
            entities,
            **{name: getattr(entities, name) + added for name, added in more.items()},
            incomplete=sum(map(len, self._incomplete.values())),
            pending=len(self._pending),
        )

    def _queue_name(self, entity: QueuedGroup) -> str:
        assert entity.sub_queue is not None
        is_gated = entity.sub_queue is self._queues.unschedulable and entity.gating_plugin
        return "gated" if is_gated else entity.sub_queue.label

    def is_incomplete(self, info: QueuedPod) -> bool:
        """Whether an object of this waiting member's group does not exist."""
        key = group_key(info.pod)
        return key is not None and info.key in self._incomplete.get(key, {})

    def outside_entities(self) -> list[Pod]:
        """The waiting members that are in no sub-queue."""
        incomplete = [info.pod for waiting in self._incomplete.values() for info in waiting.values()]
        return incomplete + [info.pod for info in self._pending.values()]
