"""Pod groups of other schedulers, read as groups of this one: those of Coscheduling and of Volcano.

A dialect says which group a pod names and what its PodGroup object asks for. Both are translated where the
informers deliver them: a member gets `spec.schedulingGroup`, the group becomes a PodGroup of Kubernetes. So
queue, cycle and preemption know one kind of group, and a group of any dialect is scheduled all or nothing in
one cycle.

    informer ── pod ──────► Members ── pod with schedulingGroup ──► PodHandler
    informer ── PodGroup ─► ForeignGroups ── PodGroup ───────────► GroupHandler
                                 ▲ priority, tasks: from the members

A group without a priority of its own has that of its members, which must agree. What is written back is the
dialect's: Volcano's users look at phase and conditions of the PodGroup. Coscheduling's scheduler never wrote
its PodGroups (the controller of scheduler-plugins does), and neither is it done here.

docs/group-dialects.md is for those who come from there.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from msgspec.structs import replace

from bayplan.api import volcano
from bayplan.api.groups import (
    DisruptionMode,
    GangSchedulingPolicy,
    Mode,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupStatus,
)
from bayplan.api.meta import Condition, Object, ObjectMeta, ResourceList
from bayplan.api.pod import Pod, PodSchedulingGroup
from bayplan.api.workloads import POD_GROUP_LABEL, PriorityClass
from bayplan.api.workloads import PodGroup as CoschedulingPodGroup
from bayplan.client.informer import Handler
from bayplan.config.model import PodGroupDialect
from bayplan.errors import APIError, ConflictError, NotFoundError
from bayplan.scheduler.context import Context, PodLister
from bayplan.scheduler.failure import SKIPPED
from bayplan.scheduler.group_members import NO_MEMBERS, GroupMembers
from bayplan.state.groups import INITIALLY_SCHEDULED, GroupKey, GroupState
from bayplan.state.objects import Objects

if TYPE_CHECKING:
    from bayplan.queues.tree import Blocking

_log = logging.getLogger(__name__)

PENDING, INQUEUE, RUNNING, UNKNOWN = "Pending", "Inqueue", "Running", "Unknown"
"""Phases of Volcano's groups."""
UNSCHEDULABLE: Final = "Unschedulable"
NOT_ENOUGH_RESOURCES: Final = "NotEnoughResources"
TOO_FEW_TASKS: Final = "NotEnoughTasks"
NOT_ENOUGH_TASKS: Final = "Not enough valid tasks for gang-scheduling, valid: {valid}, min: {least}"
NOT_ENOUGH_OF_TASK: Final = (
    "NotEnoughPodsOfTask",
    "Not enough valid pods of each task for gang-scheduling",
)
_TOO_FEW: Final = (TOO_FEW_TASKS, NOT_ENOUGH_OF_TASK[0])
"""Reasons that end when there are more members."""
READY_REASON: Final = "tasks in gang are ready to be scheduled"


MAX_WRITES: Final = 20
"""Writes of a group's status in a row; the next change of a member begins again."""


Limit: TypeAlias = "Blocking | str | None"
"""What keeps a group waiting for its capacity queue."""


class Dialect(Protocol):
    """One kind of foreign group."""

    record: type[Object] | None
    """None: its groups have no objects."""
    more: tuple[type[Object], ...]
    """Other kinds that it reads."""

    def group_name(self, pod: Pod) -> str:
        """The group that the pod names; empty if it names none."""

    def spec(self, item: Any, members: GroupMembers, objects: Objects) -> PodGroupSpec:
        """What the group asks for."""

    def is_scheduled(self, item: Any) -> bool:
        """Whether the object says that the group has been scheduled."""

    def written(self, item: Any, condition: Condition, state: GroupState, now: float) -> Object | None:
        """The object after an attempt with this condition; None if the dialect's scheduler writes nothing."""

    def not_used(self, item: Any) -> Sequence[str]:
        """The fields of an object that are not used, if it is seen for the first time."""

    def seen(self, item: Any) -> Object | None:
        """The object after the scheduler has seen it first; None if nothing is written."""

    def not_admitted(self, item: Any, limit: Blocking | str, now: float) -> Object | None:
        """The object with what keeps it waiting for its capacity queue; None if it has that already."""

    def observed(self, item: Any, members: GroupMembers, now: float) -> Object | None:
        """The object with what its members show, without an attempt; None if it has that already."""


def gang(min_count: int, priority: int, min_resources: ResourceList | None = None) -> PodGroupSpec:
    return PodGroupSpec(
        scheduling_policy=PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=max(1, min_count))),
        disruption_mode=DisruptionMode(single=Mode()),
        priority=priority,
        min_resources=min_resources or {},
    )


class Coscheduling:
    """scheduling.x-k8s.io: a label names the group, minMember is the minimum."""

    record: type[Object] | None = CoschedulingPodGroup
    more: tuple[type[Object], ...] = ()

    def group_name(self, pod: Pod) -> str:
        return pod.metadata.labels.get(POD_GROUP_LABEL, "")

    def spec(self, item: CoschedulingPodGroup, members: GroupMembers, objects: Objects) -> PodGroupSpec:
        return gang(item.spec.min_member, members.priority, item.spec.min_resources)

    def is_scheduled(self, item: CoschedulingPodGroup) -> bool:
        return False

    def written(
        self, item: CoschedulingPodGroup, condition: Condition, state: GroupState, now: float
    ) -> Object | None:
        return None

    def not_used(self, item: CoschedulingPodGroup) -> Sequence[str]:
        return ()

    def seen(self, item: CoschedulingPodGroup) -> Object | None:
        return None

    def not_admitted(self, item: CoschedulingPodGroup, limit: Blocking | str, now: float) -> Object | None:
        return None

    def observed(self, item: CoschedulingPodGroup, members: GroupMembers, now: float) -> Object | None:
        return None


class Volcano:
    """scheduling.volcano.sh: an annotation names the group. It may have minima for its tasks, too."""

    record: type[Object] | None = volcano.PodGroup
    more: tuple[type[Object], ...] = (PriorityClass,)

    def group_name(self, pod: Pod) -> str:
        annotations = pod.metadata.annotations
        return annotations.get(volcano.GROUP_ANNOTATION) or annotations.get(
            volcano.OTHER_GROUP_ANNOTATION, ""
        )

    def spec(self, item: volcano.PodGroup, members: GroupMembers, objects: Objects) -> PodGroupSpec:
        spec = item.spec
        known = objects.of(PriorityClass).get(spec.priority_class_name) if spec.priority_class_name else None
        priority = members.priority if known is None else known.value
        return gang(self._min_count(spec, members), priority, spec.min_resources)

    def _min_count(self, spec: volcano.PodGroupSpec, members: GroupMembers) -> int:
        """So many that every task has its minimum, whichever members are left out."""
        if not _has_task_minima(spec):
            return spec.min_member
        tasks = members.tasks
        # At most (pods of the task - minimum) members are left out, so they cannot all be of this task.
        needed = (len(members) - tasks[task] + least for task, least in spec.min_task_member.items())
        return max(spec.min_member, *needed)

    def is_scheduled(self, item: volcano.PodGroup) -> bool:
        return item.status.phase == RUNNING

    def not_used(self, item: volcano.PodGroup) -> Sequence[str]:
        return () if item.status.phase else item.spec.not_used

    def seen(self, item: volcano.PodGroup) -> Object | None:
        """Controllers of Volcano create the pods of a job once its group is Inqueue."""
        if item.status.phase not in ("", PENDING):
            return None
        conditions = tuple(one for one in item.status.conditions if one.type != UNSCHEDULABLE)
        return replace(item, status=replace(item.status, phase=INQUEUE, conditions=conditions))

    def not_admitted(self, item: volcano.PodGroup, limit: Blocking | str, now: float) -> Object | None:
        """Amounts that change are not written again, only another limit."""
        text, kind = (limit, limit) if isinstance(limit, str) else (limit.sentence(), limit.without_amounts())
        known = next((one for one in item.status.conditions if one.type == UNSCHEDULABLE), None)
        if item.status.phase == PENDING and known is not None and known.message.startswith(kind):
            return None
        conditions = _with_condition(item, UNSCHEDULABLE, NOT_ENOUGH_RESOURCES, text, now)
        return replace(item, status=replace(item.status, phase=PENDING, conditions=conditions))

    def written(
        self, item: volcano.PodGroup, condition: Condition, state: GroupState, now: float
    ) -> Object | None:
        # gang.go: OnSessionClose; session.go: getPodGroupPhase
        is_ready = condition.status == "True"
        is_running = any(pod.status.phase == "Running" for pod in state.scheduled.values())
        phase = RUNNING if is_ready else UNKNOWN if is_running else INQUEUE
        kind, reason = ("Scheduled", READY_REASON) if is_ready else (UNSCHEDULABLE, NOT_ENOUGH_RESOURCES)
        message = "" if is_ready else _unschedulable(item, state, condition.message)
        if condition.reason == SKIPPED:  # without an attempt
            if item.status.phase in ("", PENDING):
                return None  # see not_admitted
            phase, reason = item.status.phase, SKIPPED
        conditions = _with_condition(item, kind, reason, message, now)
        return replace(item, status=replace(item.status, phase=phase, conditions=conditions))

    def observed(self, item: volcano.PodGroup, members: GroupMembers, now: float) -> Object | None:
        """The number of running members and, as long as there are too few for an attempt, a condition."""
        # session.go: jobStatus; gang.go: OnSessionOpen (validJobFn)
        status = replace(item.status, running=members.running)
        reason, message = self._invalid(item.spec, members)
        known = next((one for one in item.status.conditions if one.type == UNSCHEDULABLE), None)
        is_told = known is not None and (known.reason, known.message) == (reason, message)
        if reason and members and item.status.phase in ("", PENDING, INQUEUE) and not is_told:
            status = replace(status, conditions=_with_condition(item, UNSCHEDULABLE, reason, message, now))
        elif not reason and known is not None and known.reason in _TOO_FEW:
            others = tuple(one for one in item.status.conditions if one is not known)
            status = replace(status, conditions=others)
        return None if status == item.status else replace(item, status=status)

    def _invalid(self, spec: volcano.PodGroupSpec, members: GroupMembers) -> tuple[str, str]:
        """Volcano's reason and message if there are too few members to try them; both empty otherwise."""
        if _has_task_minima(spec) and any(
            members.tasks[task] < least for task, least in spec.min_task_member.items()
        ):
            return NOT_ENOUGH_OF_TASK
        if len(members) < spec.min_member:
            return TOO_FEW_TASKS, NOT_ENOUGH_TASKS.format(valid=len(members), least=spec.min_member)
        return "", ""


def _has_task_minima(spec: volcano.PodGroupSpec) -> bool:
    """Whether minima of tasks count: they do not if they are more than minMember together.

    The controller writes the replicas of each task as its minimum if the job names none.
    """
    # job_info.go: CheckTaskReady
    return bool(spec.min_task_member) and spec.min_member >= sum(spec.min_task_member.values())


def _with_condition(
    item: volcano.PodGroup, kind: str, reason: str, message: str, now: float
) -> tuple[volcano.PodGroupCondition, ...]:
    """The conditions of the group with this one instead of another of its type."""
    made = volcano.PodGroupCondition(
        type=kind,
        status="True",
        transition_id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{item.uid}{message}")),
        last_transition_time=datetime.fromtimestamp(int(now), UTC),
        reason=reason,
        message=message,
    )
    return (*(one for one in item.status.conditions if one.type != kind), made)


def _unschedulable(item: volcano.PodGroup, state: GroupState, why: str) -> str:
    """Volcano's message, with the reason of the attempt."""
    # job_info.go: FitError
    running = sum(pod.status.phase == "Running" for pod in state.scheduled.values())
    waiting = state.all_count - state.scheduled_count
    counts = {
        "Pending": waiting,
        "Bound": state.scheduled_count - running,
        "Running": running,
        "minAvailable": item.spec.min_member,
    }
    histogram = ", ".join(sorted(f"{count} {name}" for name, count in counts.items() if count))
    missing = item.spec.min_member - state.scheduled_count
    return (
        f"{missing}/{state.all_count} tasks in gang unschedulable: pod group is not ready, {histogram}; "
        f"Pending: {waiting} Unschedulable. Origin reason is: {why}"
    )


DIALECTS: Final[dict[PodGroupDialect, Dialect]] = {
    PodGroupDialect.COSCHEDULING: Coscheduling(),
    PodGroupDialect.VOLCANO: Volcano(),
}


class ForeignGroups:
    """The groups of one dialect: an informer's handler of its objects.

    The translated object follows its members: it is passed on again whenever they change what it asks for.
    """

    def __init__(self, dialect: Dialect, handler: Handler[Any], context: Context) -> None:
        self.dialect = dialect
        self._handler = handler
        self._context = context
        self._objects = context.cluster.objects
        self._items: dict[GroupKey, Object] = {}
        self._shown: dict[GroupKey, PodGroup] = {}
        self._members: dict[GroupKey, GroupMembers] = {}
        self._observing: set[GroupKey] = set()
        """Groups whose status is being written."""
        self.admit: Callable[[], Iterable[tuple[Object, Limit]]] | None = None
        """The groups that wait for capacity queues, with what keeps them waiting; None: they are admitted.
        Without this function every group is admitted when it is seen."""

    def admit_groups(self) -> None:
        """Something has changed in the capacity queues: writes which groups are admitted, and why not."""
        for item, limit in () if self.admit is None else self.admit():
            key = GroupKey(item.namespace, item.name)
            known = self._items.get(key)
            if known is None:
                continue
            if limit is None:
                made = self.dialect.seen(known)
            else:
                made = self.dialect.not_admitted(known, limit, self._context.now())
            if made is not None:
                self._context.tasks.start(self._write(made), "status of pod group", str(key))

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._items

    def added(self, item: Object) -> None:
        key = GroupKey(item.namespace, item.name)
        self._items[key] = item
        self._objects.put(item)
        shown = self._shown[key] = self._translated(key)
        self._handler.added(shown)
        if fields := self.dialect.not_used(item):
            self._context.recorder.not_used(item, fields)
        made = self.dialect.seen(item) if self.admit is None else None
        made = self._observed(item if made is None else made) or made
        if made is not None:
            self._context.tasks.start(self._write(made), "status of pod group", str(key))

    async def _write(self, item: Object) -> None:
        """Writes a status. A conflict means that somebody else did, or that the group is being changed."""
        try:
            await self._context.api.update_status(item)
        except (ConflictError, NotFoundError):
            pass
        except APIError as error:
            _log.warning("cannot write the status of pod group %s: %s", item.key, error)

    def updated(self, old: Any, new: Any) -> None:
        key = GroupKey(new.namespace, new.name)
        self._items[key] = new
        self._objects.put(new)
        self._refresh(key)
        if new.spec != old.spec:
            self._observe(key)

    def deleted(self, item: Object) -> None:
        key = GroupKey(item.namespace, item.name)
        del self._items[key]
        self._objects.remove(item)
        self._handler.deleted(self._shown.pop(key))

    def pod_changed(self, pod: Pod) -> None:
        """A pod, member of a group or not, was added or changed."""

    def pod_gone(self, pod: Pod) -> None:
        """A pod was deleted."""

    def member_changed(self, key: GroupKey, pod: Pod) -> None:
        self._put(key, pod)
        self._refresh(key)
        self._observe(key)

    def _put(self, key: GroupKey, pod: Pod) -> None:
        members = self._members.get(key)
        if members is None:
            members = self._members[key] = GroupMembers()
        members.put(pod)

    def member_gone(self, key: GroupKey, pod: Pod) -> None:
        members = self._members.get(key)
        if members is not None and members.remove(pod.uid):
            if not members:
                del self._members[key]
            self._refresh(key)
            self._observe(key)

    def _observe(self, key: GroupKey) -> None:
        """Writes what the members show, if that is new. Changes during a write share the next one."""
        if key in self._items and key not in self._observing and self._observed(self._items[key]) is not None:
            self._observing.add(key)
            self._context.tasks.start(self._write_observed(key), "status of pod group", str(key))

    def _observed(self, item: Object) -> Object | None:
        members = self._members.get(GroupKey(item.namespace, item.name)) or NO_MEMBERS
        return self.dialect.observed(item, members, self._context.now())

    async def _write_observed(self, key: GroupKey) -> None:
        api, kind = self._context.api, type(self._items[key])
        try:
            for _ in range(MAX_WRITES):
                item = self._observed(await api.get(kind, key.name, key.namespace))
                if item is None:
                    return
                with suppress(ConflictError):  # it has changed: the next round reads it again
                    await api.update_status(item)
        except NotFoundError:
            pass
        except APIError as error:
            _log.warning("cannot write the status of pod group %s: %s", key, error)
        finally:
            self._observing.discard(key)

    def _refresh(self, key: GroupKey) -> None:
        if key in self._items:
            before, after = self._shown[key], self._translated(key)
            if after != before:
                self._shown[key] = after
                self._handler.updated(before, after)

    def _translated(self, key: GroupKey) -> PodGroup:
        members = self._members.get(key) or NO_MEMBERS
        return translated(self.dialect, self._items[key], members, self._objects)


def translated(dialect: Dialect, item: Object, members: GroupMembers, objects: Objects) -> PodGroup:
    """The PodGroup of Kubernetes that asks for the same as an object of a dialect."""
    meta = item.metadata
    conditions: tuple[Condition, ...] = ()
    if dialect.is_scheduled(item):
        conditions = (Condition(type=INITIALLY_SCHEDULED, status="True", reason="Scheduled"),)
    return PodGroup(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            generation=meta.generation,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
        ),
        spec=dialect.spec(item, members, objects),
        status=PodGroupStatus(conditions=conditions),
    )


def translate_all(items: Iterable[Object], dialects: Sequence[Dialect]) -> list[Object]:
    """The objects of a cluster with groups of these dialects as groups of Kubernetes.

    Members get `spec.schedulingGroup`, and each PodGroup of a dialect is followed by its translation.
    """
    objects, pods = Objects(), dict[tuple[Dialect, GroupKey], GroupMembers]()
    read: list[Object] = []
    for item in items:
        if isinstance(item, Pod):
            item, dialect = read_member(item, dialects)
            if dialect is not None and not item.is_finished:
                pods.setdefault((dialect, _key(item)), GroupMembers()).put(item)
        elif isinstance(item, PriorityClass):
            objects.put(item)
        read.append(item)
    of_record = {dialect.record: dialect for dialect in dialects}
    found: list[Object] = []
    for item in read:
        found.append(item)
        owner = of_record.get(type(item))
        if owner is not None:
            members = pods.get((owner, GroupKey(item.namespace, item.name))) or NO_MEMBERS
            found.append(translated(owner, item, members, objects))
    return found


def read_member(pod: Pod, dialects: Iterable[Dialect]) -> tuple[Pod, Dialect | None]:
    """The pod with the group that it names in a dialect, and that dialect."""
    for dialect in dialects:
        if pod.spec.scheduling_group is None and (name := dialect.group_name(pod)):
            return with_group(pod, name), dialect
    return pod, None


class Members:
    """An informer's handler of pods that names the groups of dialects in `spec.schedulingGroup`."""

    def __init__(self, handler: Handler[Pod], dialects: Sequence[ForeignGroups]) -> None:
        self._handler = handler
        self._dialects = dialects

    def added(self, pod: Pod) -> None:
        for each in self._dialects:
            each.pod_changed(pod)
        pod, groups = self._read(pod)
        if groups is not None:
            groups.member_changed(_key(pod), pod)
        self._handler.added(pod)

    def updated(self, old: Pod, new: Pod) -> None:
        before, _ = self._read(old)
        after, is_in = self._read(new)
        if before.spec.scheduling_group != after.spec.scheduling_group:
            # A pod with another label is another member: Kubernetes never changes the group of a pod.
            self.deleted(old)
            self.added(new)
            return
        for each in self._dialects:
            each.pod_changed(new)
        if is_in is not None:
            is_in.member_changed(_key(after), after)
        self._handler.updated(before, after)

    def deleted(self, pod: Pod) -> None:
        pod, groups = self._read(pod)
        self._handler.deleted(pod)
        if groups is not None:
            groups.member_gone(_key(pod), pod)
        for each in self._dialects:
            each.pod_gone(pod)

    def _read(self, pod: Pod) -> tuple[Pod, ForeignGroups | None]:
        pod, dialect = read_member(pod, [groups.dialect for groups in self._dialects])
        return pod, next((groups for groups in self._dialects if groups.dialect is dialect), None)


def with_group(pod: Pod, name: str) -> Pod:
    group = PodSchedulingGroup(pod_group_name=name)
    return replace(pod, spec=replace(pod.spec, scheduling_group=group))


def _key(pod: Pod) -> GroupKey:
    group = pod.spec.scheduling_group
    assert group is not None, "its group was read from its labels or annotations"
    return GroupKey(pod.namespace, group.pod_group_name or "")


class MemberLister:
    """Pods as the informer has them, with the groups of dialects."""

    def __init__(self, pods: PodLister, dialects: Sequence[Dialect]) -> None:
        self._pods, self._dialects = pods, dialects

    def get(self, name: str, namespace: str = "") -> Pod | None:
        pod = self._pods.get(name, namespace)
        return None if pod is None else self._read(pod)

    def with_label(self, namespace: str, key: str, value: str) -> Collection[Pod]:
        return [self._read(pod) for pod in self._pods.with_label(namespace, key, value)]

    def _read(self, pod: Pod) -> Pod:
        return read_member(pod, self._dialects)[0]
