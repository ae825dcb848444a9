"""Coscheduling: the pods of a group run together, or none of them does.

A PodGroup has a minimum number of pods that have to run (`minMember`); a pod belongs to the group that its
label names. Until that many pods of the group exist, none of them is scheduled (PreEnqueue). From then on
each pod that finds a node keeps it and waits (Permit), and the last one that is needed makes all of them be
bound.

Reservations without use are released quickly. A member that finds no node is recorded, and as soon as the
others could not complete the group, all waiting members are rejected; the same happens if one of them fails
for any other reason, or has waited too long. The group then backs off: its members are gated, each time for
twice as long, and those that were rejected, or requeued meanwhile, are scheduled again afterwards. A group
without a waiting pod is not tried again before an event that may help the member that failed: that one is
unschedulable for its own reason, and if it fits next time, Permit activates all the others.

Two groups that each have half of the resources cannot block each other. The one that is rejected first
releases its nodes; but if the other one is younger, the younger one is rejected, and the older one keeps its
nodes and is tried again with the released resources. (Older means: higher priority, then created earlier.)
The oldest group is therefore never stopped by others. One that does not fit even so is rejected too and backs
off for longer than those it displaced, so that they are tried in between; the times have a random part, so
that groups do not collide again and again.

A member counts if it has a node, or can get one: it has no scheduling gate and the same scheduler. Pods that
are terminating, or have finished, do not count. Groups may have more pods than they need; the rest is then
scheduled one by one.

https://github.com/kubernetes-sigs/scheduler-plugins/tree/master/pkg/coscheduling
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from bayplan.plugin import (
    SKIP,
    SKIP_FOR_SIGNATURE,
    Action,
    ClusterEventWithHint,
    Code,
    CycleState,
    FilterOutcome,
    Handle,
    NodeColumns,
    PermitPlugin,
    Plugin,
    PluginArgs,
    Pod,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    Resource,
    Status,
    Wait,
    event_with_hint,
    unresolvable,
    unschedulable,
)
from bayplan.plugin.args import FieldError, Gates, at, invalid
from bayplan.plugin.objects import POD_GROUP_LABEL, PodGroup

NOT_FOUND: Final = 'pod group "{name}" not found'
INCOMPLETE: Final = 'pod group "{name}" has {count} of {wanted} pods that it needs'
BACKS_OFF: Final = 'pod group "{name}" did not fit and is tried again later'
WAITS: Final = 'waiting for more pods of pod group "{name}"'
REJECTED: Final = 'rejected because pod group "{name}" cannot be completed now'

FIRST_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 30.0


class CoschedulingArgs(PluginArgs, frozen=True):
    permit_waiting_time_seconds: int = 60
    """How long pods wait for the rest of their group, by default."""

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        if self.permit_waiting_time_seconds < 1:
            where = at(path, "permitWaitingTimeSeconds")
            yield invalid(where, self.permit_waiting_time_seconds, "must be greater than 0")


@dataclass(slots=True)
class Progress:
    """The state of the attempts to schedule a group. A group that is complete, or was never tried, has
    none."""

    key: tuple[str, str]
    """Namespace and name of the group."""
    age: tuple[int, float, str, str]
    """Orders groups: the smallest is the oldest."""
    rejected: set[str] = field(default_factory=set)
    """Members that found no node since the first of the group began to wait."""
    ever_rejected: set[str] = field(default_factory=set)
    """Members that have ever found no node: they need an event other than the group's."""
    has_waiting: bool = False
    """Whether some of its members wait for the others."""
    is_complete: bool = False
    """Whether the group is complete and its gated members are being activated, without counting again."""
    assigned: int = 0
    """Members with a node, bound or not. Counted for the first that waits, and when there should be
    enough."""
    leaving: set[str] = field(default_factory=set)
    """Members that were rejected with the group, and have not left their nodes yet."""
    failures: int = 0
    """How often in a row the group was rejected because of its own members."""
    pauses: int = 0
    """How often it backed off; distinguishes an old timer from the current one."""
    is_paused: bool = False
    gated: dict[str, Pod] = field(default_factory=dict)
    """Gated members, activated when the group is complete and the pause is over."""
    is_polled: bool = False
    """Whether a timer is set that checks whether the group is complete."""
    requeued: dict[str, Pod] = field(default_factory=dict)
    """Members that were requeued during a pause."""


class Coscheduling(Plugin, PreEnqueuePlugin, PreFilterPlugin, PostFilterPlugin, ReservePlugin, PermitPlugin):
    """Delays the binding of the pods of a group until enough of them have a node."""

    args_type: ClassVar = CoschedulingArgs
    kinds: ClassVar = (PodGroup,)

    args: CoschedulingArgs

    def __init__(self, args: CoschedulingArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._progress: dict[tuple[str, str], Progress] = {}

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # New pods of the group need no event: PreEnqueue is called for them, which activates the others.
        # Evaluating every waiting pod for every new one would cost their product.
        changes = Action.ADD | Action.UPDATE
        return (event_with_hint(Resource.COSCHEDULING_POD_GROUP, changes, self.is_its_group),)

    def is_its_group(self, pod: Pod, old: PodGroup | None, new: PodGroup) -> bool:
        return (
            pod.labels.get(POD_GROUP_LABEL) == new.name
            and pod.namespace == new.namespace
            and (old is None or old.spec != new.spec)
        )

    # Before the search for a node

    def pre_enqueue(self, pod: Pod) -> Status | None:
        name = pod.labels.get(POD_GROUP_LABEL)
        if name is None:
            return None
        group = self._group(pod, name)
        obstacle = self._obstacle(pod, name, group)
        if obstacle:
            if group is not None:
                progress = self._progress_of(group, pod)
                progress.gated[pod.uid] = pod
                self._poll(progress)
            return unresolvable(obstacle)
        known = self._progress.get((pod.namespace, name))
        if known is not None:
            known.gated.pop(pod.uid, None)
            if known.gated:
                # PreEnqueue is then called for each of them.
                known.is_complete = True
                try:
                    self._activate_gated(known)
                finally:
                    known.is_complete = False
        return None

    def _poll(self, progress: Progress) -> None:
        """Members that other schedulers bind never pass PreEnqueue, and complete a group as well.

        Handling an event for each would cost more than polling.
        """
        if progress.is_polled:
            return
        progress.is_polled = True

        def check() -> None:
            progress.is_polled = False
            namespace, name = progress.key
            group = self.handle.cluster.objects.of(PodGroup).get(name, namespace)
            if group is None or self._progress.get(progress.key) is not progress:
                return
            for member in self.handle.pods_with_label(namespace, POD_GROUP_LABEL, name):
                if member.uid in progress.gated:
                    if self._obstacle(member, name, group):
                        self._poll(progress)
                        return
                    break
            self._activate_gated(progress)

        self.handle.call_later(MAX_BACKOFF_SECONDS, check)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        name = pod.labels.get(POD_GROUP_LABEL)
        if name is None:
            return SKIP_FOR_SIGNATURE
        group = self._group(pod, name)
        obstacle = self._obstacle(pod, name, group)
        if not obstacle:
            return SKIP
        if group is not None:
            progress = self._progress_of(group, pod)
            # A member that was rejected before was requeued by an event, and there may be no other event.
            waiting_list = progress.gated if pod.uid in progress.ever_rejected else progress.requeued
            waiting_list[pod.uid] = pod
        return unresolvable(obstacle)

    def _obstacle(self, pod: Pod, name: str, group: PodGroup | None) -> str:
        """The reason not to search for a node; empty if there is none."""
        if group is None:
            return NOT_FOUND.format(name=name)
        progress = self._progress.get((pod.namespace, name))
        if progress is not None and (progress.has_waiting or progress.is_complete):
            # It was complete when the first of them found a node. Continuing costs less than counting again.
            return ""
        members, wanted = _members(self.handle, pod, name), group.spec.min_member
        count = len(members) if len(members) < wanted else _schedulable_count(members, pod)
        if members and count < wanted:
            return INCOMPLETE.format(name=name, count=count, wanted=wanted)
        return BACKS_OFF.format(name=name) if progress is not None and progress.is_paused else ""

    def _group(self, pod: Pod, name: str) -> PodGroup | None:
        return self.handle.cluster.objects.of(PodGroup).get(name, pod.namespace)

    # No node was found

    def post_filter(self, state: CycleState, pod: Pod, outcome: FilterOutcome) -> PostFilterResult:
        """Preemption has run before, and did not help."""
        name = pod.labels.get(POD_GROUP_LABEL)
        if name is not None and outcome.diagnosis.rejecting_plugins != {self.name}:
            group = self._group(pod, name)
            if group is not None:
                self._member_rejected(group, pod, outcome)
        return PostFilterResult(unschedulable())

    def _member_rejected(self, group: PodGroup, pod: Pod, outcome: FilterOutcome) -> None:
        progress = self._progress_of(group, pod)
        progress.rejected.add(pod.uid)
        progress.ever_rejected.add(pod.uid)
        left = [one for one in _members(self.handle, pod, group.name) if one.uid not in progress.rejected]
        if _schedulable_count(left, pod) >= group.spec.min_member:
            return
        if len(outcome.diagnosis.rows_with(Code.UNSCHEDULABLE)):
            younger = [
                other
                for other in self._progress.values()
                if other.age > progress.age and (other.has_waiting or other.leaving)
            ]
            for other in younger:
                if other.has_waiting:
                    self._reject_group(other)
            if younger:
                # Their resources may be enough. When they are released, the pod is requeued by the usual
                # events.
                return
        progress.failures += 1
        self._reject_group(progress, because_of=frozenset(progress.rejected))

    # A node was found

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None:
        name = pod.labels.get(POD_GROUP_LABEL)
        if name is None:
            return None
        group = self._group(pod, name)
        if group is None:
            return unschedulable(NOT_FOUND.format(name=name))
        progress = self._progress_of(group, pod)
        progress.rejected.discard(pod.uid)
        progress.assigned += 1
        wait = Wait(
            float(group.spec.schedule_timeout_seconds or self.args.permit_waiting_time_seconds),
            WAITS.format(name=name),
        )
        if progress.has_waiting and progress.assigned < group.spec.min_member:
            return wait
        members = [one for one in _members(self.handle, pod, name) if not one.is_terminating]
        missing = [one for one in members if not self.handle.cluster.has_pod(one.uid)]
        leaving = [one for one in members if one.uid in progress.leaving or _is_leaving(self.handle, one)]
        progress.assigned = len(members) - len(missing) - len(leaving)
        if progress.assigned >= group.spec.min_member:
            self._complete(progress, members)
            return None
        if not progress.has_waiting:
            progress.has_waiting = True
            progress.rejected.clear()
            progress.requeued.clear()
            self.handle.activate(missing)
        return wait

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """The pod loses its node: the group must not wait for it."""
        name = pod.labels.get(POD_GROUP_LABEL)
        if name is None:
            return
        progress = self._progress.get((pod.namespace, name))
        if progress is None:
            return
        if pod.uid in progress.leaving:
            progress.leaving.discard(pod.uid)
            return
        if progress.has_waiting:
            progress.failures += 1
            self._reject_group(progress)
        # If the group was rejected while this one was leaving, nothing else activates it.
        progress.gated[pod.uid] = pod
        self._activate_gated(progress)

    def _complete(self, progress: Progress, members: Collection[Pod]) -> None:
        too_late = []
        for member in members:
            waiting = self.handle.waiting_pod(member.uid)
            if waiting is not None:
                waiting.allow(self.name)
                if waiting.is_rejected:
                    too_late.append(member)
        del self._progress[progress.key]
        # From now on each member is scheduled alone. This cancels a pause that is not over.
        progress.pauses += 1
        self.handle.activate([*progress.gated.values(), *progress.requeued.values(), *too_late])

    # Rejecting, and trying again

    def _reject_group(self, progress: Progress, *, because_of: frozenset[str] = frozenset()) -> None:
        """Rejects all waiting members, and gates the group for a while.

        If members found no node and the group needs them, the others are requeued when an event helps these.
        If not, no event would requeue them, so all are activated after the pause.
        """
        namespace, name = progress.key
        for member in self.handle.pods_with_label(namespace, POD_GROUP_LABEL, name):
            waiting = self.handle.waiting_pod(member.uid)
            if waiting is not None:
                waiting.reject(self.name, REJECTED.format(name=name))
            if _is_leaving(self.handle, member):
                # By this, or because it waited too long itself, or was preempted.
                progress.leaving.add(member.uid)
                progress.gated[member.uid] = member
        progress.has_waiting = False
        progress.rejected.clear()
        progress.pauses += 1
        progress.is_paused = True
        doublings = min(max(progress.failures - 1, 0), 10)
        seconds = min(FIRST_BACKOFF_SECONDS * 2.0**doublings, MAX_BACKOFF_SECONDS)
        pause = progress.pauses

        def over() -> None:
            if progress.pauses != pause:
                return
            progress.is_paused = False
            if self._needs(progress, because_of):
                # They may be deleted, or bound by another scheduler. Handling events would cost more than
                # polling.
                self.handle.call_later(MAX_BACKOFF_SECONDS, over)
            else:
                progress.gated.update(progress.requeued)
                progress.requeued.clear()
            self._activate_gated(progress)

        self.handle.call_later(seconds * (1 + self.handle.random.random() / 2), over)

    def _needs(self, progress: Progress, rejected: Collection[str]) -> bool:
        """Whether the remaining members could not complete the group without one that found no node.

        Only those count that still exist and have no node.
        """
        one = next(iter(progress.requeued.values()), None)
        if one is None:
            return False
        namespace, name = progress.key
        members = self.handle.pods_with_label(namespace, POD_GROUP_LABEL, name)
        others = [
            member for member in members if member.uid not in rejected or not _is_pending(self.handle, member)
        ]
        group = self._group(one, name)
        is_enough = group is not None and _schedulable_count(others, one) >= group.spec.min_member
        return len(others) < len(members) and not is_enough

    def _activate_gated(self, progress: Progress) -> None:
        if progress.gated and not progress.is_paused:
            # PreEnqueue is called for them, and must not find them here again.
            gated, progress.gated = progress.gated, {}
            self.handle.activate(gated.values())

    def _progress_of(self, group: PodGroup, pod: Pod) -> Progress:
        key = (group.namespace, group.name)
        found = self._progress.get(key)
        if found is None:
            groups = self.handle.cluster.objects.of(PodGroup)
            if len(self._progress) > 2 * len(groups) + 100:
                for gone in [key for key in self._progress if groups.get(key[1], key[0]) is None]:
                    del self._progress[gone]
            created = group.metadata.creation_timestamp
            age = (-pod.priority, 0.0 if created is None else created.timestamp(), *key)
            found = self._progress[key] = Progress(key, age)
        return found


def _members(handle: Handle, pod: Pod, name: str) -> Collection[Pod]:
    return handle.pods_with_label(pod.namespace, POD_GROUP_LABEL, name)


def _is_leaving(handle: Handle, member: Pod) -> bool:
    """Whether it still has a node but was rejected: with a slow API server that takes a while."""
    waiting = handle.waiting_pod(member.uid)
    return waiting is not None and waiting.is_rejected


def _is_pending(handle: Handle, member: Pod) -> bool:
    return not member.is_terminating and not handle.cluster.has_pod(member.uid)


def _schedulable_count(members: Collection[Pod], pod: Pod) -> int:
    """The number of these that have a node or can get one."""
    scheduler_name, count = pod.spec.scheduler_name, 0
    for member in members:
        spec = member.spec
        if spec.node_name or (spec.scheduler_name == scheduler_name and not spec.scheduling_gates):
            count += not member.is_terminating
    return count
